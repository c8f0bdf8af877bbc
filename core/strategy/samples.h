// Which inputs count samples, where nobody has said so of all of them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "core/ir/graph.h"

namespace epl {

// Inputs have a dimension that counts samples by default; edges of a graph, a table, a state do not count any. Where
// the sizes of the inputs disagree, those that are `named` (somebody said which dimension it is) keep theirs, and the
// others that differ lose it; where none is named, no input counts samples: everything is still right, but the batch
// cannot be cut. Returns a sentence for each such decision. Named inputs that disagree are left as they are: make_plan
// refuses them.
std::vector<std::string> agree_on_samples(Graph& graph, const std::set<std::string>& named);

// For a batch that the file does not have: no node may mix samples, which shows where the file's batch is baked into
// it. The error names the node.
Status samples_stay_apart(const Graph& graph);

}  // namespace epl
