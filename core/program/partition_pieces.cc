// Nodes that are cut along a dimension that their kernels need whole (core/program/piece_body.h).
#include "core/base/philox.h"
#include "core/ir/piece_rule.h"
#include "core/program/partitioning.h"

namespace epl {

Result<Value> Partition::of_piece(const Tensor& all, const std::vector<int>& axes, const Node& old, int block) {
  const Value table = local_.graph.add_constant(local_.graph.unique_name(cat(old.name, ".firsts")), all);
  const Sharding whole{.dims = {{}}}, own{.dims = {{{.axes = axes}}}};
  EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, all.type(), whole, own));
  Value first = table;
  for (const Move& move : moves) first = append(move, cat(old.name, ".first"), {first}, old.phase, block);
  return first;
}

Result<Value> Partition::unpadded(Value v, const Sharding& lies, const ReadPadding& read, const Node& user, int block) {
  const bool wants_zero = read.kind == ShardingRule::Reduce::sum && !read.ignored;
  if (wants_zero && zero_padding_.contains(v)) return v;
  ReadPadding key = read;  // of any operand
  key.operand = 0;
  for (const Unpadded& known : unpadded_) {
    if (known.from == v && known.read == key) return known.made;
  }
  const AxisCut parted{read.cut.axes, 1, read.cut.of};
  auto filled = std::ranges::find(filled_, parted, &std::pair<AxisCut, Value>::first);
  if (filled == filled_.end()) {
    const int64_t parts = Padding(mesh_, {}).parts(read.cut);
    Tensor all(TensorType{DType::boolean, {parts}});
    for (int64_t i = 0; i < parts; ++i) all.set_int(i, i < read.cut.of ? 1 : 0);
    EPL_ASSIGN(const Value made, of_piece(all, read.cut.axes, user, block));
    filled = filled_.insert(filled_.end(), {parted, made});
  }
  const Shape whole = local_.graph.type(v).shape, parts = in_parts(mesh_, whole, lies, read.dim, read.cut);
  const Value made = write(user, ".unpadded", block, [&](Builder& b) {
    const Var x = b.reshape(b.var(v), parts);
    const Var here = b.reshape(b.var(filled->second), {1, parts[1], 1});
    return b.reshape(b.select(here, x, b.constant(neutral(read, x.dtype()))), whole).value();
  });
  unpadded_.push_back({v, key, made});
  return made;
}

Status Partition::count_over_time(Node& node, int block) {
  const PieceRule* row = piece_table().find(node.op->name);
  if (!row || row->counts < 0)
    return unsupported("batch.semantics = per_micro_batch cannot be had: op ", node.op->name,
                       " draws the random numbers of all samples in one order")
        .at(node.name);
  const int64_t count = global_.type(node.outputs[0]).elements();
  Tensor firsts({DType::i64, {mesh_.size(micro_batch_axis)}});
  for (int64_t m = 0; m < firsts.elements(); ++m) firsts.set_int(m, m * count);
  node.inputs.resize(static_cast<size_t>(row->counts) + 1);
  EPL_ASSIGN(node.inputs.back(), of_piece(firsts, {mesh_.find(micro_batch_axis)}, node, block));
  node.attributes.set("run", count);
  node.attributes.set("stride", count);
  return {};
}

