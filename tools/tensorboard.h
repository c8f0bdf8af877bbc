// What TensorBoard shows of a job: an event file in the job's folder, written as the steps are done.
#pragma once

#include <cstdio>
#include <string>

#include "tools/host_log.h"
#include "tools/listener.h"

namespace epl::tools {

class TensorBoard : public Listener {
 public:
  // Makes FOLDER/events.out.tfevents.SECONDS.PID.epl; throws ApiError where it cannot.
  // That it cannot be written any further is said to `log`.
  TensorBoard(const std::string& folder, HostLog& log);
  ~TensorBoard() override;
  TensorBoard(const TensorBoard&) = delete;
  TensorBoard& operator=(const TensorBoard&) = delete;
  void step(const StepDone& e) override;
  void evaluated(const Evaluated& e) override;
  void done(const JobDone& e) override;

 private:
  void scalar(int64_t step, const std::string& tag, double value);
  void record(const std::string& event);

  void give_up();

  std::string path_;
  HostLog& log_;
  std::FILE* file_ = nullptr;
  double flushed_ = 0;  // when, in seconds
};

// CRC-32C (Castagnoli; RFC 3720, appendix B.4), which guards each record of the file.
uint32_t crc32c(std::string_view bytes);

}  // namespace epl::tools
