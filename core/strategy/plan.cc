#include "core/strategy/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/check.h"
#include "core/strategy/batch_cut.h"
#include "core/strategy/local_experts.h"
#include "core/strategy/segments.h"

namespace epl {

int64_t Plan::ranks() const {
  int last = -1;
  for (const Mesh& mesh : meshes) {
    for (int rank : mesh.device.ranks) last = std::max(last, rank);
  }
  return last + 1;
}

BatchLayout Plan::batch_of(int task_graph) const {
  if (task_graphs.empty()) return BatchLayout::over_all_axes(mesh());
  const BatchLayout& own = task_graphs[task_graph].batch;
  BatchLayout batch = own.empty() ? BatchLayout::over_all_axes(mesh(task_graph)) : own;
  if (independent_micro_batches) batch.leave_out(mesh().find(micro_batch_axis));
  return batch;
}

Cuts Plan::in_global_batch(Cuts cuts, int64_t outer) const {
  if (!independent_micro_batches) return cuts;
  const int time = mesh().find(micro_batch_axis);
  auto cut = std::ranges::find_if(cuts, [&](const AxisCut& cut) { return cut.outer >= outer; });
  if (cut != cuts.end() && cut->outer == outer) {
    cut->axes.insert(cut->axes.begin(), time);
  } else {
    cut = cuts.insert(cut, {{time}, outer});
  }
  while (++cut != cuts.end()) cut->outer *= micro_batches();
  return cuts;
}

TensorType Plan::global_type(Value v) const {
  TensorType type = graph->type(v);
  const ValueInfo& info = graph->value(v);
  const int dim = info.kind == ValueKind::input ? info.batch_dim : shardings[v].cut_dim(batch_axis);
  if (independent_micro_batches && dim >= 0) type.shape[dim] *= micro_batches();
  return type;
}

bool Plan::alone(Value v) const {
  const NodeId producer = graph->value(v).producer;
  return independent_micro_batches && producer && block_loops(node_block[producer]);
}

BatchLayout Plan::batch_of_virtual_device(int virtual_device) const {
  const Mesh& mesh = meshes[virtual_device];
  BatchLayout most;
  for (int t = 0; t < std::ssize(task_graphs); ++t) {
    if (virtual_device_of(t) != virtual_device) continue;
    BatchLayout batch = batch_of(t);
    if (most.empty() || mesh.shards(batch.cuts()) > mesh.shards(most.cuts())) most = std::move(batch);
  }
  return most.empty() ? BatchLayout::over_all_axes(mesh) : most;
}

int Plan::virtual_device_of_rank(int rank) const {
  for (int c = 0; c < virtual_devices(); ++c) {
    const auto& ranks = meshes[c].device.ranks;
    if (std::ranges::find(ranks, rank) != ranks.end()) return c;
  }
  EPL_CHECK(false, "rank ", rank, " has no task graph");
}

std::string Plan::virtual_device_name(int virtual_device) const {
  std::vector<std::string> scopes;
  for (const TaskGraph& t : task_graphs) {
    if (t.virtual_device == virtual_device) scopes.push_back(t.scope);
  }
  return join(scopes, " and ");
}

std::vector<int> Plan::stages_of(int virtual_device) const {
  std::set<int> found;
  for (const TaskGraph& t : task_graphs) {
    if (t.virtual_device == virtual_device) found.insert(t.stage);
  }
  return {found.begin(), found.end()};
}

int Plan::stages() const {
  int last = 0;
  for (const TaskGraph& t : task_graphs) last = std::max(last, t.stage);
  return last + 1;
}

BlockId Plan::block_of(NodeId node, int virtual_device) const {
  BlockId block{.kind = node_block[node]};
  if (!block_is_interleaved(block.kind)) return block;
  const int at = node_task_graph[node];
  block.stage = at == every_task_graph ? stages_of(virtual_device).front() : task_graphs[at].stage;
  return block;
}

Value Plan::representative_of(Value v) const {
  const Value representative = value_representative.empty() ? Value() : value_representative[v];
  return representative ? representative : v;
}

void find_value_task_graphs(Plan& plan) {
  const Graph& graph = *plan.graph;
  plan.value_task_graph.assign(graph.value_count(), -1);
  for (const NodeId n : graph.node_ids()) {
    const int here = std::max(plan.node_task_graph[n], 0);
    for (Value v : graph.node(n).inputs) {
      if (v && plan.value_task_graph[v] < 0) plan.value_task_graph[v] = here;
    }
    for (Value v : graph.node(n).outputs) {
      if (v) plan.value_task_graph[v] = here;
    }
  }
  std::ranges::replace(plan.value_task_graph, -1, 0);
}

namespace {

// Where a value is complete that `user` needs on another virtual device, in a block of kind `used`.
Boundary boundary_of(const Plan& plan, Value v, NodeId user, BlockKind used) {
  const Graph& graph = *plan.graph;
  const NodeId producer = graph.value(v).producer;
  Boundary found{.value = v};
  BlockKind block = plan.node_block[producer];
  const Sharding& stored = plan.shardings[v];
  const OperandShardings operands = operand_shardings(plan, producer);
  for (const Partial& partial : operands.outputs[graph.value(v).output].partial) {
    const MeshAxis& axis = plan.mesh().axes[partial.axis];
    const bool pending = std::ranges::find(stored.partial, partial) != stored.partial.end();
    if (axis.kind == MeshAxis::Kind::time && axis.size > 1 && !pending) found.late = true;
  }
  // What only the update needs is complete when it begins, and so is the mean over micro-batches. The stage of the node
  // that needs it there says nothing about when: its calls may come before the one that makes the value.
  const bool iterations_end = plan.alone(v) || (block_is_interleaved(block) && plan.micro_batches() == 1);
  if (block == BlockKind::weight || (iterations_end && used == BlockKind::post)) found.late = true;
  if (found.late) block = block == BlockKind::pre ? BlockKind::mid : BlockKind::post;
  // What `pre` computes for each micro-batch is computed again for the others.
  const bool again = block == BlockKind::pre && !found.late && stored.cut_dim(batch_axis) >= 0;
  if (again && used != BlockKind::pre) block = BlockKind::forward;
  const auto stage = [&](NodeId n) {
    const int at = std::max(plan.node_task_graph[n], 0);
    return plan.task_graphs[at].stage;
  };
  // A result of the forward pass goes down with gradients: in its own block an earlier stage would wait for it.
  if (block == BlockKind::forward && used != BlockKind::forward && stage(producer) > stage(user))
    block = BlockKind::backward;
  found.sent.kind = found.received.kind = block;
  if (!block_is_interleaved(block)) return found;
  found.sent.stage = stage(producer);
  found.received.stage = stage(user);
  return found;
}

// A virtual device gets a value once, in the first of its stages that needs it.
void add_boundary(std::vector<Boundary>& all, const Boundary& boundary) {
  const auto known = std::ranges::find_if(all, [&](const Boundary& b) {
    return b.value == boundary.value && b.to == boundary.to && b.sent == boundary.sent &&
           b.received.kind == boundary.received.kind && b.late == boundary.late;
  });
  if (known == all.end()) return all.push_back(boundary);
  int& stage = known->received.stage;
  stage = boundary.received.kind == BlockKind::forward ? std::min(stage, boundary.received.stage)
                                                       : std::max(stage, boundary.received.stage);
}

}  // namespace

void Plan::explain(NodeId node, const std::string& sentence) {
  why.resize(graph->node_count());
  std::string& text = why[node];
  text += text.empty() ? sentence : cat("; ", sentence);
}

bool is_state(ValueKind kind) {
  return kind == ValueKind::parameter || kind == ValueKind::buffer || kind == ValueKind::state;
}

std::vector<Boundary> boundaries(const Plan& plan) {
  std::vector<Boundary> found;
  if (plan.virtual_devices() < 2) return found;
  const Graph& graph = *plan.graph;
  for (const NodeId n : graph.node_ids()) {
    if (plan.node_task_graph[n] == every_task_graph) continue;
    const int to = plan.virtual_device_of(plan.node_task_graph[n]);
    for (Value v : graph.node(n).inputs) {
      if (!v || plan.virtual_device_of(v) == to) continue;
      const auto add = [&](Boundary boundary) {
        boundary.from = plan.virtual_device_of(v);
        boundary.to = to;
        add_boundary(found, boundary);
      };
      // Weights that virtual devices share are lent by the first before anything else; other leaves each has for
      // itself.
      if (!graph.value(v).producer) {
        if (is_state(graph.value(v).kind))
          add({.value = v, .sent = {0, BlockKind::once}, .received = {0, BlockKind::once}, .late = true});
        continue;
      }
      add(boundary_of(plan, v, n, plan.node_block[n]));
      // What is computed again for each micro-batch needs its operands again.
      if (plan.node_cloned.empty() || !plan.node_cloned[n]) continue;
      add(boundary_of(plan, v, n, BlockKind::forward));
    }
  }
  std::ranges::stable_sort(found, {}, [](const Boundary& b) { return std::pair(b.value, b.to); });
  return found;
}

namespace {

OperandShardings by_rule(const Plan& plan, NodeId id) {
  const Graph& graph = *plan.graph;
  const Node& node = graph.node(id);
  const NodeSharding& sharding = plan.node_shardings[id];
  // Most nodes of an optimizer: no rule is asked for.
  if (!sharding.cut() && sharding.flowing.empty() && !sharding.segments) {
    OperandShardings replicated;
    for (Value v : node.inputs)
      replicated.inputs.push_back({.dims = std::vector<Cuts>(v ? graph.type(v).shape.size() : 0)});
    for (Value v : node.outputs) replicated.outputs.push_back({.dims = std::vector<Cuts>(graph.type(v).shape.size())});
    replicated.sum_outers.assign(node.outputs.size(), 1);
    return replicated;
  }
  NodeSharding all = sharding;
  all.factors.resize(plan.rule(id).rule.factors.size());
  return operand_shardings(plan.rule(id), all);
}

bool is_owned(const Partial& partial) { return partial.kind == ShardingRule::Reduce::owner; }

}  // namespace

OperandShardings operand_shardings(const Plan& plan, NodeId id) {
  OperandShardings operands = by_rule(plan, id);
  if (plan.shardings.empty()) return operands;
  // Whoever uses rows that one rank has, and whoever makes them, works on each where it is.
  const Node& node = plan.graph->node(id);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    std::ranges::copy_if(plan.shardings[node.inputs[i]].partial, std::back_inserter(operands.inputs[i].partial),
                         is_owned);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (!node.outputs[o]) continue;
    for (const Partial& owned : plan.shardings[node.outputs[o]].partial) {
      if (!is_owned(owned)) continue;
      std::erase(operands.outputs[o].partial, Partial{owned.axis, ShardingRule::Reduce::sum});
      operands.outputs[o].partial.push_back(owned);
    }
  }
  if (const RankLocal& rank_local = plan.node_shardings[id].rank_local) {
    // What ranks have in one another's place, it takes as they have it.
    const Node& representative = plan.graph->node(NodeId{plan.node_representative[id]});
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (v && plan.shardings[v].rank_local == rank_local && plan.representative_of(v) == representative.inputs[i])
        operands.inputs[i].rank_local = rank_local;
    }
    for (Sharding& output : operands.outputs) output.rank_local = rank_local;
  }
  return operands;
}

