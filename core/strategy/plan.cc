#include "core/strategy/plan.h"

#include <algorithm>
#include <map>

#include "core/base/check.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/segments.h"

namespace epl {

std::string_view block_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::once:
      return "once";
    case BlockKind::pre:
      return "pre";
    case BlockKind::mid:
      return "mid";
    case BlockKind::main:
      return "main";
    case BlockKind::forward:
      return "forward";
    case BlockKind::backward:
      return "backward";
    case BlockKind::post:
      return "post";
  }
  return "?";
}

std::optional<BlockKind> block_named(std::string_view name) {
  for (BlockKind kind : all_blocks) {
    if (block_name(kind) == name) return kind;
  }
  return std::nullopt;
}

bool block_loops(BlockKind kind) {
  return kind != BlockKind::once && kind != BlockKind::mid && kind != BlockKind::post;
}

bool block_takes_turns(BlockKind kind) { return kind == BlockKind::forward || kind == BlockKind::backward; }

int64_t Plan::ranks() const {
  int last = -1;
  for (const TaskGraph& t : task_graphs) {
    for (int rank : t.mesh.device.ranks) last = std::max(last, rank);
  }
  return last + 1;
}

int Plan::task_graph_of_rank(int rank) const {
  for (size_t t = 0; t < task_graphs.size(); ++t) {
    const auto& ranks = task_graphs[t].mesh.device.ranks;
    if (std::ranges::find(ranks, rank) != ranks.end()) return static_cast<int>(t);
  }
  EPL_CHECK(false, "rank ", rank, " has no task graph");
}

void find_value_task_graphs(Plan& plan) {
  const Graph& graph = *plan.graph;
  plan.value_task_graph.assign(static_cast<size_t>(graph.value_count()), -1);
  for (int n = 0; n < graph.node_count(); ++n) {
    const int here = std::max(plan.node_task_graph[static_cast<size_t>(n)], 0);
    for (Value v : graph.node(NodeId{n}).inputs) {
      if (v && plan.value_task_graph[static_cast<size_t>(v.index)] < 0) {
        plan.value_task_graph[static_cast<size_t>(v.index)] = here;
      }
    }
    for (Value v : graph.node(NodeId{n}).outputs) {
      if (v) plan.value_task_graph[static_cast<size_t>(v.index)] = here;
    }
  }
  std::ranges::replace(plan.value_task_graph, -1, 0);
}

namespace {

// Where a value is complete that a node of kind `user` in another TaskGraph needs.
Result<Boundary> boundary_of(const Plan& plan, Value v, BlockKind user) {
  const Graph& graph = *plan.graph;
  const NodeId producer = graph.value(v).producer;
  Boundary found{.value = v, .block = plan.node_block[static_cast<size_t>(producer.index)]};
  const Sharding& stored = plan.shardings[static_cast<size_t>(v.index)];
  EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan, producer));
  for (const Partial& partial : operands.outputs[static_cast<size_t>(graph.value(v).output)].partial) {
    const MeshAxis& axis = plan.mesh().axes[static_cast<size_t>(partial.axis)];
    const bool due = std::ranges::find(stored.partial, partial) != stored.partial.end();
    if (axis.kind == MeshAxis::Kind::time && axis.size > 1 && !due) found.late = true;
  }
  if (found.late) found.block = found.block == BlockKind::pre ? BlockKind::mid : BlockKind::post;
  // What `pre` computes for each micro-batch is computed again for the others.
  const bool again =
      found.block == BlockKind::pre && !found.late && stored.cut_dim(batch_axis) >= 0 && user != BlockKind::pre;
  if (again) found.block = BlockKind::forward;
  return found;
}

}  // namespace

bool is_state(ValueKind kind) {
  return kind == ValueKind::parameter || kind == ValueKind::buffer || kind == ValueKind::state;
}

Result<std::vector<Boundary>> boundaries(const Plan& plan) {
  std::vector<Boundary> found;
  if (plan.task_graphs.size() < 2) return found;
  const Graph& graph = *plan.graph;
  for (int n = 0; n < graph.node_count(); ++n) {
    const int to = plan.node_task_graph[static_cast<size_t>(n)];
    if (to == every_task_graph) continue;
    for (Value v : graph.node(NodeId{n}).inputs) {
      if (!v || plan.value_task_graph[static_cast<size_t>(v.index)] == to) continue;
      const ValueInfo& info = graph.value(v);
      // Weights that TaskGraphs share are lent by the first before anything else; other leaves each has for itself.
      Boundary boundary{.value = v, .block = BlockKind::once, .late = true};
      if (info.producer) {
        EPL_ASSIGN(boundary, boundary_of(plan, v, plan.node_block[static_cast<size_t>(n)]));
      } else if (!is_state(info.kind)) {
        continue;
      }
      boundary.from = plan.value_task_graph[static_cast<size_t>(v.index)];
      boundary.to = to;
      if (std::ranges::find(found, boundary) == found.end()) found.push_back(boundary);
    }
  }
  std::ranges::stable_sort(found, {}, [](const Boundary& b) { return std::pair(b.value.index, b.to); });
  return found;
}

