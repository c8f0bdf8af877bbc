// Outputs that the strategy merges: samples one after another, their mean or their sum, of the full batch or of what
// the ranks of one process have of it. The keys are those of the original EPL's collections. Outputs are merged on the
// host from what every layout gives alike, in the order of the samples, so that no layout shows in the result.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/tensor.h"
#include "core/strategy/plan.h"

namespace epl {

enum class Merging : uint8_t { global_concat, global_mean, global_sum, local_concat, local_mean, local_sum };
struct OutputMerge {
  Merging how = Merging::global_concat;
  int dim = -1;  // that counts samples; -1: the output is a value of the full batch, and stays as it is
  bool is_local() const { return how >= Merging::local_concat; }
};

// The patterns of the strategy's keys that an output has; several, or none.
std::vector<Merging> mergings_of(const Strategy& strategy, std::string_view output);
// For each output of a plan, in its order. An error names an output that cannot be merged as its key asks.
Result<std::vector<std::optional<OutputMerge>>> output_merges(const Plan& plan);
// Every pattern names an output of some entry.
Status check_merge_patterns(const Strategy& strategy, const std::vector<std::string>& outputs);
// The type of `count` merged samples of a batch.
TensorType merged_type(const TensorType& full, const OutputMerge& merge, int64_t batch, int64_t count);
// Of samples [first, first + count) of an output of a batch.
Tensor merge_samples(const Tensor& full, const OutputMerge& merge, int64_t batch, int64_t first, int64_t count);

}  // namespace epl
