#include "core/program/shard_body.h"

#include <algorithm>

#include "core/ir/op.h"

namespace epl {

bool ShardCut::lacks(size_t output) const {
  return std::ranges::none_of(rule.rule.outputs[output], [&](const ShardingRule::Dim& dim) {
    return std::ranges::find(dim, factor) != dim.end();
  });
}

bool ShardCut::is_rows(const ShardingRule::Operand& dims) const {
  const ShardingRule::Operand& indexed = rule.rule.inputs[rule.row->indices];
  return indexed.size() == 1 && indexed[0].size() == 1 && !dims.empty() && dims[0] == indexed[0];
}

Shape ShardCut::beside(size_t output, const Shape& indices) const {
  const ShardingRule::Operand& indexed = rule.rule.inputs[rule.row->indices];
  Shape shape(rule.rule.outputs[output].size(), 1);
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto same = std::ranges::find(indexed, rule.rule.outputs[output][d]);
    if (same != indexed.end() && !same->empty()) shape[d] = indices[same - indexed.begin()];
  }
  return shape;
}

Shape ShardCut::beside_result(int operand, const Shape& operand_shape) const {
  const ShardingRule::Operand& result = rule.rule.outputs[0];
  const ShardingRule::Operand& added = rule.rule.inputs[operand];
  Shape shape(result.size(), 1);
  bool at_the_end = true;
  for (size_t d = 0; d < added.size(); ++d) {
    const auto same = std::ranges::find(result, added[d]);
    if (added[d].empty() || same == result.end()) continue;
    shape[same - result.begin()] = operand_shape[d];
    at_the_end = at_the_end && result.end() - same == static_cast<std::ptrdiff_t>(added.size() - d);
  }
  return at_the_end ? Shape() : shape;
}

OwnIndices own_indices(Builder& b, const Var& indices, const Var& first, int64_t rows, int64_t size, bool padded) {
  const auto within = [&](const Var& x, int64_t end) {
    return b.emit("logical_and", {x >= 0.0, x < static_cast<double>(end)});
  };
  const Var all = b.select(indices < 0.0, indices + static_cast<double>(size), indices);  // from the end
  const Var at = all - first;
  Var here = within(at, rows);
  if (padded) here = b.emit("logical_and", {here, all < static_cast<double>(size)});
  return {.indices = b.select(here, at, b.like(at, static_cast<double>(rows))),
          .elsewhere = b.emit("logical_and", {within(all, size), b.emit("logical_not", {here})})};
}

ShardCut shard_cut(const Plan& plan, NodeId id) {
  ShardCut cut;
  const NodeSharding& sharding = plan.node_shardings[id];
  if (!sharding.cut()) return cut;
  cut.rule = plan.rule(id);
  cut.factor = added_cut(cut.rule, sharding);
  if (cut.factor < 0) return cut;
  const AxisCut& made = sharding.factors[cut.factor].front();
  cut.axes = made.axes;
  cut.of = made.of;
  return cut;
}

namespace {

class Following {
 public:
  Following(Plan& plan, std::vector<int> open) : plan_(plan), graph_(*plan.graph), open_(std::move(open)) {}

  Status run() {
    for (const NodeId n : graph_.node_ids()) EPL_TRY(follow(n));
    for (const NodeId n : graph_.node_ids().reversed()) precede(n);
    return {};
  }

