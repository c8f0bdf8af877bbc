// What a run's folder has beside what the library writes there (epl_job): the trained model, adapters, the report.
// Checked before the first step.
//
//   OUT/trained.onnx, OUT/adapters, OUT/report.html
#pragma once

#include <cstdint>
#include <string>

#include "tools/api.h"

namespace epl::tools {

class OutputFolder {
 public:
  explicit OutputFolder(std::string path);

  const std::string& path() const { return path_; }
  std::string onnx() const { return path_ + "/trained.onnx"; }
  std::string adapters() const { return path_ + "/adapters"; }

  // Throws where it has a trained model, unless that is replaced or the checkpoint `resume` lies in it.
  void check_unused(const std::string& resume, bool overwrite) const;
  // Throws unless the files that the run will write can be written: `report` among them, and `needed_bytes` on the
  // disk.
  void check_outputs(const std::string& report, int64_t needed_bytes) const;
  // The same for the adapters, where there are any; else those of a run that is overwritten go.
  void check_adapters(bool any) const;

 private:
  std::string path_;
};

// What --out, --overwrite and --resume say of a folder that holds a run.
[[noreturn]] void refuse_used_folder(const std::string& path);

}  // namespace epl::tools
