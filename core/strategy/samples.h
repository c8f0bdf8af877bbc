// Which inputs count samples, if nobody has said it for all of them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/ir/graph.h"
#include "core/strategy/batch_cut.h"

namespace epl {

// Inputs have a dimension that counts samples by default; edges of a graph, a table, a state do not count any. If the
// sizes of the inputs disagree, `named` ones (somebody said which dimension it is) keep theirs, and others that differ
// lose it. If none is named, no input counts samples: everything is still correct, but the batch cannot be cut. Returns
// a sentence for each such decision. Named inputs that disagree are left as they are: decide refuses them.
std::vector<std::string> agree_on_samples(Graph& graph, const std::set<std::string>& named);

// For a batch size that the file does not have: no node may mix samples. If one does, the file's batch size is written
// into it. The error names the node.
Status require_independent_samples(const Graph& graph);

// Where outputs count samples, by name; those that do not are left out. Of several samples: a dimension that counts one
// cannot be told from others of size one.
using SamplePositions = std::map<std::string, CutPosition>;
Result<SamplePositions> sample_positions(const Graph& graph);

}  // namespace epl
