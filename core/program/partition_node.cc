// One node of a plan as nodes of a rank, and how its results come to lie as they are stored.
#include <algorithm>

#include "core/base/philox.h"
#include "core/program/lanes.h"
#include "core/program/partitioning.h"
#include "core/strategy/segments.h"

namespace epl {

void Partition::find_means() {
  if (!plan_.apart) return;
  wants_mean_.assign(now_.size(), false);
  mean_.assign(now_.size(), {});
  const auto want = [&](Value v) {
    if (v && plan_.alone(v)) wants_mean_[static_cast<size_t>(v.index)] = stored(v).cut_dim(batch_axis) < 0;
  };
  for (int n = 0; n < global_.node_count(); ++n) {
    if (plan_.node_block[static_cast<size_t>(n)] != BlockKind::post) continue;
    for (Value v : global_.node(NodeId{n}).inputs) want(v);
  }
  for (const Graph::Update& update : global_.updates) want(update.next);
  for (const Graph::Output& output : global_.outputs) want(output.value);
}

Status Partition::sum_over_time(int n, int block) {
  const Node& old = global_.node(NodeId{n});
  for (Value v : old.outputs) {
    if (!v || !wants_mean(v) || !now_[static_cast<size_t>(v.index)]) continue;
    const Value now = now_[static_cast<size_t>(v.index)];
    const TensorType& type = local_.graph.type(now);
    if (!is_float(type.dtype)) {
      return unsupported("batch.semantics = per_micro_batch: ", global_.value(v).name, " is ", type.text(),
                         ", of which there is no mean over micro-batches")
          .at(old.name);
    }
    const Move sum{.op = "accumulate", .suffix = ".total", .type = type, .at_last_turn = true};
    mean_[static_cast<size_t>(v.index)] = append(sum, cat(global_.value(v).name, sum.suffix), {now}, old.phase, block);
  }
  return {};
}

// Where their number is a power of two, nothing is rounded.
void Partition::take_means(int block) {
  if (wants_mean_.empty() || kind(block) != BlockKind::post) return;
  const auto count = static_cast<double>(mesh_.size(micro_batch_axis));
  for (size_t i = 0; i < mean_.size(); ++i) {
    if (!mean_[i]) continue;
    const Node& old = global_.node(global_.value(Value{static_cast<int>(i)}).producer);
    mean_[i] = write(old, ".mean", block, [&](Builder& b) { return (b.var(mean_[i]) / count).value(); });
  }
}

Status Partition::place(int n, int block, bool again) {
  const Node& old = global_.node(NodeId{n});
  EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan_, NodeId{n}));
  EPL_ASSIGN(const PieceCut pieces, piece_cut(plan_, NodeId{n}));
  const Cuts batch = plan_.batch_of(std::max(plan_.node_task_graph[static_cast<size_t>(n)], 0));
  const int64_t lanes = mesh_.lanes(batch);
  int64_t units = mesh_.units_of_lane(batch);
  if (pieces.by_body()) return place_body(n, operands, pieces, block);
  Node node = old;
  node.region = block;
  std::vector<TensorType> input_types, types;
  std::vector<std::string> names;
  if (plan_.node_task_graph[static_cast<size_t>(n)] == every_task_graph) {
    for (Value& v : node.inputs) v = v && made_here(v) && plan_.leader_of(v) == v ? v : Value{};
    if (std::ranges::none_of(node.inputs, [](Value v) { return static_cast<bool>(v); })) return {};
  }
  const std::vector<Value> inputs = node.inputs;
  const int later = operands.added_later;
  std::optional<Routes> routes;
  if (pieces.picks()) {
    const auto at = static_cast<size_t>(pieces.rule.row->indices);
    EPL_ASSIGN(const Value indices, operand(inputs[at], operands.inputs[at], old.phase, block));
    routes = routes_of(n, pieces, operands, indices, block);
  }
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (static_cast<int>(i) == later) {
      node.inputs[i] = {};
      input_types.emplace_back();
      continue;
    }
    // What takes any operands takes their pieces as they are stored.
    const Sharding& wanted = old.op->takes_any_operands && inputs[i] ? stored(inputs[i]) : operands.inputs[i];
    const bool is_rows =
        routes && static_cast<int>(i) != pieces.rule.row->indices && pieces.is_rows(pieces.rule.rule.inputs[i]);
    auto value = dealt_like(n) && inputs[i] && !operands.inputs[i].dealt
                     ? handed(n, i, wanted, block)
                     : operand(inputs[i], wanted, old.phase, block, is_rows ? &*routes : nullptr);
    if (!value.ok()) return value.status().with_context(cat("operand ", i, " of node ", old.name)).at(old.name);
    node.inputs[i] = *value;
    if (old.op->takes_any_operands && inputs[i]) {
      for (const ReadPadding& read : padding_of(wanted)) {
        EPL_ASSIGN(node.inputs[i], unpadded(node.inputs[i], wanted, read, old, block));
      }
      EPL_ASSIGN(node.inputs[i], masked(node.inputs[i], inputs[i], old, block));
    }
    input_types.push_back(node.inputs[i] ? local_.graph.type(node.inputs[i]) : TensorType{});
  }
  const NodeSharding& sharding = plan_.node_shardings[static_cast<size_t>(n)];
  if (sharding.uneven()) {
    for (const ReadPadding& read : padding_before(global_, old, pieces.rule, sharding, operands.inputs)) {
      Value& v = node.inputs[read.operand];
      if (!v) continue;
      EPL_ASSIGN(v, unpadded(v, operands.inputs[read.operand], read, old, block));
    }
  }
  const bool in_pieces = sharding.cut_by(batch_axis);
  if (old.op->random && !in_pieces && mesh_.pieces(local_.batch) > 1) {
    node.attributes.set(std::string(draws_in_full), true);
    if (plan_.apart && !pieces.counts()) {
      EPL_TRY(count_over_time(node, block));
      input_types.push_back(local_.graph.type(node.inputs.back()));
    }
  }
  Value elsewhere;
  if (pieces.counts()) {
    EPL_TRY(count_on(node, pieces, operands, block));
    input_types.push_back(local_.graph.type(node.inputs.back()));
  }
  if (pieces.picks()) {
    Value& picks = node.inputs[static_cast<size_t>(pieces.rule.row->indices)];
    EPL_ASSIGN(elsewhere, own(picks, pieces, old, block));
    if (const std::string_view shared = pieces.rule.row->shared; !shared.empty())
      node.attributes.set(std::string(shared), mesh_.pieces(pieces.axes));
  }
  if (pieces.slides()) {
    EPL_TRY(reach_over(n, node, pieces, block));
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i]) input_types[i] = local_.graph.type(node.inputs[i]);
    }
  }
  int64_t sum_outer = 1;
  bool sums = false;
  for (size_t o = 0; o < old.outputs.size(); ++o) {
    const Value v = old.outputs[o];
    types.push_back(local_type(mesh_, global_.type(v), operands.outputs[o]));
    names.push_back(again ? cat(global_.value(v).name, ".again") : global_.value(v).name);
    const auto is_due = [&](int axis) {
      const std::vector<Partial>& due = operands.outputs[o].partial;
      return std::ranges::find(due, axis, &Partial::axis) != due.end();
    };
    if (!is_due(batch_axis) && !is_due(mesh_.find(unit_axis))) continue;
    sums = true;
    sum_outer = operands.sum_outers[o];
    if (!is_due(batch_axis)) units = mesh_.units(batch);  // of samples that have come from all ranks
  }
  // The order of a sum over one unit is that of its positions, wherever the batch lies.
  if (sums) node.units = {units, units > 1 ? sum_outer : 1};
  if (const int64_t count = local_segments(mesh_, sharding); count > 1) node.units = {count, operands.segment_outer};
  if (std::ranges::any_of(sharding.factors, [&](const Cuts& cuts) { return mesh_.pieces(cuts) > 1; })) {
    const bool in_lanes = sums && lanes > 1;  // each lane has shapes of its own
    if (old.op->localize && !in_lanes) old.op->localize(node.attributes, input_types, types);
  }
  if (sums && lanes > 1) return place_in_lanes(old, node, lanes, operands, types, block);
  NodeId made = local_.graph.add_node(std::move(node), types, names);
  for (size_t o = 0; o < old.outputs.size(); ++o) {
    Value given = local_.graph.node(made).outputs[o];
    if (pieces.slides() && static_cast<int>(o) == pieces.rule.row->halo.numbers_result) {
      EPL_ASSIGN(given, numbered(given, n, pieces, block));
    }
    if (elsewhere && pieces.lacks(o) && routes && pieces.is_rows(pieces.rule.rule.outputs[o])) {
      EPL_ASSIGN(const bool back, give_back(old.outputs[o], given, operands.outputs[o], *routes, old, block));
      if (back) continue;
    }
    if (elsewhere && pieces.lacks(o)) given = zero_elsewhere(given, elsewhere, pieces, o, old, block);
    EPL_TRY(store(old.outputs[o], {given}, operands.outputs[o], old, block));
  }
  if (later >= 0) {
    const auto i = static_cast<size_t>(later);
    EPL_ASSIGN(Value added, operand(inputs[i], operands.inputs[i], old.phase, block));
    const Shape shape = pieces.beside_result(later, local_.graph.type(added).shape);
    if (!shape.empty())
      added = write(old, ".beside", block, [&](Builder& b) { return b.reshape(b.var(added), shape).value(); });
    Value& sum = now_[static_cast<size_t>(old.outputs[0].index)];
    const Move add{.op = "add", .suffix = ".complete", .type = local_.graph.type(sum)};
    sum = append(add, cat(global_.value(old.outputs[0]).name, add.suffix), {sum, added}, old.phase, block);
  }
  return {};
}

