// Nodes whose windows slide along a cut dimension: a convolution, a pool (PartitionRule::halo).
#include "core/program/shard_nodes.h"

namespace epl {
namespace {

int64_t elements_behind(const Shape& shape, size_t dim) {
  int64_t elements = 1;
  for (size_t d = dim + 1; d < shape.size(); ++d) elements *= shape[d];
  return elements;
}

// A row-major position taken apart at one dimension.
struct Position {
  Var before, at, behind;
};
Position taken_apart(const Var& position, int64_t size, int64_t behind) {
  const Var steps = position / static_cast<double>(behind);
  const Var before = steps / static_cast<double>(size);
  return {before, steps - before * static_cast<double>(size), position - steps * static_cast<double>(behind)};
}
Var put_together(const Position& p, int64_t size, int64_t behind) {
  return (p.before * static_cast<double>(size) + p.at) * static_cast<double>(behind) + p.behind;
}

}  // namespace

Status reach_over(const LocalWriter& w, const Graph& global, NodeId n, Node& node, const ShardCut& cut) {
  const Node& old = global.node(n);
  const HaloRule& rule = cut.rule.row->halo;
  const auto dim = static_cast<size_t>(cut.rule.window(cut.factor));
  const int64_t shards = w.mesh().shards(cut.axes);
  const std::optional<Halo> halo = node_halo(global, old, cut.rule, cut.factor, shards);
  std::vector<int> axes = cut.axes;
  std::erase_if(axes, [&](int axis) { return w.mesh().shards(std::vector{axis}) == 1; });
  if (!halo || axes.size() > 1)
    return unsupported("the windows of node ", old.name, " cannot be cut in ", shards, " shards").at(old.name);
  if (axes.empty()) return {};
  for (int i : rule.operands) {
    Value& v = node.inputs[i];
    TensorType type = w.type(v);
    if (!halo->borders(type.shape[dim])) continue;
    type.shape[dim] = halo->size;
    const Move move{.op = "halo",
                    .suffix = ".bordered",
                    .attributes = {{"axis", w.mesh().axes[axes[0]].name},
                                   {"parts", shards},
                                   {"dim", static_cast<int64_t>(dim)},
                                   {"first", halo->first},
                                   {"step", halo->step},
                                   {"size", halo->size},
                                   {"lowest", rule.lowest}},
                    .type = type};
    v = w.append(move, cat(old.name, ".", w.name(v), move.suffix), {v}, old.phase);
  }
  const size_t ndim = global.type(old.inputs[0]).shape.size();
  Ints pads = node.attributes.ints("pads");
  pads.resize(2 * (ndim - 2), 0);
  pads[dim - 2] = halo->begin;
  pads[ndim - 2 + dim - 2] = halo->end;
  node.attributes.set("pads", pads);
  if (rule.adapt) rule.adapt(node.attributes);
  if (rule.numbers_operand < 0) return {};

  // Those of other shards become -1, which is nowhere.
  Value& positions = node.inputs[rule.numbers_operand];
  const Shape& all = global.type(old.outputs[0]).shape;
  const int64_t own = all[dim] / shards, behind = elements_behind(all, dim);
  Tensor firsts({w.type(positions).dtype, {shards}});
  for (int64_t p = 0; p < shards; ++p) firsts.set_int(p, p * own);
  EPL_ASSIGN(const Value first, w.of_shard(firsts, cut.axes, old));
  positions = w.write(old, ".own", [&](Builder& b) {
    Position p = taken_apart(b.var(positions), all[dim], behind);
    p.at = p.at - b.reshape(b.var(first), {});
    const Var here = b.emit("logical_and", {p.at >= 0.0, p.at < static_cast<double>(own)});
    return b.select(here, put_together(p, own, behind), b.like(p.at, -1)).value();
  });
  return {};
}

Result<Value> numbered(const LocalWriter& w, const Graph& global, Value positions, NodeId n, const ShardCut& cut) {
  const Node& old = global.node(n);
  const auto dim = static_cast<size_t>(cut.rule.window(cut.factor));
  const int64_t shards = w.mesh().shards(cut.axes);
  if (shards == 1) return positions;
  const std::optional<Halo> halo = node_halo(global, old, cut.rule, cut.factor, shards);
  const Shape& all = global.type(old.inputs[0]).shape;
  const int64_t behind = elements_behind(all, dim);
  Tensor firsts({w.type(positions).dtype, {shards}});
  for (int64_t p = 0; p < shards; ++p) firsts.set_int(p, halo->first + p * halo->step);
  EPL_ASSIGN(const Value first, w.of_shard(firsts, cut.axes, old));
  return w.write(old, ".in_all", [&](Builder& b) {
    Position p = taken_apart(b.var(positions), halo->size, behind);
    // A window that holds nothing above the lowest number may have found its padding: its first element is meant.
    p.at = b.maximum(b.minimum(p.at + b.reshape(b.var(first), {}), b.like(p.at, static_cast<double>(all[dim] - 1))),
                     b.like(p.at, 0));
    return put_together(p, all[dim], behind).value();
  });
}

}  // namespace epl