Result<OperandShardings> operand_shardings(const Plan& plan, NodeId id) {
  const Graph& graph = *plan.graph;
  const Node& node = graph.node(id);
  const NodeSharding& sharding = plan.node_shardings[static_cast<size_t>(id.index)];
  if (!sharding.cut() && !sharding.segments) {  // most nodes of an optimizer: no rule is asked for
    OperandShardings whole;
    for (Value v : node.inputs) whole.inputs.push_back({.dims = std::vector<Cuts>(v ? graph.type(v).shape.size() : 0)});
    for (Value v : node.outputs) whole.outputs.push_back({.dims = std::vector<Cuts>(graph.type(v).shape.size())});
    whole.sum_outers.assign(node.outputs.size(), 1);
    return whole;
  }
  EPL_ASSIGN(const ShardingRule rule, node_rule(graph, node));
  if (sharding.cut() && sharding.factors.size() != rule.factors.size()) {
    return invalid("node ", node.name, " has ", rule.factors.size(), " factors, its sharding ",
                   sharding.factors.size());
  }
  EPL_TRY(check_segments(node, rule, sharding.segments));
  if (sharding.cut()) return operand_shardings(rule, sharding);
  return operand_shardings(rule, {.factors = std::vector<Cuts>(rule.factors.size()), .segments = sharding.segments});
}

namespace {

Status verify_meshes(const Plan& plan) {
  for (const TaskGraph& t : plan.task_graphs) {
    bool same = t.mesh.axes.size() == plan.mesh().axes.size();
    for (size_t a = 0; same && a < t.mesh.axes.size(); ++a) {
      same = t.mesh.axes[a].name == plan.mesh().axes[a].name && t.mesh.axes[a].kind == plan.mesh().axes[a].kind;
    }
    if (!same) return error(Code::internal, "the mesh of task graph ", t.scope, " has other axes");
    if (t.mesh.units() != plan.units()) return error(Code::internal, "task graph ", t.scope, " has other units");
    if (t.mesh.ranks() != static_cast<int64_t>(t.mesh.device.ranks.size())) {
      return error(Code::internal, "task graph ", t.scope, " has ", t.mesh.device.ranks.size(), " ranks, and axes for ",
                   t.mesh.ranks());
    }
  }
  return {};
}

Status verify_shardings(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (!plan.shardings.empty() && static_cast<int>(plan.shardings.size()) != graph.value_count()) {
    return error(Code::internal, "shardings of ", plan.shardings.size(), " of ", graph.value_count(), " values");
  }
  for (size_t i = 0; i < plan.shardings.size(); ++i) {
    const ValueInfo& info = graph.value(Value{static_cast<int>(i)});
    const Sharding& sharding = plan.shardings[i];
    const Mesh& mesh = plan.mesh(plan.value_task_graph[i]);
    if (sharding.dims.size() != info.type.shape.size())
      return error(Code::internal, info.name, " has another number of dimensions");
    for (size_t d = 0; d < sharding.dims.size(); ++d) {
      int64_t before = 1;  // what the cuts so far make of it
      for (const AxisCut& cut : sharding.dims[d]) {
        int64_t pieces = cut.outer;
        for (int axis : cut.axes) pieces *= mesh.axes[static_cast<size_t>(axis)].size;
        if (cut.axes.empty() || cut.outer % before != 0 || info.type.shape[d] % pieces != 0) {
          return error(Code::internal, info.name, ": dimension ", d, " of ", info.type.shape[d], " is cut into ",
                       pieces);
        }
        before = pieces;
      }
    }
  }
  return {};
}

// Each block is called once for every micro-batch, in ascending order: sums over them are binary counters.
Status verify_calls(const Plan& plan) {
  for (size_t t = 0; t < plan.calls.size(); ++t) {
    std::map<BlockKind, int64_t> next;
    for (const BlockCall& call : plan.calls[t]) {
      if (call.micro_batch != next[call.block]++) {
        return error(Code::internal, "task graph ", plan.task_graphs[t].scope, " calls ", block_name(call.block),
                     " for micro-batch ", call.micro_batch, " out of order");
      }
    }
    for (const auto& [block, calls] : next) {
      if (calls != (block_loops(block) ? plan.micro_batches() : 1)) {
        return error(Code::internal, "task graph ", plan.task_graphs[t].scope, " calls ", block_name(block), " ", calls,
                     " times");
      }
    }
  }
  return {};
}

}  // namespace

Status verify_plan(const Plan& plan) {
  const Graph& graph = *plan.graph;
  EPL_TRY(verify_meshes(plan));
  auto sized = [&](size_t size) { return size == 0 || static_cast<int>(size) == graph.node_count(); };
  if (!sized(plan.node_block.size()) || !sized(plan.node_shardings.size()) || !sized(plan.node_task_graph.size())) {
    return error(Code::internal, "a table by node has the wrong size");
  }
  for (int at : plan.node_task_graph) {
    if (at != every_task_graph && (at < 0 || at >= static_cast<int>(plan.task_graphs.size()))) {
      return error(Code::internal, "a node of task graph ", at);
    }
  }
  if (!plan.task_graphs.empty() && static_cast<int>(plan.value_task_graph.size()) != graph.value_count()) {
    return error(Code::internal, "a table by value has the wrong size");
  }
  EPL_TRY(verify_shardings(plan));
  EPL_TRY(verify_segments(plan));
  EPL_TRY(verify_calls(plan));
  if (plan.calls.empty()) return {};
  const bool complete = static_cast<int>(plan.node_block.size()) == graph.node_count() && !plan.shardings.empty();
  if (!complete) return error(Code::internal, "calls of blocks that have no nodes");
  return verify_order(plan);
}

}  // namespace epl
