// Where the user wants values to be cut (Scope::dims): a call of the API, or the shards of an ONNX file. The split pass
// also tries the factors that cut there, and a node takes no factor that disobeys. Pins are part of a plan's text.
#pragma once

#include <string>
#include <vector>

#include "core/strategy/batch_cut.h"
#include "core/strategy/plan.h"

namespace epl {

// Axes over which a TaskGraph cuts what counts experts, or those over which it cuts anything.
std::vector<int> split_axes(const TaskGraph& t, bool experts);

// By value: the dimension of the first pin of its TaskGraph that names the value; -1: none does. Weights and results of
// the forward pass have names. An error names the scope and the value: one that is not there, if `all` must be, that
// has no such dimension, that no ranks share out, or that the caller or other ranks get all of.
Result<ByValue<int>> pinned_dims(const Plan& plan, bool all);
// That what a plan cuts lies as its pins say.
Status check_pins(const Plan& plan, bool all);

// An operand or result of a node that is pinned.
struct PinnedOperand {
  Value value;
  bool result = false;
  size_t at = 0;  // of the node's inputs or outputs
  int dim = 0;
};
// Where the operands and results of a node lie, if it is cut in one way.
struct NodePositions {
  std::vector<CutPosition> inputs, outputs;
};
bool obeys(const NodePositions& positions, const PinnedOperand& pin);
bool obeys(const NodePositions& positions, const std::vector<PinnedOperand>& pins);
// "dimension 0 of w and dimension 1 of h".
std::string pins_text(const Graph& graph, const std::vector<PinnedOperand>& pins);
// Why a node obeys its pins in none of its `ways` over so many ranks: it can be cut nowhere as one of them says, or not
// as two say at once.
Status refused_pins(const Plan& plan, NodeId node, const std::vector<PinnedOperand>& pins,
                    const std::vector<NodePositions>& ways, int64_t ranks);

}  // namespace epl
