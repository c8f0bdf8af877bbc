// Which samples are whose: parts of a batch, and files sharded over the replicas of a job, so that each reads its own
// (`io.slicing` of the original EPL).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/sample_range.h"

namespace epl {

struct SliceOptions {
  bool unbalanced = false;       // some slices may have a file more than others
  bool drop_last_files = false;  // files that do not divide are left out
};

// File i goes to slice i modulo their number. Where that does not come out even and no option says what to do, or where
// there are fewer files than slices, nothing is sharded: there is one slice with all files.
class Slices {
 public:
  Slices() = default;
  // `file_samples`: of each file, in their order.
  Slices(const std::vector<int64_t>& file_samples, int64_t count, const SliceOptions& options);
  int64_t count() const { return static_cast<int64_t>(runs_.size()); }
  int64_t samples(int64_t slice) const;
  // Of the slice that has fewest: where an epoch ends.
  int64_t fewest() const;
  // The sample, counted through all files, that is number `index` of a slice.
  int64_t sample(int64_t slice, int64_t index) const;
  // In the order of the files: each range is of samples counted through all files.
  std::vector<SampleRange> ranges(int64_t slice) const;
  // Why files were not sharded as asked; empty where they were.
  const std::string& refused() const { return refused_; }

 private:
  struct Run {
    int64_t first = 0, end = 0;  // its first sample, and how many the slice has up to its end
  };
  std::vector<std::vector<Run>> runs_;
  std::string refused_;
};

}  // namespace epl