Status Partition::count_on(Node& node, const PieceCut& cut, const OperandShardings& operands, int block) {
  const Sharding& lies = operands.outputs[0];
  const auto dim = static_cast<size_t>(lies.cut_dim(cut.axes.front()));
  const Shape& shape = global_.type(node.outputs[0]).shape;
  int64_t stride = shape[dim] / lies.outer(cut.axes.front());
  for (size_t d = dim + 1; d < shape.size(); ++d) stride *= shape[d];
  const int64_t parts = mesh_.pieces(cut.axes);
  // Where pieces are uneven, the numbers of padding are those of what comes behind it.
  const AxisCut& of_dim = *find_cut(lies.dims[dim], cut.axes.front());
  const int64_t run = of_dim.of > 0 ? stride / of_dim.of * mesh_.parts_of_piece(of_dim) : stride / parts;
  // What draws in full does so anew for each micro-batch that stands by itself.
  const Attribute* full = node.attributes.find(draws_in_full);
  const bool anew = plan_.apart && full && std::get<bool>(*full);
  const int64_t turns = anew ? mesh_.size(micro_batch_axis) : 1, all = global_.type(node.outputs[0]).elements();
  Tensor firsts({DType::i64, {turns * parts}});
  for (int64_t i = 0; i < turns * parts; ++i) firsts.set_int(i, i / parts * all + i % parts * run);
  std::vector<int> axes = cut.axes;
  if (anew) axes.insert(axes.begin(), mesh_.find(micro_batch_axis));
  node.inputs.resize(static_cast<size_t>(cut.rule.row->counts) + 1);
  EPL_ASSIGN(node.inputs.back(), of_piece(firsts, axes, node, block));
  node.attributes.set("run", run);
  node.attributes.set("stride", stride);
  return {};
}

Result<Value> Partition::own(Value& indices, const PieceCut& cut, const Node& old, int block) {
  const Cuts cuts = {{.axes = cut.axes, .of = cut.of}};
  const int64_t parts = mesh_.pieces(cut.axes), rows = mesh_.local_size(cut.size(), cuts);
  const DType dtype = local_.graph.type(indices).dtype;
  Tensor firsts({dtype, {parts}});
  for (int64_t p = 0; p < parts; ++p) firsts.set_int(p, p * rows);
  EPL_ASSIGN(const Value first, of_piece(firsts, cut.axes, old, block));
  return write(old, ".own", block, [&](Builder& b) {
    const OwnIndices made = own_indices(b, b.var(indices), b.reshape(b.var(first), {}), rows, cut.size(), cut.of > 0);
    indices = made.indices.value();
    return made.elsewhere.value();
  });
}

std::optional<Partition::Routes> Partition::routes_of(NodeId n, const PieceCut& cut, const OperandShardings& operands,
                                                      Value indices, int block) {
  const Node& old = global_.node(n);
  const auto at = static_cast<size_t>(cut.rule.row->indices);
  const bool is_rank = cut.axes.size() == 1 && mesh_.axes[cut.axes[0]].kind == MeshAxis::Kind::rank;
  // All ranks of the axis know what all rows pick.
  if (!is_rank || operands.inputs[at].cut_dim(cut.axes[0]) >= 0 || global_.type(old.inputs[at]).ndim() != 1) return {};
  const int64_t here = mesh_.local_size(cut.size(), {{.axes = cut.axes, .of = cut.of}});
  for (const auto& [known, routes] : routes_) {
    if (known == indices && routes.axis == cut.axes[0] && routes.here == here) return routes;
  }
  const Value owners = write(old, ".owners", block, [&](Builder& b) {
    const Var picks = b.cast(b.var(indices), DType::i64);
    return (b.select(picks < 0.0, picks + static_cast<double>(cut.size()), picks) / static_cast<double>(here)).value();
  });
  return routes_.emplace_back(indices, Routes{cut.axes[0], here, owners}).second;
}

bool Partition::moves_rows(const std::vector<Move>& moves, const Sharding& pieces, const Routes& routes) {
  return moves.size() == 1 && (moves[0].gathers || moves[0].scatters) && pieces.cut_dim(routes.axis) == 0;
}

bool Partition::brings_rows(const std::vector<Move>& moves, const Sharding& pieces, const Routes& routes) const {
  return !moves.empty() && std::ranges::all_of(moves, &Move::gathers) && pieces.cut_dim(routes.axis) == 0 &&
         moves[0].attributes.text("axis") == mesh_.axes[routes.axis].name;
}

