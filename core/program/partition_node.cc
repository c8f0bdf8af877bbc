// One node of a plan as nodes of a rank, and how its results come to lie as they are stored.
#include <algorithm>
#include <utility>

#include "core/base/philox.h"
#include "core/program/batch_runs.h"
#include "core/program/partitioning.h"
#include "core/program/sum_moves.h"
#include "core/strategy/segments.h"

namespace epl {

void Partition::find_means() {
  if (!plan_.independent_micro_batches) return;
  wants_mean_.assign(now_.size(), false);
  mean_.assign(now_.size(), {});
  const auto want = [&](Value v) {
    if (v && plan_.alone(v)) wants_mean_[v] = stored(v).cut_dim(batch_axis) < 0;
  };
  for (const NodeId n : global_.node_ids()) {
    if (plan_.node_block[n] != BlockKind::post) continue;
    for (Value v : global_.node(n).inputs) want(v);
  }
  for (const Graph::Update& update : global_.updates) want(update.next);
  for (const Graph::Output& output : global_.outputs) want(output.value);
}

Status Partition::sum_over_time(NodeId n, const LocalWriter& w) {
  const Node& old = global_.node(n);
  for (Value v : old.outputs) {
    if (!v || !wants_mean(v) || !now_[v]) continue;
    const Value now = now_[v];
    const TensorType& type = local_.graph.type(now);
    if (!is_float(type.dtype)) {
      return unsupported("batch.semantics = per_micro_batch: ", global_.value(v).name, " is ", type.text(),
                         ", of which there is no mean over micro-batches")
          .at(old.name);
    }
    const Move sum{.op = "accumulate", .suffix = ".total", .type = type, .at_last_iteration = true};
    mean_[v] = w.append(sum, cat(global_.value(v).name, sum.suffix), {now}, old.phase);
  }
  return {};
}

// Where their number is a power of two, nothing is rounded.
void Partition::take_means(const LocalWriter& w) {
  if (wants_mean_.empty() || w.kind() != BlockKind::post) return;
  const auto count = static_cast<double>(mesh_.size(micro_batch_axis));
  for (const Value v : mean_.ids()) {
    if (!mean_[v]) continue;
    const Node& old = global_.node(global_.value(v).producer);
    mean_[v] = w.write(old, ".mean", [&](Builder& b) { return (b.var(mean_[v]) / count).value(); });
  }
}

// A node on its way into the local graph.
struct Partition::LocalNode {
  const Node& old;
  NodeId n;
  const LocalWriter& w;
  OperandShardings operands;
  ShardCut shards;
  Node node;                  // as it becomes
  std::vector<Value> inputs;  // global
  std::vector<TensorType> input_types, types;
  std::vector<std::string> names;
  std::optional<RowRoutes> routes;
  Value elsewhere;        // of what it gathers: which are in other shards
  bool sums = false;      // over the batch
  int64_t sum_runs = 1;   // in each of which it sums by itself
  bool by_units = false;  // each of which is a run of its own then
};

Status Partition::make_local(NodeId n, const LocalWriter& w, bool again) {
  const Node& old = global_.node(n);
  OperandShardings operands = operand_shardings(plan_, n);
  ShardCut shards = shard_cut(plan_, n);
  if (shards.by_body()) return make_local_body(n, operands, shards, w);
  LocalNode p{.old = old, .n = n, .w = w, .operands = std::move(operands), .shards = std::move(shards), .node = old};
  p.node.region = w.block();
  p.node.key = old.key_name();
  p.node.phase = w.phase(old.phase);
  if (plan_.node_task_graph[n] == every_task_graph) {
    for (Value& v : p.node.inputs) v = v && made_here(v) && plan_.representative_of(v) == v ? v : Value{};
    if (std::ranges::none_of(p.node.inputs, [](Value v) { return static_cast<bool>(v); })) return {};
  }
  p.inputs = p.node.inputs;
  EPL_TRY(take_operands(p));
  EPL_TRY(fit_to_shards(p));
  type_results(p, again);
  if (p.sums && p.sum_runs > 1) return add_for_each_run(p);
  EPL_TRY(give_results(p));
  return p.operands.added_later >= 0 ? add_later(p) : Status();
}

// Operands as the node wants them, but for the one that is added behind it.
Status Partition::take_operands(LocalNode& p) {
  const Node& old = p.old;
  const ShardCut& shards = p.shards;
  if (shards.has_indices()) {
    const auto at = static_cast<size_t>(shards.rule.row->indices);
    EPL_ASSIGN(const Value indices, operand(p.inputs[at], p.operands.inputs[at], p.node.phase, p.w));
    p.routes = routes_of(p.n, shards, p.operands, indices, p.w);
  }
  for (size_t i = 0; i < p.node.inputs.size(); ++i) {
    if (static_cast<int>(i) == p.operands.added_later) {
      p.node.inputs[i] = {};
      p.input_types.emplace_back();
      continue;
    }
    // What takes any operands takes their shards as they are stored.
    const bool as_stored = old.op->takes_any_operands && p.inputs[i];
    const Sharding& wanted = as_stored ? stored(p.inputs[i]) : p.operands.inputs[i];
    const bool is_rows =
        p.routes && static_cast<int>(i) != shards.rule.row->indices && shards.is_rows(shards.rule.rule.inputs[i]);
    auto value = alternatives(p.n) && p.inputs[i] && !p.operands.inputs[i].rank_local
                     ? handed(p.n, i, wanted, p.w)
                     : operand(p.inputs[i], wanted, p.node.phase, p.w, is_rows ? &*p.routes : nullptr);
    if (!value.ok()) return value.status().with_context(cat("operand ", i, " of node ", old.name)).at(old.name);
    p.node.inputs[i] = *value;
    if (as_stored) {
      for (const ReadPadding& read : padding_of(wanted)) {
        EPL_ASSIGN(p.node.inputs[i], unpadded(p.node.inputs[i], wanted, read, old, p.w));
      }
      EPL_ASSIGN(p.node.inputs[i], masked(p.node.inputs[i], p.inputs[i], old, p.w));
    }
    p.input_types.push_back(p.node.inputs[i] ? local_.graph.type(p.node.inputs[i]) : TensorType{});
  }
  const NodeSharding& sharding = plan_.node_shardings[p.n];
  if (!sharding.uneven()) return {};
  for (const ReadPadding& read : padding_before(global_, old, shards.rule, sharding, p.operands.inputs)) {
    Value& v = p.node.inputs[read.operand];
    if (!v) continue;
    EPL_ASSIGN(v, unpadded(v, p.operands.inputs[read.operand], read, old, p.w));
  }
  return {};
}

// What a node that works on a shard must know of it: how many it draws, where its elements, rows and windows are.
Status Partition::fit_to_shards(LocalNode& p) {
  const bool in_shards = plan_.node_shardings[p.n].cut_by(batch_axis);
  if (p.old.op->random && !in_shards && mesh_.shards(local_.batch.cuts()) > 1) {
    p.node.attributes.set(std::string(draws_in_full), true);
    if (plan_.independent_micro_batches && !p.shards.counts()) {
      EPL_TRY(count_over_time(p.w, global_, p.node));
      p.input_types.push_back(local_.graph.type(p.node.inputs.back()));
    }
  }
  if (p.shards.counts()) {
    EPL_TRY(count_on(p.w, plan_, p.node, p.shards, p.operands));
    p.input_types.push_back(local_.graph.type(p.node.inputs.back()));
  }
  if (p.shards.has_indices()) {
    Value& indices = p.node.inputs[p.shards.rule.row->indices];
    EPL_ASSIGN(p.elsewhere, own_rows(p.w, indices, p.shards, p.old));
    if (const std::string_view shared = p.shards.rule.row->shared; !shared.empty())
      p.node.attributes.set(std::string(shared), mesh_.shards(p.shards.axes));
  }
  if (!p.shards.slides()) return {};
  EPL_TRY(reach_over(p.w, global_, p.n, p.node, p.shards));
  for (size_t i = 0; i < p.node.inputs.size(); ++i) {
    if (p.node.inputs[i]) p.input_types[i] = local_.graph.type(p.node.inputs[i]);
  }
  return {};
}

// Types and names of what it gives, and the order of its sums.
void Partition::type_results(LocalNode& p, bool again) {
  const BatchLayout batch = plan_.batch_of(std::max(plan_.node_task_graph[p.n], 0));
  p.sum_runs = batch.runs(mesh_);
  int64_t units = batch.units_of_run(mesh_), sum_outer = 1;
  for (size_t o = 0; o < p.old.outputs.size(); ++o) {
    const Value v = p.old.outputs[o];
    p.types.push_back(local_type(mesh_, global_.type(v), p.operands.outputs[o]));
    p.names.push_back(again ? cat(global_.value(v).name, ".again") : global_.value(v).name);
    const auto is_pending = [&](int axis) {
      const std::vector<Partial>& pending = p.operands.outputs[o].partial;
      return std::ranges::find(pending, axis, &Partial::axis) != pending.end();
    };
    if (!is_pending(batch_axis) && !is_pending(mesh_.find(unit_axis))) continue;
    p.sums = true;
    sum_outer = p.operands.sum_outers[o];
    if (!is_pending(batch_axis)) units = batch.units(mesh_);  // of samples that have come from all ranks
  }
  // Units that are rounded one by one are summed one by one.
  const auto of_units = [&](Value v) { return v && plan_.sum_form(v).of_units; };
  if (p.sums && p.shards.factor < 0 && units > 1 && std::ranges::any_of(p.old.outputs, of_units)) {
    p.sum_runs *= std::exchange(units, 1);
    p.by_units = true;
  }
  // The order of a sum over one unit is that of its positions, wherever the batch lies.
  if (p.sums) p.node.units = {units, units > 1 ? sum_outer : 1};
  const NodeSharding& sharding = plan_.node_shardings[p.n];
  if (const int64_t count = local_segments(mesh_, sharding); count > 1)
    p.node.units = {count, p.operands.segment_outer};
  if (p.sums && p.sum_runs > 1) return;  // each run has shapes of its own
  if (p.old.op->localize &&
      std::ranges::any_of(sharding.factors, [&](const Cuts& cuts) { return mesh_.shards(cuts) > 1; }))
    p.old.op->localize(p.node.attributes, p.input_types, p.types);
}

Status Partition::give_results(LocalNode& p) {
  const NodeId made = local_.graph.add_node(std::move(p.node), p.types, p.names);
  for (size_t o = 0; o < p.old.outputs.size(); ++o) {
    const Value v = p.old.outputs[o];
    Value given = local_.graph.node(made).outputs[o];
    if (p.shards.slides() && static_cast<int>(o) == p.shards.rule.row->halo.numbers_result) {
      EPL_ASSIGN(given, numbered(p.w, global_, given, p.n, p.shards));
    }
    if (p.elsewhere && p.shards.lacks(o) && p.routes && p.shards.is_rows(p.shards.rule.rule.outputs[o])) {
      EPL_ASSIGN(const bool back, give_back(v, given, p.operands.outputs[o], *p.routes, p.old, p.w));
      if (back) continue;
    }
    if (p.elsewhere && p.shards.lacks(o)) given = zero_elsewhere(p.w, given, p.elsewhere, p.shards, o, p.old);
    EPL_TRY(store(v, {given}, p.operands.outputs[o], p.old, p.w));
  }
  return {};
}

// The operand that each rank adds once to a sum that is complete.
Status Partition::add_later(const LocalNode& p) {
  const auto i = static_cast<size_t>(p.operands.added_later);
  EPL_ASSIGN(Value added, operand(p.inputs[i], p.operands.inputs[i], p.w.phase(p.old.phase), p.w));
  const Shape shape = p.shards.beside_result(p.operands.added_later, local_.graph.type(added).shape);
  if (!shape.empty())
    added = p.w.write(p.old, ".beside", [&](Builder& b) { return b.reshape(b.var(added), shape).value(); });
  Value& sum = now_[p.old.outputs[0]];
  const Move add{.op = "add", .suffix = ".complete", .type = local_.graph.type(sum)};
  sum = p.w.append(add, cat(global_.value(p.old.outputs[0]).name, add.suffix), {sum, added}, p.old.phase);
  return {};
}

Status Partition::add_for_each_run(const LocalNode& p) {
  const Node& old = p.old;
  const int axis = p.by_units ? mesh_.find(unit_axis) : batch_axis;
  const int64_t inside = p.by_units ? mesh_.axes[axis].size : 1;
  std::vector<std::vector<Value>> results(old.outputs.size());
  for (int64_t run = 0; run < p.sum_runs; ++run) {
    Node one = p.node;
    one.name = cat(old.name, ".run", run);
    std::vector<TensorType> input_types, run_types = p.types;
    std::vector<std::string> names;
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      Value& v = one.inputs[i];
      const int dim = v && i < p.operands.inputs.size() ? p.operands.inputs[i].cut_dim(axis) : -1;
      if (dim >= 0) {
        const Cuts& cuts = p.operands.inputs[i].dims[dim];
        if (!has_runs(mesh_, cuts, p.sum_runs, inside))
          return unsupported("operand ", i, " of node ", old.name, " does not have the units of the batch side by side")
              .at(old.name);
        for (const Move& move : take_run(mesh_, local_.graph.type(v), cuts, dim, p.sum_runs, run, inside))
          v = p.w.append(move, cat(old.name, move.suffix), {v}, old.phase);
      }
      input_types.push_back(v ? local_.graph.type(v) : TensorType{});
    }
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      const int dim = p.operands.outputs[o].cut_dim(axis);
      if (dim >= 0) run_types[o].shape[dim] /= p.sum_runs;
      names.push_back(cat(global_.value(old.outputs[o]).name, ".run", run));
    }
    if (old.op->localize) old.op->localize(one.attributes, input_types, run_types);
    const NodeId made = local_.graph.add_node(std::move(one), run_types, names);
    for (size_t o = 0; o < old.outputs.size(); ++o)
      results[o].push_back(part(old.outputs[o], local_.graph.node(made).outputs[o], old, p.w));
  }
  for (size_t o = 0; o < old.outputs.size(); ++o) {
    const Sharding& given = p.operands.outputs[o];
    if (given.cut_dim(axis) < 0) {
      EPL_TRY(store(old.outputs[o], results[o], given, old, p.w));
    } else {
      EPL_TRY(store(old.outputs[o], {p.w.join(results[o], given, old, axis, inside)}, given, old, p.w));
    }
  }
  return {};
}

