// How one node follows a cut of the batch: shared by the propagate pass, which decides, and by partition, which acts.
#pragma once

#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

struct BatchCut {
  int factor = -1;                 // the node's factor that carries the batch; -1: the node sees all of it, or none
  bool couples = false;            // it works across samples in a way that a cut cannot follow; `why` says how
  std::string why;
  std::vector<int> input_dim;      // per input: the dimension the factor stands in, -1 if it has none
  std::vector<int> output_dim;     // per output; -1: the output is a sum (or max, min) over the batch
};

Result<ShardingRule> node_rule(const Graph& graph, const Node& node);
// `cut[i]`: the dimension of input i that carries the batch, -1 for none. `wanted`: a factor to use when no input is cut.
BatchCut follow_batch(const ShardingRule& rule, const std::vector<int>& cut, int64_t units, int wanted = -1);

}  // namespace epl
