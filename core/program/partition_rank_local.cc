// Nodes that ranks run in one another's place: each rank has an expert of its own, and all run one program. The local
// graph has such a node once, for the representative, and what it takes and gives is what the rank has in its place.
// Between these nodes and others, values go by exchanges: side by side as [shards, ...], each rank has its own of them
// over all samples, or all of them over its own samples.
#include "core/program/partitioning.h"

namespace epl {
namespace {

// As the first of several side by side.
Sharding in_stack(const Sharding& one, bool own, const RankLocal& rank_local) {
  Sharding stack{.dims = {own ? Cuts{{.axes = rank_local.axes}} : Cuts{}}};
  stack.dims.insert(stack.dims.end(), one.dims.begin(), one.dims.end());
  return stack;
}

Shape with_first(int64_t first, Shape shape) {
  shape.insert(shape.begin(), first);
  return shape;
}

// What each rank has of several values that lie alike, one of each shard, side by side: [shards, ...], of which all
// ranks have all or each its own.
Result<Value> moved_stack(const LocalWriter& w, Value local, const TensorType& one, const Sharding& lies, bool own,
                          const Sharding& wanted, bool wanted_own, const RankLocal& rank_local, const Node& at) {
  const TensorType all{one.dtype, with_first(w.mesh().shards(rank_local.axes), one.shape)};
  EPL_ASSIGN(const std::vector<Move> moves, reshard(w.mesh(), w.batch(), all, in_stack(lies, own, rank_local),
                                                    in_stack(wanted, wanted_own, rank_local)));
  return w.append(moves, at.name, local, at.phase);
}

}  // namespace

const std::vector<NodeId>* Partition::alternatives(NodeId n) const {
  const auto found = alternatives_.find(n);
  return found == alternatives_.end() ? nullptr : &found->second;
}

Result<Value> Partition::taken(Value v, const Sharding& wanted, Phase user, const LocalWriter& w) {
  const RankLocal& rank_local = stored(v).rank_local;
  const Value representative = plan_.representative_of(v);
  auto known = std::ranges::find_if(known_.taken, [&](const Known::Taken& one) {
    return one.representative == representative && one.as == wanted && (!one.phase || *one.phase == user);
  });
  const ValueInfo& info = global_.value(representative);
  const NodeId producer = info.producer;
  if (known == known_.taken.end()) {
    const Value now = in_block(v, w.kind() == BlockKind::post);
    Sharding lies = stored(v);
    lies.rank_local = {};
    // What is gathered in the forward pass is gathered again in the backward pass.
    const bool gathers = wanted.cut_dim(rank_local.axes.front()) < 0;
    const Node at{.name = info.name, .phase = gathers || !producer ? user : global_.node(producer).phase};
    const Shape shape = with_first(1, local_.graph.type(now).shape);
    const Value one = w.write(at, ".own", [&](Builder& b) { return b.reshape(b.var(now), shape).value(); });
    EPL_ASSIGN(const Value all, moved_stack(w, one, info.type, lies, true, wanted, false, rank_local, at));
    known_.taken.push_back({representative, wanted, gathers ? std::optional(user) : std::nullopt, all});
    known = known_.taken.end() - 1;
  }
  const Node at{.name = global_.value(v).name,
                .phase = known->phase.value_or(producer ? global_.node(producer).phase : user)};
  return w.write(at, ".taken", [&](Builder& b) {
    const Var all = b.var(known->all), one = b.slice(all, {0}, {rank_local.shard}, {rank_local.shard + 1}, {1});
    return b.reshape(one, Shape(all.shape().begin() + 1, all.shape().end())).value();
  });
}

Result<Value> Partition::handed(NodeId n, size_t i, const Sharding& wanted, const LocalWriter& w) {
  const Node& representative = global_.node(n);
  const RankLocal& rank_local = plan_.node_shardings[n].rank_local;
  const Value first = representative.inputs[i];
  std::vector<Value> values;  // what a rank runs for nothing takes what the representative does
  for (const NodeId other : *alternatives(n)) values.push_back(other ? global_.node(other).inputs[i] : first);
  if (std::ranges::all_of(values, [&](Value v) { return v == first; }))
    return operand(first, wanted, representative.phase, w);
  for (const Known::Handed& known : known_.handed) {
    if (known.values == values && known.as == wanted && known.phase == representative.phase) return known.own;
  }
  // As the first one lies, if all come of nodes, so that they are exchanged.
  const bool made = std::ranges::all_of(values, [&](Value v) { return global_.value(v).kind == ValueKind::result; });
  Sharding lies = made ? this->lies(first) : wanted;
  lies.rank_local = {};
  lies.partial.clear();
  std::vector<Value> shards;
  for (Value v : values) {
    EPL_ASSIGN(const Value shard, operand(v, lies, representative.phase, w));
    shards.push_back(shard);
  }
  const Shape shape = with_first(1, local_.graph.type(shards[0]).shape);
  const Value all = w.write(representative, ".side_by_side", [&](Builder& b) {
    std::vector<Var> stack;
    for (Value v : shards) stack.push_back(b.reshape(b.var(v), shape));
    return b.concat(stack, 0).value();
  });
  EPL_ASSIGN(const Value mine,
             moved_stack(w, all, global_.type(first), lies, false, wanted, true, rank_local,
                         {.name = cat(representative.name, ".operand", i), .phase = representative.phase}));
  const Value own = w.write(representative, ".own", [&](Builder& b) {
    const Var x = b.var(mine);
    return b.reshape(x, Shape(x.shape().begin() + 1, x.shape().end())).value();
  });
  known_.handed.push_back({values, wanted, representative.phase, own});
  return own;
}

Status Partition::give_to_all(NodeId n, const LocalWriter& w) {
  const std::vector<NodeId>* like = alternatives(n);
  if (!like) return {};
  const Node& representative = global_.node(n);
  const RankLocal& rank_local = plan_.node_shardings[n].rank_local;
  for (size_t o = 0; o < representative.outputs.size(); ++o) {
    const Value v = representative.outputs[o];
    if (!v || stored(v).rank_local) continue;
    const Value now = now_[v];
    const Shape shape = local_.graph.type(now).shape;
    const Value own = w.write(representative, ".own",
                              [&](Builder& b) { return b.reshape(b.var(now), with_first(1, shape)).value(); });
    EPL_ASSIGN(const Value all,
               moved_stack(w, own, global_.type(v), stored(v), true, stored(v), false, rank_local, representative));
    for (int64_t shard = 0; shard < std::ssize(*like); ++shard) {
      if (!(*like)[shard]) continue;
      const Value other = global_.node((*like)[shard]).outputs[o];
      now_[other] = w.write(representative, ".given", [&](Builder& b) {
        return b.reshape(b.slice(b.var(all), {0}, {shard}, {shard + 1}, {1}), shape).value();
      });
    }
  }
  return {};
}

Result<Value> Partition::masked(Value local, Value global, const Node& user, const LocalWriter& w) {
  const NodeId producer = global_.value(global).producer;
  const std::vector<NodeId>* like = producer && stored(global).rank_local ? alternatives(producer) : nullptr;
  if (!like || std::ranges::find(*like, NodeId()) == like->end()) return local;
  Tensor all(TensorType{DType::boolean, {std::ssize(*like)}});
  for (int64_t p = 0; p < std::ssize(*like); ++p) all.set_int(p, (*like)[p] ? 1 : 0);
  EPL_ASSIGN(const Value here, w.of_shard(all, stored(global).rank_local.axes, user));
  return w.write(user, ".masked", [&](Builder& b) {
    const Var x = b.var(local);
    return b.select(b.reshape(b.var(here), {}), x, b.like(x, 0)).value();
  });
}

}  // namespace epl
