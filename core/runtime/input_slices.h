// Inputs of which a process is given the samples of its own ranks alone.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/compile/compiled_plan.h"
#include "core/compile/sample_slices.h"

namespace epl {

class InputSlices {
 public:
  // Inputs are full batches.
  InputSlices() = default;
  static Result<InputSlices> create(std::shared_ptr<const CompiledPlan> plan, int first_rank, int ranks);
  bool full() const { return ranges_.empty(); }
  // Of an input, the samples that this process reads.
  SampleRange range(const Entry& entry, size_t input) const { return ranges_[index_of(entry)][input]; }
  Status check(const Entry& entry, std::span<const Tensor> inputs) const;
  // Whether it is put into a full batch first, in memory of the host.
  bool is_staged(const Entry& entry, size_t input) const { return !full() && !staged_[index_of(entry)][input].empty(); }
  // Where ranks find the first sample of the batch: they read their own where these lie in it.
  const void* memory_of(const Entry& entry, size_t input, const Tensor& given);
  // For who looks at all of them: zeros where this process has no samples.
  std::vector<Tensor> full_batches(const Entry& entry, std::span<const Tensor> inputs) const;

 private:
  size_t index_of(const Entry& entry) const { return static_cast<size_t>(&entry - plan_->entries().data()); }
  Status find(const Entry& entry, int first_rank, int ranks);
  Status check_differ(const Entry& entry) const;

  std::shared_ptr<const CompiledPlan> plan_;
  std::vector<std::vector<SampleRange>> ranges_;  // by entry and input
  std::vector<std::vector<Tensor>> staged_;       // the same: a full batch where samples do not lie in one run
};

}  // namespace epl