 private:
  // A node is cut as its operands are.
  Status follow(NodeId n) {
    const Node& node = graph_.node(n);
    NodeSharding& sharding = plan_.node_shardings[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i]) continue;
      const Sharding& lies = plan_.shardings[node.inputs[i]];
      for (size_t d = 0; d < lies.dims.size(); ++d) {
        for (const AxisCut& cut : lies.dims[d]) {
          const bool added = add(n, sharding, plan_.rule(n).rule.inputs[i], static_cast<int>(d), cut);
          // An axis of size one cuts nothing, and where it stands behind all samples there is no factor for it.
          if (!added && plan_.mesh(plan_.node_task_graph[n]).shards(cut.axes) > 1)
            return unsupported("dimension ", d, " of operand ", i, " of ", node.op->name,
                               " is cut, and this op needs it in full; leave the node out of the scope that cuts it");
        }
      }
    }
    give(n);
    return {};
  }

  bool add(NodeId n, NodeSharding& sharding, const ShardingRule::Operand& dims, int d, const AxisCut& cut) const {
    const ExtendedRule& rule = plan_.rule(n);
    const CutFactor found = factor_at(rule.rule, dims, {d, cut.outer, cut.of});
    if (!found) return false;
    const size_t f = found.factor;
    if (f < rule.added && rule.rule.factors[f].unshardable) return false;
    sharding.factors.resize(
        std::max({sharding.factors.size(), rule.added, f < rule.added ? 0 : rule.rule.factors.size()}));
    for (size_t other = 0; other < sharding.factors.size(); ++other) {
      if (other != f && find_cut(sharding.factors[other], cut.axes.front())) return false;
    }
    Cuts& cuts = sharding.factors[f];
    if (const AxisCut* known = find_cut(cuts, cut.axes.front()))
      return *known == AxisCut{cut.axes, found.outer, found.of};
    cuts.insert(std::ranges::upper_bound(cuts, found.outer, {}, &AxisCut::outer), {cut.axes, found.outer, found.of});
    return true;
  }

  OperandShardings operands_of(NodeId n) const {
    NodeSharding all = plan_.node_shardings[n];
    all.factors.resize(plan_.rule(n).rule.factors.size());
    return operand_shardings(plan_.rule(n), all);
  }

  // Sums over the batch stay pending, as those of the node itself; others are complete at once.
  void give(NodeId n) {
    const OperandShardings operands = operands_of(n);
    for (size_t o = 0; o < operands.outputs.size(); ++o) {
      Sharding& stored = plan_.shardings[graph_.node(n).outputs[o]] = operands.outputs[o];
      std::erase_if(stored.partial, [&](const Partial& p) { return std::ranges::find(open_, p.axis) == open_.end(); });
    }
  }

  // What no operand cuts is made in the shards that its users want.
  void precede(NodeId n) {
    const Node& node = graph_.node(n);
    if (node.outputs.size() != 1) return;
    const Value v = node.outputs[0];
    const Sharding* wanted = nullptr;
    std::vector<OperandShardings> users;
    for (const NodeId u : graph_.node_ids().after(n)) {
      const Node& user = graph_.node(u);
      if (std::ranges::find(user.inputs, v) != user.inputs.end()) users.push_back(operands_of(u));
      for (size_t i = 0; i < user.inputs.size(); ++i) {
        if (user.inputs[i] != v) continue;
        if (wanted && *wanted != users.back().inputs[i]) return;
        wanted_ = users.back().inputs[i];
        wanted = &wanted_;
      }
    }
    if (!wanted || wanted->dims == plan_.shardings[v].dims) return;
    NodeSharding more = plan_.node_shardings[n];
    for (size_t d = 0; d < wanted->dims.size(); ++d) {
      for (const AxisCut& cut : wanted->dims[d]) {
        if (!add(n, more, plan_.rule(n).rule.outputs[0], static_cast<int>(d), cut)) return;
      }
    }
    plan_.node_shardings[n] = std::move(more);
    give(n);
  }

  Plan& plan_;
  const Graph& graph_;
  const std::vector<int> open_;  // axes of the sums that the node leaves
  Sharding wanted_;
};

}  // namespace

Result<ShardBody> shard_body(const Plan& plan, NodeId id, const ShardCut& cut, const OperandShardings& operands) {
  const Node& node = plan.graph->node(id);
  const int task_graph = plan.node_task_graph[id];
  ShardBody body;
  auto graph = std::make_shared<Graph>();
  Builder b(*graph, node.phase);
  b.set_scope(cat(node.name, ".shards"));
  std::vector<Var> inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value v = node.inputs[i];
    body.operands.push_back(v ? graph->add_leaf(ValueKind::buffer, cat("operand", i), plan.graph->type(v)) : Value{});
    inputs.push_back(v ? b.var(body.operands.back()) : Var());
  }
  Body written(b, node.attributes, inputs, node.op->output_count());
  (cut.rule.row->body ? cut.rule.row->body : node.op->body)(written);
  EPL_TRY(b.status());
  for (const Var& result : written.outputs()) body.results.push_back(result ? result.value() : Value{});

  Plan& inner = body.plan;
  inner.graph = graph;
  EPL_ASSIGN(inner.rules, node_rules(*graph));
  inner.strategy = plan.strategy;
  inner.independent_micro_batches = plan.independent_micro_batches;
  inner.meshes = plan.meshes;
  inner.task_graphs = plan.task_graphs;
  const int values = graph->value_count(), nodes = graph->node_count();
  inner.value_task_graph.assign(values, task_graph);
  inner.node_task_graph.assign(nodes, task_graph);
  inner.node_block.assign(nodes, plan.node_block[id]);
  inner.node_cloned.assign(nodes, false);
  inner.node_shardings.resize(nodes);
  inner.shardings.resize(values);
  for (const Value v : graph->value_ids()) inner.shardings[v].dims.resize(graph->type(v).shape.size());
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i]) inner.shardings[body.operands[i]] = operands.inputs[i];
  }
  std::vector<int> open;
  for (const Sharding& output : operands.outputs) {
    for (const Partial& partial : output.partial) open.push_back(partial.axis);
  }
  EPL_TRY(Following(inner, open).run());
  return body;
}

}  // namespace epl
