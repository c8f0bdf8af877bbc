#include "core/ir/graph.h"

#include <algorithm>
#include <unordered_set>

#include "core/base/check.h"
#include "core/ir/op.h"

namespace epl {

std::string_view phase_name(Phase phase) {
  switch (phase) {
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::update:
      return "update";
  }
  return "?";
}

std::string_view value_kind_name(ValueKind kind) {
  switch (kind) {
    case ValueKind::result:
      return "result";
    case ValueKind::input:
      return "input";
    case ValueKind::parameter:
      return "param";
    case ValueKind::buffer:
      return "buffer";
    case ValueKind::state:
      return "state";
    case ValueKind::scalar:
      return "scalar";
    case ValueKind::constant:
      return "const";
  }
  return "?";
}

namespace {

// `wish`, or `wish` with the first free number behind it.
template <class Names> std::string unique_among(const Names& names, std::string name) {
  if (!names.contains(name)) return name;
  auto taken = [&](int64_t i) { return names.contains(cat(name, "_", i)); };
  int64_t i = 1;
  while (i < 64 && taken(i)) ++i;
  if (i < 64) return cat(name, "_", i);
  // Many nodes of one name: finds a free number above one that is taken.
  int64_t above = i;
  while (taken(above)) above *= 2;
  for (int64_t below = above / 2; above - below > 1;) {
    const int64_t middle = below + (above - below) / 2;
    (taken(middle) ? below : above) = middle;
  }
  return cat(name, "_", above);
}

}  // namespace

std::string Graph::unique_name(std::string_view wish) const {
  return unique_among(by_name_, std::string(wish.empty() ? "v" : wish));
}

void Graph::rename(Value v, std::string name) {
  EPL_CHECK(!by_name_.contains(name), "two values named ", name);
  by_name_.erase(value(v).name);
  by_name_[name] = v;
  value(v).name = std::move(name);
}

Value Graph::add_leaf(ValueKind kind, std::string name, TensorType type, Tensor data) {
  Value value{value_count()};
  std::string unique = unique_name(name);
  by_name_[unique] = value;
  values_.push_back({.name = std::move(unique), .type = std::move(type), .kind = kind, .data = std::move(data)});
  return value;
}

Value Graph::add_input(std::string name, TensorType type, int batch_dim) {
  Value value = add_leaf(ValueKind::input, std::move(name), std::move(type));
  values_[value].batch_dim = batch_dim;
  return value;
}

Value Graph::add_constant(std::string name, Tensor data) {
  TensorType type = data.type();
  return add_leaf(ValueKind::constant, std::move(name), std::move(type), std::move(data));
}

NodeId Graph::add_node(Node node, std::vector<TensorType> output_types, std::vector<std::string> output_names) {
  NodeId id{node_count()};
  const std::string base = node.name.empty() ? std::string(node.op->name) : node.name;
  node.name = unique_among(node_names_, base);
  node_names_.emplace(node.name, id);
  node.outputs.clear();
  for (size_t i = 0; i < output_types.size(); ++i) {
    Value value{value_count()};
    std::string wish = i < output_names.size() && !output_names[i].empty() ? output_names[i]
                       : i == 0                                            ? base
                                                                           : cat(base, ".", i);
    std::string unique = unique_name(wish);
    by_name_[unique] = value;
    values_.push_back({.name = std::move(unique),
                       .type = std::move(output_types[i]),
                       .kind = ValueKind::result,
                       .producer = id,
                       .output = static_cast<int>(i)});
    node.outputs.push_back(value);
  }
  nodes_.push_back(std::move(node));
  return id;
}

std::vector<Value> Graph::leaves(ValueKind kind) const {
  std::vector<Value> out;
  for (const Value v : value_ids()) {
    if (values_[v].kind == kind) out.push_back(v);
  }
  return out;
}

Value Graph::find(std::string_view name) const {
  auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? Value{} : it->second;
}

NodeId Graph::find_node(const std::string& name) const {
  const auto it = node_names_.find(name);
  return it == node_names_.end() ? NodeId{} : it->second;
}

ByValue<std::vector<NodeId>> Graph::users() const {
  ByValue<std::vector<NodeId>> out(value_count());
  for (const NodeId n : node_ids()) {
    for (Value input : nodes_[n].inputs) {
      if (input) out[input].push_back(n);
    }
  }
  return out;
}

namespace {

Status verify_node(const Graph& graph, NodeId id, ByValue<bool>& defined) {
  const Node& node = graph.node(id);
  std::vector<const TensorType*> inputs;
  for (Value input : node.inputs) {
    if (!input) {
      inputs.push_back(nullptr);
      continue;
    }
    if (!defined[input]) return error(Code::internal, "uses ", graph.value(input).name, " before it is computed");
    const ValueInfo& info = graph.value(input);
    if (info.kind == ValueKind::result && graph.node(info.producer).phase > node.phase) {
      return error(Code::internal, "a ", phase_name(node.phase), " node uses ", info.name, " of a later phase");
    }
    inputs.push_back(&info.type);
  }
  EPL_ASSIGN(OutputTypes types, infer_types(*node.op, node.attributes, inputs));
  if (types.size() < node.outputs.size()) return error(Code::internal, "has ", node.outputs.size(), " outputs");
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!node.outputs[i]) continue;
    if (graph.type(node.outputs[i]) != types[i]) {
      return error(Code::internal, "output ", i, " is ", graph.type(node.outputs[i]).text(), ", its op says ",
                   types[i].text());
    }
    defined[node.outputs[i]] = true;
  }
  return {};
}

}  // namespace

Status verify(const Graph& graph) {
  ByValue<bool> defined(graph.value_count(), false);
  for (const Value v : graph.value_ids()) {
    const ValueInfo& info = graph.value(v);
    if (info.kind == ValueKind::result) continue;
    defined[v] = true;
    if (!info.data.empty() && info.data.type() != info.type) {
      return error(Code::internal, info.name, " is ", info.type.text(), " but its data is ", info.data.type().text());
    }
  }
  std::unordered_set<std::string_view> names;
  for (const NodeId n : graph.node_ids()) {
    const std::string& name = graph.node(n).name;
    if (!names.insert(name).second) return error(Code::internal, "two nodes are named ", name).at(name);
    if (Status status = verify_node(graph, n, defined); !status.ok()) {
      const Node& node = graph.node(n);
      return status.with_context(cat("node ", node.name, " (", node.op->name, ")")).at(node.name);
    }
  }
  for (const Graph::Output& output : graph.outputs) {
    if (!output.value || !defined[output.value])
      return error(Code::internal, "output ", output.name, " is never computed");
  }
  for (const Graph::Update& update : graph.updates) {
    if (!update.next || !defined[update.next])
      return error(Code::internal, "the update of ", graph.value(update.state).name, " is never computed");
    if (graph.type(update.state) != graph.type(update.next)) {
      return error(Code::internal, graph.value(update.state).name, " is ", graph.type(update.state).text(),
                   " but becomes ", graph.type(update.next).text());
    }
  }
  return {};
}

}  // namespace epl
