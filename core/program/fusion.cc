#include "core/program/fusion.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/check.h"
#include "core/ir/op.h"
#include "core/ir/rewriter.h"
#include "core/ir/sums.h"
#include "core/program/region_writer.h"

namespace epl {
namespace {

// Beyond these a region gains little and its kernel's working set leaves the first-level cache.
constexpr int max_inputs = 24;
constexpr int max_instructions = 64;
constexpr int max_outputs = 8;
// Nodes farther apart stay separate: joining them would keep the operands of the first alive until the second.
constexpr int max_distance = 48;

bool same_attributes(const Node& a, const Node& b) {
  return std::ranges::equal(a.attributes.entries(), b.attributes.entries(), [](const auto& x, const auto& y) {
    return x.name == y.name && identical(x.value, y.value);
  });
}

// A set of nodes that will be one fused node; at first every node is alone in its own.
struct Group {
  std::vector<int> members;  // node indices, ascending
  bool elementwise = false;
  Shape shape;  // of every output
  // The one floating type, that of 16 bits being computed as float32; none when all operands are truth values.
  std::optional<DType> real;
  bool joins = false;  // may grow: real and truth values only
  int instructions = 0;
  std::vector<int> reductions;  // of results; members as well
};

class Fuser {
 public:
  Fuser(const Graph& graph, const KernelTable* kernels, RegionNodes* regions)
      : graph_(graph), kernels_(kernels), regions_(regions), users_(graph.users()), kept_(graph.value_count()) {
    for (const Graph::Output& output : graph.outputs) kept_[output.value] = true;
    for (const Graph::Update& update : graph.updates) kept_[update.next] = true;
  }

  Graph run() {
    for (int n = 0; n < graph_.node_count(); ++n) {
      groups_.push_back(single(n));
      group_of_.push_back(n);
      position_.push_back(n);
      order_.push_back(n);
    }
    for (int n = 0; n < graph_.node_count(); ++n) {
      // A copy: joining changes who the members are, but not what this node uses.
      const std::vector<Value> inputs = graph_.node(NodeId{n}).inputs;
      for (Value input : inputs) {
        if (input && graph_.value(input).producer)
          try_join(group_of_[graph_.value(input).producer.index], group_of_[n]);
      }
    }
    for (int n = 0; n < graph_.node_count(); ++n) try_join_reduction(n);
    return write();
  }

 private:
  Group single(int n) {
    const Node& node = graph_.node(NodeId{n});
    Group group{.members = {n}};
    group.elementwise = node.op->elementwise() && !node.op->random && !node.outputs.empty();
    if (!group.elementwise) return group;
    group.shape = graph_.type(node.outputs[0]).shape;
    group.joins = true;
    const auto note = [&](DType type) {
      if (type == DType::boolean) return;
      const DType computed = type_of_sums(type);
      if (!is_float(type) || !takes(type) || (group.real && *group.real != computed)) group.joins = false;
      if (is_float(type)) group.real = computed;
    };
    for (Value output : node.outputs) {
      if (output) note(graph_.type(output).dtype);
    }
    const bool from_integer =
        node.op->moves == Moves::converted && group.real && is_integer(graph_.type(node.inputs[0]).dtype);
    for (Value input : node.inputs) {
      if (input && !from_integer) note(graph_.type(input).dtype);
    }
    for (const auto& instruction : expression_of(graph_, node).code) {
      group.instructions += instruction.op != ScalarOp::input && instruction.op != ScalarOp::constant;
    }
    return group;
  }

  // Whether the kernels for regions compute with this type, asked with the smallest possible region.
  bool takes(DType type) {
    std::optional<bool>& taken = taken_[static_cast<size_t>(type)];
    if (!taken) taken = !kernels_ || asked(type);
    return *taken;
  }
  bool asked(DType type) const {
    KernelQuery smallest;
    smallest.op = fused_op;
    smallest.attributes = {{"expression", "x0; neg(%0) -> %1"}, {"types", ""}};
    smallest.input_types = smallest.output_types = {TensorType{type, {1}}};
    smallest.input_present = smallest.output_present = {true};
    return kernels_->choose(smallest).row != nullptr;
  }

  // Whether nothing but members of the two groups uses the value.
  bool inner(Value value, int a, int b) const {
    if (kept_[value]) return false;
    for (const NodeId user : users_[value]) {
      if (group_of_[user.index] != a && group_of_[user.index] != b) return false;
    }
    return true;
  }

  bool fits(int a, int b) const {
    if (groups_[a].instructions + groups_[b].instructions > max_instructions) return false;
    std::vector<Value> inputs;
    int outputs = 0;
    for (int group : {a, b}) {
      for (int n : groups_[group].members) {
        const Node& node = graph_.node(NodeId{n});
        for (Value output : node.outputs) outputs += output && !inner(output, a, b);
        for (Value input : node.inputs) {
          if (!input || std::ranges::find(inputs, input) != inputs.end()) continue;
          const NodeId producer = graph_.value(input).producer;
          if (producer && (group_of_[producer.index] == a || group_of_[producer.index] == b)) continue;
          inputs.push_back(input);
        }
      }
    }
    return outputs <= max_outputs && static_cast<int>(inputs.size()) <= max_inputs;
  }