Status Partition::place_in_lanes(const Node& old, const Node& node, int64_t lanes, const OperandShardings& operands,
                                 const std::vector<TensorType>& types, int block) {
  std::vector<std::vector<Value>> results(old.outputs.size());
  for (int64_t lane = 0; lane < lanes; ++lane) {
    Node one = node;
    one.name = cat(old.name, ".lane", lane);
    std::vector<TensorType> input_types, lane_types = types;
    std::vector<std::string> names;
    for (size_t i = 0; i < one.inputs.size(); ++i) {
      Value& v = one.inputs[i];
      const int dim = v ? operands.inputs[i].cut_dim(batch_axis) : -1;
      if (dim >= 0) {
        const Cuts& cuts = operands.inputs[i].dims[static_cast<size_t>(dim)];
        for (const Move& move : take_lane(mesh_, local_.graph.type(v), cuts, dim, lanes, lane))
          v = append(move, cat(old.name, move.suffix), {v}, old.phase, block);
      }
      input_types.push_back(v ? local_.graph.type(v) : TensorType{});
    }
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      const int dim = operands.outputs[o].cut_dim(batch_axis);
      if (dim >= 0) lane_types[o].shape[static_cast<size_t>(dim)] /= lanes;
      names.push_back(cat(global_.value(old.outputs[o]).name, ".lane", lane));
    }
    if (old.op->localize) old.op->localize(one.attributes, input_types, lane_types);
    const NodeId made = local_.graph.add_node(std::move(one), lane_types, names);
    for (size_t o = 0; o < old.outputs.size(); ++o) results[o].push_back(local_.graph.node(made).outputs[o]);
  }
  for (size_t o = 0; o < old.outputs.size(); ++o) {
    const Sharding& given = operands.outputs[o];
    if (given.cut_dim(batch_axis) < 0) {
      EPL_TRY(store(old.outputs[o], results[o], given, old, block));
    } else {
      EPL_TRY(store(old.outputs[o], {joined(results[o], given, old, block)}, given, old, block));
    }
  }
  return {};
}

