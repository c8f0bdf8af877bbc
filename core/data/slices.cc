#include "core/data/slices.h"

#include <algorithm>

#include "core/base/text.h"

namespace epl {

Slices::Slices(const std::vector<int64_t>& file_samples, int64_t count, const SliceOptions& options) {
  auto files = static_cast<int64_t>(file_samples.size());
  const int64_t rest = files % count;
  if (files < count) {
    refused_ = cat(files, " files are fewer than ", count, " replicas");
  } else if (rest != 0 && !options.unbalanced && !options.drop_last_files) {
    refused_ = cat(files, " files do not divide over ", count,
                   " replicas, and neither io.unbalanced_io_slicing nor io.drop_last_files is set");
  } else if (rest != 0 && !options.unbalanced) {
    files -= rest;
  }
  const int64_t slices = refused_.empty() ? count : 1;
  runs_.resize(static_cast<size_t>(slices));
  int64_t first = 0;
  for (int64_t file = 0; file < files; ++file) {
    std::vector<Run>& runs = runs_[static_cast<size_t>(file % slices)];
    const int64_t samples = file_samples[static_cast<size_t>(file)];
    runs.push_back({first, (runs.empty() ? 0 : runs.back().end) + samples});
    first += samples;
  }
}

int64_t Slices::samples(int64_t slice) const {
  const std::vector<Run>& runs = runs_[static_cast<size_t>(slice)];
  return runs.empty() ? 0 : runs.back().end;
}

int64_t Slices::fewest() const {
  int64_t out = samples(0);
  for (int64_t slice = 1; slice < count(); ++slice) out = std::min(out, samples(slice));
  return out;
}

int64_t Slices::sample(int64_t slice, int64_t index) const {
  const std::vector<Run>& runs = runs_[static_cast<size_t>(slice)];
  const auto run = std::ranges::upper_bound(runs, index, {}, &Run::end);
  const int64_t before = run == runs.begin() ? 0 : std::prev(run)->end;
  return run->first + index - before;
}

std::vector<SampleRange> Slices::ranges(int64_t slice) const {
  std::vector<SampleRange> out;
  int64_t before = 0;
  for (const Run& run : runs_[static_cast<size_t>(slice)]) {
    out.push_back({run.first, run.end - before});
    before = run.end;
  }
  return out;
}

}  // namespace epl
