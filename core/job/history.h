// What a job has measured, kept in FOLDER/history.jsonl beside its checkpoints, so that a job that goes on knows of all
// of it.
//
// A line an event: "step", "evaluation" and "held_out", which says what the latter was measured on. Of a long job the
// first thousand steps are kept and then about every thousandth part, so that the file stays small.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/status.h"
#include "core/job/event.h"

namespace epl {

using NamedNumbers = std::vector<std::pair<std::string, double>>;

class History {
 public:
  // Reads the lines of an earlier run; one that cannot be read is left out. No file is no history.
  void read(const std::string& path);
  // What is behind `step` is forgotten, and on what earlier runs were measured. The rest begins the file, which is
  // written anew to `path`; empty: to none. `steps`: of the whole job; 0: nobody knows.
  void begin(const std::string& path, int64_t step, int64_t steps);
  void add_step(const JobEvent& event);
  void add_measured(const JobEvent& event, const NamedNumbers& metrics);
  void add_held_out(const Json& event);

  const std::vector<Json>& lines() const { return lines_; }
  Json held_out() const;   // the last such line; an object
  double seconds() const;  // of the last step
  // Writes what has come since. Losing it must not end a job: after an error it does nothing more.
  Status flush();

 private:
  bool keeps(int64_t step) const;
  std::vector<Json> lines_;
  std::string path_;
  size_t written_ = 0;
  int64_t steps_ = 0;
  bool begun_ = false, failed_ = false;
};

}  // namespace epl
