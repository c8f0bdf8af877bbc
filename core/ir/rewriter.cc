#include "core/ir/rewriter.h"

#include "core/base/check.h"

namespace epl {

GraphRewriter::GraphRewriter(const Graph& source, Graph& target)
    : source_(source), target_(target), map_(source.value_count()) {
  target_.name = source.name;
  for (int i = 0; i < source.value_count(); ++i) {
    const ValueInfo& info = source.value(Value{i});
    if (info.kind == ValueKind::result) continue;
    map_[i] = target_.add_leaf(info.kind, info.name, info.type, info.data);
    target_.value(map_[i]).batch_dim = info.batch_dim;
  }
}

Value GraphRewriter::operator[](Value old) const {
  if (!old) return {};
  EPL_CHECK(map_[old.index].index >= 0, "value ", source_.value(old).name, " was not copied");
  return map_[old.index];
}

NodeId GraphRewriter::copy(NodeId id) {
  const Node& old = source_.node(id);
  Node node = old;
  for (Value& input : node.inputs) input = (*this)[input];
  std::vector<TensorType> types;
  std::vector<std::string> names;
  for (Value output : old.outputs) {
    types.push_back(source_.type(output));
    names.push_back(source_.value(output).name);
  }
  NodeId made = target_.add_node(std::move(node), std::move(types), std::move(names));
  for (size_t i = 0; i < old.outputs.size(); ++i) map_[old.outputs[i].index] = target_.node(made).outputs[i];
  return made;
}

void GraphRewriter::finish() {
  for (const Graph::Output& output : source_.outputs) target_.outputs.push_back({output.name, (*this)[output.value]});
  for (const Graph::Update& update : source_.updates) {
    target_.updates.push_back({(*this)[update.state], (*this)[update.next]});
  }
}

Graph without_dead_nodes(const Graph& graph) {
  std::vector<bool> live(graph.value_count(), false);
  for (const Graph::Output& output : graph.outputs) live[output.value.index] = true;
  for (const Graph::Update& update : graph.updates) live[update.next.index] = true;
  std::vector<bool> keep(graph.node_count(), false);
  for (int n = graph.node_count(); n-- > 0;) {
    const Node& node = graph.node(NodeId{n});
    keep[n] = node.outputs.empty();  // it has another effect than its results
    for (Value output : node.outputs) keep[n] = keep[n] || (output && live[output.index]);
    if (!keep[n]) continue;
    for (Value input : node.inputs) {
      if (input) live[input.index] = true;
    }
  }
  Graph pruned;
  // Leaves are copied here: unused constants are dropped, everything that a user knows by name stays.
  std::vector<Value> map(graph.value_count());
  pruned.name = graph.name;
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    if (info.kind == ValueKind::result || (info.kind == ValueKind::constant && !live[i])) continue;
    map[i] = pruned.add_leaf(info.kind, info.name, info.type, info.data);
    pruned.value(map[i]).batch_dim = info.batch_dim;
  }
  for (int n = 0; n < graph.node_count(); ++n) {
    if (!keep[n]) continue;
    Node node = graph.node(NodeId{n});
    std::vector<Value> old_outputs = node.outputs;
    for (Value& input : node.inputs) input = input ? map[input.index] : Value{};
    std::vector<TensorType> types;
    std::vector<std::string> names;
    for (Value output : old_outputs) {
      types.push_back(graph.type(output));
      names.push_back(graph.value(output).name);
    }
    NodeId made = pruned.add_node(std::move(node), std::move(types), std::move(names));
    for (size_t i = 0; i < old_outputs.size(); ++i) map[old_outputs[i].index] = pruned.node(made).outputs[i];
  }
  for (const Graph::Output& output : graph.outputs) pruned.outputs.push_back({output.name, map[output.value.index]});
  for (const Graph::Update& update : graph.updates) {
    pruned.updates.push_back({map[update.state.index], map[update.next.index]});
  }
  return pruned;
}

}  // namespace epl
