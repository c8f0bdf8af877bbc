// Nodes that are cut along a dimension that their kernels need in full (core/program/shard_body.h).
#include "core/base/philox.h"
#include "core/ir/partition_rule.h"
#include "core/program/partitioning.h"

namespace epl {

Result<Value> Partition::unpadded(Value v, const Sharding& lies, const ReadPadding& read, const Node& user,
                                  const LocalWriter& w) {
  const bool wants_zero = read.kind == ShardingRule::Reduce::sum && !read.ignored;
  if (wants_zero && zero_padding_.contains(v)) return v;
  ReadPadding key = read;  // of any operand
  key.operand = 0;
  for (const Known::Unpadded& known : known_.unpadded) {
    if (known.from == v && known.read == key) return known.made;
  }
  const AxisCut uneven{read.cut.axes, 1, read.cut.of};
  auto filled = std::ranges::find(known_.filled, uneven, &std::pair<AxisCut, Value>::first);
  if (filled == known_.filled.end()) {
    const int64_t granules = Padding(mesh_, {}).granules(read.cut);
    Tensor all(TensorType{DType::boolean, {granules}});
    for (int64_t i = 0; i < granules; ++i) all.set_int(i, i < read.cut.of ? 1 : 0);
    EPL_ASSIGN(const Value made, w.of_shard(all, read.cut.axes, user));
    filled = known_.filled.insert(known_.filled.end(), {uneven, made});
  }
  const Shape full = local_.graph.type(v).shape, granules = in_granules(mesh_, full, lies, read.dim, read.cut);
  const Value made = w.write(user, ".unpadded", [&](Builder& b) {
    const Var x = b.reshape(b.var(v), granules);
    const Var here = b.reshape(b.var(filled->second), {1, granules[1], 1});
    return b.reshape(b.select(here, x, b.constant(neutral(read, x.dtype()))), full).value();
  });
  known_.unpadded.push_back({v, key, made});
  return made;
}

std::optional<RowRoutes> Partition::routes_of(NodeId n, const ShardCut& cut, const OperandShardings& operands,
                                              Value indices, const LocalWriter& w) {
  const Node& old = global_.node(n);
  const auto at = static_cast<size_t>(cut.rule.row->indices);
  const bool is_rank = cut.axes.size() == 1 && mesh_.axes[cut.axes[0]].kind == MeshAxis::Kind::rank;
  // All ranks of the axis know the indices of all rows.
  if (!is_rank || operands.inputs[at].cut_dim(cut.axes[0]) >= 0 || global_.type(old.inputs[at]).ndim() != 1) return {};
  const int64_t here = mesh_.local_size(cut.size(), {{.axes = cut.axes, .of = cut.of}});
  for (const auto& [known, routes] : known_.routes) {
    if (known == indices && routes.axis == cut.axes[0] && routes.here == here) return routes;
  }
  const Value owners = w.write(old, ".owners", [&](Builder& b) {
    const Var flat = b.cast(b.var(indices), DType::i64);
    return (b.select(flat < 0.0, flat + static_cast<double>(cut.size()), flat) / static_cast<double>(here)).value();
  });
  return known_.routes.emplace_back(indices, RowRoutes{cut.axes[0], here, owners}).second;
}

Result<bool> Partition::give_back(Value global, Value given, const Sharding& as, const RowRoutes& routes,
                                  const Node& old, const LocalWriter& w) {
  EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, batch_of(global), global_.type(global), as, stored(global)));
  if (!moves_rows(moves, stored(global), routes)) return false;
  now_[global] = combined(w, given, moves[0], routes, global_.value(global).name, old.phase);
  return true;
}

Status Partition::make_local_body(NodeId n, const OperandShardings& operands, const ShardCut& shards,
                                  const LocalWriter& w) {
  const Node& old = global_.node(n);
  auto made = shard_body(plan_, n, shards, operands);
  if (!made.ok()) return made.status().with_context(cat("body of node ", old.name)).at(old.name);
  const ShardBody& body = *made;
  Partition inside(body.plan, *this, local_);
  for (size_t i = 0; i < old.inputs.size(); ++i) {
    if (!old.inputs[i]) continue;
    EPL_ASSIGN(inside.now_[body.operands[i]], operand(old.inputs[i], operands.inputs[i], w.phase(old.phase), w));
  }
  for (const Value i : body.plan.graph->value_ids()) {
    const ValueInfo& info = body.plan.graph->value(i);
    if (info.kind == ValueKind::constant)
      inside.now_[i] = local_.graph.add_constant(local_.graph.unique_name(info.name), info.data);
  }
  for (const NodeId n : body.plan.graph->node_ids()) EPL_TRY(inside.make_local(n, w, false));
  for (size_t o = 0; o < old.outputs.size(); ++o) {
    if (!old.outputs[o]) continue;
    const Value result = body.results[o];
    EPL_TRY(store(old.outputs[o], {inside.now_[result]}, body.plan.shardings[result], old, w));
  }
  return {};
}
}  // namespace epl