Value Partition::joined(const std::vector<Value>& lanes, const Sharding& sharding, const Node& old, int block) {
  const int dim = sharding.cut_dim(batch_axis);
  const LaneJoin join = join_lanes(mesh_, local_.graph.type(lanes[0]), sharding.dims[static_cast<size_t>(dim)], dim,
                                   static_cast<int64_t>(lanes.size()));
  std::vector<Value> parts;
  for (Value v : lanes) parts.push_back(append(join.part, cat(old.name, join.part.suffix), {v}, old.phase, block));
  const Value all = append(join.joined, cat(old.name, join.joined.suffix), parts, old.phase, block);
  return append(join.all, cat(old.name, join.all.suffix), {all}, old.phase, block);
}

Status Partition::store(Value global, std::vector<Value> lanes, const Sharding& given, const Node& old, int block) {
  auto moves = reshard(mesh_, global_.type(global), given, stored(global));
  if (!moves.ok()) return moves.status().with_context(cat("result of node ", old.name)).at(old.name);
  const BlockKind next = kind(block) == BlockKind::pre ? BlockKind::mid : BlockKind::post;
  if ((plan_.micro_batches() == 1 || plan_.apart) && lanes.size() > 1)
    lanes = {sum(lanes, cat(global_.value(global).name, ".summed"), old.phase, block)};
  bool ended = false;
  for (const Move& move : *moves) {
    if (ended) {
      waiting_.push_back({global, {move}, {}, old.phase, next});
      continue;
    }
    for (Value& v : lanes) v = append(move, cat(local_.graph.value(v).name, move.suffix), {v}, old.phase, block);
    ended = move.at_last_turn;
    if (ended && lanes.size() > 1) waiting_.push_back({global, {}, lanes, old.phase, next});
  }
  if (!ended && lanes.size() > 1)
    return unsupported("node ", old.name, " sums over the batch, and the sum stays due over micro-batches")
        .at(old.name);
  now_[global.index] = lanes[0];
  return {};
}

void Partition::carry_on(int block) {
  for (const Waiting& w : waiting_) {
    if (w.block != kind(block)) continue;
    Value& now = now_[w.global.index];
    if (w.move) {
      now = append(*w.move, cat(local_.graph.value(now).name, w.move->suffix), {now}, w.phase, block);
    } else {
      now = sum(w.lanes, cat(global_.value(w.global).name, ".summed"), w.phase, block);
    }
  }
}

Value Partition::sum(std::vector<Value> lanes, const std::string& name, Phase phase, int block) {
  const Move add{.op = "add", .type = local_.graph.type(lanes[0])};
  while (lanes.size() > 1) {
    std::vector<Value> sums;
    for (size_t i = 0; i < lanes.size(); i += 2) {
      const bool pair = i + 1 < lanes.size();
      sums.push_back(pair ? append(add, name, {lanes[i], lanes[i + 1]}, phase, block) : lanes[i]);
    }
    lanes = std::move(sums);
  }
  return lanes[0];
}
}  // namespace epl