// Rounded at once, so that not all parts are in memory with all their bits.
Value Partition::part(Value global, Value local, const Node& old, const LocalWriter& w) const {
  const SumForm form = plan_.sum_form(global);
  const TensorType type = local_.graph.type(local);
  if (!form || type.dtype == form.type) return local;
  return w.append(moves_in_form(form, type, {}).parts, std::string(local_.graph.value(local).name), local, old.phase);
}

// Of runs that follow each other, those that the batch layout takes for one.
std::vector<Value> Partition::with_units_added(const std::vector<Value>& runs, const BatchLayout& batch,
                                               const Node& old, const LocalWriter& w) const {
  const auto units = std::ssize(runs) / batch.runs(mesh_);
  if (units <= 1) return runs;
  std::vector<Value> sums;
  for (auto first = runs.begin(); first != runs.end(); first += units)
    sums.push_back(w.sum(std::vector<Value>(first, first + units), cat(old.name, ".of_units"), old.phase));
  return sums;
}

Status Partition::store(Value global, std::vector<Value> runs, const Sharding& given, const Node& old,
                        const LocalWriter& w) {
  const BatchLayout batch = batch_of(global);
  auto resharding = reshard(mesh_, batch, global_.type(global), given, stored(global));
  if (!resharding.ok()) return resharding.status().with_context(cat("result of node ", old.name)).at(old.name);
  std::vector<Move> moves = *std::move(resharding);
  if (const SumForm form = plan_.sum_form(global)) {
    for (Value& v : runs) v = part(global, v, old, w);
    const TensorType wide{global_.type(global).dtype, local_.graph.type(runs[0]).shape};
    moves = moves_in_form(form, wide, std::move(moves)).rest;
  }
  if (runs.size() > 1) runs = with_units_added(runs, batch, old, w);
  const BlockKind next = w.kind() == BlockKind::pre ? BlockKind::mid : BlockKind::post;
  if (runs.size() > 1 && !batch.loops_in_runs(mesh_))
    runs = {w.sum(runs, cat(global_.value(global).name, ".summed"), old.phase)};
  bool ended = false;
  for (const Move& move : moves) {
    if (ended) {
      waiting_.push_back({global, {move}, {}, old.phase, next});
      continue;
    }
    for (Value& v : runs) v = w.append(move, cat(local_.graph.value(v).name, move.suffix), {v}, old.phase);
    ended = move.at_last_iteration;
    if (ended && runs.size() > 1) waiting_.push_back({global, {}, runs, old.phase, next});
  }
  if (!ended && runs.size() > 1)
    return unsupported("node ", old.name, " sums over the batch, and the sum stays pending over micro-batches")
        .at(old.name);
  now_[global] = runs[0];
  return {};
}

void Partition::carry_on(const LocalWriter& w) {
  for (const Waiting& late : waiting_) {
    if (late.block != w.kind()) continue;
    Value& now = now_[late.global];
    if (late.move) {
      now = w.append(*late.move, cat(local_.graph.value(now).name, late.move->suffix), {now}, late.phase);
    } else {
      now = w.sum(late.runs, cat(global_.value(late.global).name, ".summed"), late.phase);
    }
  }
}

}  // namespace epl
