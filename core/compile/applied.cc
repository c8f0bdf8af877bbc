#include "core/compile/applied.h"

#include <algorithm>
#include <set>

#include "core/program/transfer.h"
#include "core/train/train_step.h"

namespace epl {
namespace {

// By value: whether it comes of the batch. What an update chooses from the state instead does not.
std::vector<bool> of_the_batch(const Graph& graph) {
  std::vector<bool> out(static_cast<size_t>(graph.value_count()), false);
  for (Value v : graph.leaves(ValueKind::input)) out[static_cast<size_t>(v.index)] = true;
  const Value given = graph.find(gradients_given_scalar);
  for (int n = 0; n < graph.node_count(); ++n) {
    const Node& node = graph.node(NodeId{n});
    const bool chosen = given && !node.inputs.empty() && node.inputs[0] == given;  // by where
    const bool tainted =
        node.phase != Phase::update ||
        (!chosen && std::ranges::any_of(node.inputs, [&](Value v) { return v && out[static_cast<size_t>(v.index)]; }));
    for (Value v : node.outputs) {
      if (v) out[static_cast<size_t>(v.index)] = tainted;
    }
  }
  return out;
}

}  // namespace

Result<std::vector<bool>> applied_instructions(const LocalGraph& local, const Program& program) {
  const Graph& graph = local.graph;
  const std::vector<bool> tainted = of_the_batch(graph);
  std::set<std::string> left;  // state that stays as it is
  for (const Graph::Update& update : graph.updates) {
    if (!tainted[static_cast<size_t>(update.next.index)]) continue;
    const ValueInfo& state = graph.value(update.state);
    if (state.kind != ValueKind::buffer)
      return error(Code::internal, "the update of ", state.name, " needs more of the step than its gradient");
    left.insert(state.name);
  }
  std::vector<bool> out(program.instructions.size(), false);
  // State that lies elsewhere may come before.
  for (size_t i = 0; i < static_cast<size_t>(program.commit_begin); ++i) {
    const Instruction& in = program.instructions[i];
    out[i] = in.transfer && in.transfer->fetches && in.inputs[0].space == Location::Space::state;
  }
  for (size_t i = static_cast<size_t>(program.commit_begin); i < out.size(); ++i) {
    const Instruction& in = program.instructions[i];
    const bool stores = in.transfer == &transfer_named("copy") && in.outputs[0].space == Location::Space::state;
    out[i] = !stores || !left.contains(in.name);
    const bool in_place = !in.transfer && std::ranges::any_of(in.outputs, [&](const Location& at) {
      return at.space == Location::Space::state && std::ranges::any_of(program.state, [&](const StateSlot& slot) {
               return slot.offset == at.offset && left.contains(slot.name);
             });
    });
    if (in_place) return error(Code::internal, in.name, " writes state that only a batch gives");
  }
  return out;
}

}  // namespace epl