namespace {

Status verify_meshes(const Plan& plan) {
  std::set<int> taken;
  for (int c = 0; c < plan.virtual_devices(); ++c) {
    const Mesh& mesh = plan.meshes[c];
    bool same = mesh.axes.size() == plan.mesh().axes.size();
    for (size_t a = 0; same && a < mesh.axes.size(); ++a) {
      same = mesh.axes[a].name == plan.mesh().axes[a].name && mesh.axes[a].kind == plan.mesh().axes[a].kind;
    }
    if (!same) return error(Code::internal, "the mesh of ", plan.virtual_device_name(c), " has other axes");
    if (mesh.ranks() != std::ssize(mesh.device.ranks)) {
      return error(Code::internal, plan.virtual_device_name(c), " has ", mesh.device.ranks.size(),
                   " ranks, and axes for ", mesh.ranks());
    }
    for (int rank : mesh.device.ranks) {
      if (!taken.insert(rank).second) return error(Code::internal, "rank ", rank, " is of two virtual devices");
    }
  }
  for (const TaskGraph& t : plan.task_graphs) {
    if (t.virtual_device < 0 || t.virtual_device >= plan.virtual_devices() || t.stage < 0)
      return error(Code::internal, "task graph ", t.scope, " is of virtual device ", t.virtual_device, " and stage ",
                   t.stage);
  }
  for (int t = 0; t < std::ssize(plan.task_graphs); ++t) {
    if (plan.batch_of(t).units(plan.mesh(t)) != plan.units())
      return error(Code::internal, plan.task_graphs[t].scope, " has other units");
    for (int axis : plan.task_graphs[t].split) {
      if (plan.batch_of(t).cuts_over(axis))
        return error(Code::internal, plan.task_graphs[t].scope, " cuts the batch and other things over one axis");
    }
  }
  return {};
}

Status verify_shardings(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (!plan.shardings.empty() && plan.shardings.size() != graph.value_count()) {
    return error(Code::internal, "shardings of ", plan.shardings.size(), " of ", graph.value_count(), " values");
  }
  for (const Value v : plan.shardings.ids()) {
    const ValueInfo& info = graph.value(v);
    const Sharding& sharding = plan.shardings[v];
    const Mesh& mesh = plan.mesh(plan.value_task_graph[v]);
    if (sharding.dims.size() != info.type.shape.size())
      return error(Code::internal, info.name, " has another number of dimensions");
    for (size_t d = 0; d < sharding.dims.size(); ++d) {
      int64_t before = 1;  // what the cuts so far make of it
      for (const AxisCut& cut : sharding.dims[d]) {
        int64_t shards = cut.outer;
        for (int axis : cut.axes) shards *= mesh.axes[axis].size;
        // An uneven cut is into granules, of which some shards have more than others.
        const bool uneven = cut.of > 0;
        if (uneven) shards = cut.outer * cut.of;
        const bool fits = !uneven || cut.of % mesh.shards(cut.axes) != 0;
        if (cut.axes.empty() || cut.outer % before != 0 || info.type.shape[d] % shards != 0 || !fits) {
          return error(Code::internal, info.name, ": dimension ", d, " of ", info.type.shape[d], " is cut into ",
                       shards);
        }
        before = shards;
      }
    }
  }
  return {};
}

// That the sharding of each node is one of its rule.
Status verify_factors(const Plan& plan) {
  for (const NodeId n : plan.node_shardings.ids()) {
    const Node& node = plan.graph->node(n);
    const NodeSharding& sharding = plan.node_shardings[n];
    const ExtendedRule& extended = plan.rule(n);
    const size_t found = sharding.factors.size();
    if (sharding.cut() && found != extended.rule.factors.size() && found != extended.added)
      return invalid("node ", node.name, " has ", extended.added, " factors, its sharding ", found);
    EPL_TRY(check_segments(node, extended.rule, sharding.segments));
  }
  return {};
}

// Each block is called once for every micro-batch, in ascending order: sums over them are binary counters.
Status verify_calls(const Plan& plan) {
  for (int c = 0; c < std::ssize(plan.calls); ++c) {
    const std::string name = plan.virtual_device_name(c);
    std::map<BlockId, int64_t> next;
    for (const BlockCall& call : plan.calls[c]) {
      if (!block_is_interleaved(call.block) && call.stage != 0)
        return error(Code::internal, name, " calls ", call.id().text(), ", which is of no stage");
      if (call.micro_batch != next[call.id()]++) {
        return error(Code::internal, name, " calls ", call.id().text(), " for micro-batch ", call.micro_batch,
                     " out of order");
      }
    }
    for (const auto& [block, calls] : next) {
      if (calls != (block_loops(block.kind) ? plan.micro_batches() : 1))
        return error(Code::internal, name, " calls ", block.text(), " ", calls, " times");
    }
  }
  return {};
}

// What lies in another memory is numbers that kernels give or that updates give, so that somebody can bring it there.
Status verify_memories(const Plan& plan) {
  const Graph& graph = *plan.graph;
  if (plan.value_memory.empty()) return {};
  if (plan.value_memory.size() != graph.value_count())
    return error(Code::internal, "a table by value has the wrong size");
  for (const Value v : graph.value_ids()) {
    const ValueInfo& info = graph.value(v);
    const bool may =
        info.kind == ValueKind::result || info.kind == ValueKind::parameter || info.kind == ValueKind::state;
    if (plan.value_memory[v] == MemoryKind::device || (may && is_float(info.type.dtype))) continue;
    return error(Code::internal, info.name, " lies in memory ", memory_kind_name(plan.value_memory[v]));
  }
  return {};
}

// A node runs in a block that its ranks call.
Status verify_blocks(const Plan& plan) {
  const Graph& graph = *plan.graph;
  for (int c = 0; c < plan.virtual_devices(); ++c) {
    const std::vector<BlockId> called = blocks_of(plan.calls[c]);
    for (const NodeId n : graph.node_ids()) {
      const int at = plan.node_task_graph[n];
      if (at != every_task_graph && plan.virtual_device_of(at) != c) continue;
      const BlockId block = plan.block_of(n, c);
      if (std::ranges::find(called, block) != called.end()) continue;
      return error(Code::internal, plan.virtual_device_name(c), " never calls ", block.text(), ", where node ",
                   graph.node(n).name, " is");
    }
  }
  return {};
}

}  // namespace