  // Groups that a group takes operands from.
  template <class F> void for_sources(int group, F f) const {
    for (int n : groups_[group].members) {
      for (Value input : graph_.node(NodeId{n}).inputs) {
        if (!input || !graph_.value(input).producer) continue;
        const int source = group_of_[graph_.value(input).producer.index];
        if (source != group) f(source);
      }
    }
  }

  // A send or a receive, which has no result or no operand.
  bool crosses(int group) const {
    const Node& node = graph_.node(NodeId{groups_[group].members[0]});
    return node.op->boundary && (node.inputs.empty() || node.outputs.empty());
  }

  void try_join(int first, int second) {
    if (first == second) return;
    const Group &a = groups_[first], &b = groups_[second];
    const Node &na = graph_.node(NodeId{a.members[0]}), &nb = graph_.node(NodeId{b.members[0]});
    if (!a.elementwise || !b.elementwise || !a.joins || !b.joins || a.shape != b.shape) return;
    if (na.phase != nb.phase || na.region != nb.region || (a.real && b.real && *a.real != *b.real)) return;
    if (fits(first, second) && bring_together(first, second)) join(first, second);
  }

  // A reduction of what a region computes joins it, where a kernel does both at once. Reductions of a region are all of
  // the same axes.
  void try_join_reduction(int n) {
    const Node& node = graph_.node(NodeId{n});
    if (node.op->with_region.empty() || !graph_.value(node.inputs[0]).producer) return;
    const int region = group_of_[graph_.value(node.inputs[0]).producer.index];
    const Group& group = groups_[region];
    const Node& made = graph_.node(NodeId{group.members[0]});
    const TensorType& type = graph_.type(node.inputs[0]);
    if (!group.elementwise || !group.joins || type.shape != group.shape || !is_float(type.dtype)) return;
    if (made.phase != node.phase || made.region != node.region || has_own_kernel(group)) return;
    if (!group.reductions.empty()) {
      const Node& other = graph_.node(NodeId{group.reductions[0]});
      if (other.op != node.op || !same_attributes(other, node) || other.units != node.units) return;
    }
    if (!fits(region, n) || !takes_reduction(node) || !bring_together(region, n)) return;
    std::vector<int> reductions = group.reductions;
    reductions.push_back(n);
    Group joined = group;
    join(region, n);
    Group& now = groups_[n];
    now.elementwise = now.joins = true;
    now.shape = std::move(joined.shape);
    now.real = joined.real;
    now.reductions = std::move(reductions);
  }

  bool takes_reduction(const Node& node) const {
    if (!kernels_) return true;
    KernelQuery smallest;
    smallest.op = node.op->with_region;
    smallest.attributes = node.attributes;
    smallest.attributes.set("expression", std::string("x0; neg(%0) -> %1"));
    smallest.attributes.set("types", std::string());
    smallest.attributes.set("sums", int64_t{1});
    smallest.input_types = {graph_.type(node.inputs[0])};
    smallest.output_types = {graph_.type(node.outputs[0])};
    smallest.input_present = smallest.output_present = {true};
    smallest.units = node.units;
    return kernels_->choose(smallest).row != nullptr;
  }

  // Moves the first group behind what lies between the two, and what depends on it behind the second. False, with
  // nothing moved, where that cannot be.
  bool bring_together(int first, int second) {
    // What lies between the two and depends on the first must run after both; nothing of it may lead to the second.
    const int from = position_[first], to = position_[second];
    std::vector<int> before, after;
    const auto is_after = [&](int group) { return group == first || std::ranges::find(after, group) != after.end(); };
    for (int at = from + 1; at < to; ++at) {
      if (order_[at] < 0) continue;
      bool dependent = false;
      for_sources(order_[at], [&](int source) { dependent = dependent || is_after(source); });
      (dependent ? after : before).push_back(order_[at]);
      if (before.size() + after.size() > max_distance) return false;
    }
    // What goes to other ranks and comes from them keeps its order.
    if (std::ranges::any_of(before, [&](int g) { return crosses(g); }) &&
        std::ranges::any_of(after, [&](int g) { return crosses(g); })) {
      return false;
    }
    bool cycle = false;
    for_sources(second, [&](int source) { cycle = cycle || (source != first && is_after(source)); });
    if (cycle) return false;
    // What is left of the stretch is packed at its end.
    int at = to - static_cast<int>(before.size() + after.size());
    std::fill(order_.begin() + from, order_.begin() + at, -1);
    const auto append = [&](int group) {
      order_[at] = group;
      position_[group] = at++;
    };
    for (int group : before) append(group);
    append(second);
    for (int group : after) append(group);
    return true;
  }