// Groups of ranks that have the same experts, and see the rows of all groups, bring these together first: each rank
// then has the rows of its peers. Rows come by owner, then by group, and owners are in this order too; what comes in
// goes back into the order of all rows.
Value Partition::dispatched(Value now, const std::vector<Move>& moves, const Routes& routes, const std::string& name,
                            Phase phase, int block) {
  Node behind{.name = name};
  behind.phase = phase;
  // [a, b, the rest] as [b, a, the rest].
  const auto swapped = [&](Value v, int64_t a, int64_t b, const char* suffix) {
    return write(behind, suffix, block, [&](Builder& to) {
      const TensorType whole = local_.graph.type(v);  // a copy: what is written moves the graph's own
      const Var parted = to.reshape(to.var(v), {a, b, whole.elements() / (a * b)});
      return to.reshape(to.transpose(parted, {1, 0, 2}), whole.shape).value();
    });
  };
  TensorType type = local_.graph.type(now);
  const int64_t here = type.shape[0], parts = moves[0].attributes.integer("parts");
  for (auto move = moves.begin() + 1; move != moves.end(); ++move) {
    type.shape[0] *= move->attributes.integer("parts");
    Move gather = *move;
    gather.type = type;
    now = append(gather, cat(name, move->suffix), {now}, phase, block);
  }
  const int64_t groups = here == 0 ? 1 : type.shape[0] / here;
  const Value owners = groups == 1 ? routes.owners : swapped(routes.owners, groups, parts, ".owners");
  const Move dispatch{.op = "dispatch_rows", .attributes = moves[0].attributes, .type = moves.back().type};
  const Value rows = append(dispatch, cat(name, ".dispatched"), {now, owners}, phase, block);
  return groups == 1 ? rows : swapped(rows, parts, groups, ".in_order");
}

Result<bool> Partition::give_back(Value global, Value given, const Sharding& as, const Routes& routes, const Node& old,
                                  int block) {
  EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, global_.type(global), as, stored(global)));
  if (!moves_rows(moves, stored(global), routes)) return false;
  const Move combine{.op = "combine_rows", .attributes = moves[0].attributes, .type = moves[0].type};
  now_[global] =
      append(combine, cat(global_.value(global).name, ".combined"), {given, routes.owners}, old.phase, block);
  return true;
}

Value Partition::zero_elsewhere(Value given, Value elsewhere, const PieceCut& cut, size_t o, const Node& old,
                                int block) {
  const Shape& indices = local_.graph.type(elsewhere).shape;
  const bool alike = indices == local_.graph.type(given).shape;  // one for each element
  const Shape shape = alike ? indices : cut.beside(o, indices);
  return write(old, ".here", block, [&](Builder& b) {
    const Var y = b.var(given);
    return b.select(b.reshape(b.var(elsewhere), shape), b.like(y, -0.0), y).value();
  });
}

Status Partition::place_body(NodeId n, const OperandShardings& operands, const PieceCut& pieces, int block) {
  const Node& old = global_.node(n);
  auto made = piece_body(plan_, n, pieces, operands);
  if (!made.ok()) return made.status().with_context(cat("body of node ", old.name)).at(old.name);
  const PieceBody& body = *made;
  Partition inside(body.plan, *this, local_);
  for (size_t i = 0; i < old.inputs.size(); ++i) {
    if (!old.inputs[i]) continue;
    EPL_ASSIGN(inside.now_[body.operands[i]], operand(old.inputs[i], operands.inputs[i], old.phase, block));
  }
  for (const Value i : body.plan.graph->value_ids()) {
    const ValueInfo& info = body.plan.graph->value(i);
    if (info.kind == ValueKind::constant)
      inside.now_[i] = local_.graph.add_constant(local_.graph.unique_name(info.name), info.data);
  }
  for (const NodeId n : body.plan.graph->node_ids()) EPL_TRY(inside.place(n, block, false));
  for (size_t o = 0; o < old.outputs.size(); ++o) {
    if (!old.outputs[o]) continue;
    const Value result = body.results[o];
    EPL_TRY(store(old.outputs[o], {inside.now_[result]}, body.plan.shardings[result], old, block));
  }
  return {};
}
}  // namespace epl