Status verify_plan(const Plan& plan) {
  const Graph& graph = *plan.graph;
  EPL_TRY(verify_meshes(plan));
  const auto sized = [&](int size) { return size == 0 || size == graph.node_count(); };
  if (!sized(plan.node_block.size()) || !sized(plan.node_shardings.size()) || !sized(plan.node_task_graph.size())) {
    return error(Code::internal, "a table by node has the wrong size");
  }
  for (int at : plan.node_task_graph) {
    if (at != every_task_graph && (at < 0 || at >= std::ssize(plan.task_graphs))) {
      return error(Code::internal, "a node of task graph ", at);
    }
  }
  if (!plan.task_graphs.empty() && plan.value_task_graph.size() != graph.value_count()) {
    return error(Code::internal, "a table by value has the wrong size");
  }
  EPL_TRY(verify_shardings(plan));
  EPL_TRY(verify_segments(plan));
  EPL_TRY(verify_factors(plan));
  EPL_TRY(verify_rank_local(plan));
  EPL_TRY(verify_memories(plan));
  EPL_TRY(verify_sum_forms(plan));
  EPL_TRY(verify_calls(plan));
  if (plan.calls.empty()) return {};
  const bool complete = plan.node_block.size() == graph.node_count() && !plan.shardings.empty();
  if (!complete) return error(Code::internal, "calls of blocks that have no nodes");
  if (plan.calls.size() != plan.meshes.size())
    return error(Code::internal, "calls of ", plan.calls.size(), " virtual devices");
  EPL_TRY(verify_blocks(plan));
  return verify_order(plan);
}

}  // namespace epl