  void join(int first, int second) {
    Group &a = groups_[first], &b = groups_[second];
    for (int n : a.members) group_of_[n] = second;
    std::vector<int> members;
    std::ranges::merge(a.members, b.members, std::back_inserter(members));
    b.members = std::move(members);
    b.instructions += a.instructions;
    if (!b.real) b.real = a.real;
    a = {};
  }

  Graph write() {
    Graph target;
    GraphRewriter now(graph_, target);
    for (int group : order_) {
      if (group < 0) continue;
      if (groups_[group].elementwise && !has_own_kernel(groups_[group])) {
        write_fused(group, now, target);
      } else {
        now.copy(NodeId{groups_[group].members[0]});
      }
    }
    now.finish();
    return without_dead_nodes(target);
  }

  bool has_own_kernel(const Group& group) const {
    if (!kernels_ || group.members.size() != 1) return false;
    const Node& node = graph_.node(NodeId{group.members[0]});
    const Value first = !node.inputs.empty() && node.inputs[0] ? node.inputs[0] : node.outputs[0];
    return kernels_->takes(node.op->name, graph_.type(first).dtype);
  }

  void write_fused(int group, GraphRewriter& now, Graph& target);

  const Graph& graph_;
  const KernelTable* kernels_;
  RegionNodes* regions_;
  ByValue<std::vector<NodeId>> users_;
  std::array<std::optional<bool>, dtype_count> taken_;  // by type
  ByValue<bool> kept_;                                  // the graph's outputs and updates
  std::vector<Group> groups_;                           // by the node they began with
  std::vector<int> group_of_;                           // of a node
  std::vector<int> order_;     // groups in an order in which they can run, -1 where one has gone
  std::vector<int> position_;  // of a group in order_
};

void Fuser::write_fused(int index, GraphRewriter& now, Graph& target) {
  const Group& group = groups_[index];
  const Node& last = graph_.node(NodeId{group.members.back()});
  const auto reduces = [&](int n) { return std::ranges::find(group.reductions, n) != group.reductions.end(); };
  RegionWriter writer(graph_, group.members, group.shape);
  for (int n : group.members) {
    if (!reduces(n)) writer.add(graph_.node(NodeId{n}));
  }
  std::vector<Value> outputs;
  std::vector<TensorType> types;
  std::vector<std::string> names;
  std::string type_names;
  const auto give = [&](Value result, Value output) {
    writer.give(result);
    outputs.push_back(output);
    types.push_back(graph_.type(output));
    names.push_back(graph_.value(output).name);
    type_names += cat(type_names.empty() ? "" : ",", dtype_name(types.back().dtype));
  };
  for (int n : group.members) {
    if (reduces(n)) continue;
    for (Value output : graph_.node(NodeId{n}).outputs) {
      if (!output || (inner(output, index, index) && !(n == group.members.back() && outputs.empty()))) continue;
      give(output, output);
    }
  }
  for (int n : group.reductions) give(graph_.node(NodeId{n}).inputs[0], graph_.node(NodeId{n}).outputs[0]);
  const ScalarExpr expression = writer.finish();
  const bool copies = expression.code.size() == 1 && expression.code[0].op == ScalarOp::input;
  if (copies && group.reductions.empty() && outputs.size() == 1 && !kept_[outputs[0]] &&
      graph_.type(writer.inputs()[0]) == types[0]) {
    now.set(outputs[0], now[writer.inputs()[0]]);  // an identity
    return;
  }
  const DType first = graph_.type(writer.inputs()[0]).dtype;
  if (std::ranges::all_of(types, [&](const TensorType& type) { return type.dtype == first; })) type_names.clear();
  Node fused{
      .name = last.name, .op = &op_named(fused_op), .phase = last.phase, .units = last.units, .region = last.region};
  for (Value input : writer.inputs()) fused.inputs.push_back(now[input]);
  if (!group.reductions.empty()) {
    const Node& reduction = graph_.node(NodeId{group.reductions[0]});
    fused.op = &op_named(reduction.op->with_region);
    fused.attributes = reduction.attributes;
    fused.attributes.set("sums", static_cast<int64_t>(group.reductions.size()));
    fused.units = reduction.units;
  }
  fused.attributes.set("expression", expression.text());
  fused.attributes.set("types", type_names);
  if (regions_) {
    std::vector<DoneNode>& nodes = (*regions_)[fused.name] = writer.nodes();
    for (int n : group.reductions) {
      const Node& node = graph_.node(NodeId{n});
      nodes.push_back({node.name, node.op->name, node.source});
    }
  }
  const NodeId made = target.add_node(std::move(fused), std::move(types), std::move(names));
  for (size_t i = 0; i < outputs.size(); ++i) now.set(outputs[i], target.node(made).outputs[i]);
}

}  // namespace

Graph fuse_elementwise(const Graph& graph, const KernelTable* kernels, RegionNodes* regions) {
  return Fuser(graph, kernels, regions).run();
}

}  // namespace epl
