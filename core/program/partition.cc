#include <algorithm>
#include <map>
#include <optional>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/ir/op.h"
#include "core/program/lanes.h"
#include "core/program/local_graph.h"
#include "core/program/piece_body.h"
#include "core/program/reshard.h"
#include "core/program/together.h"
#include "core/strategy/segments.h"

namespace epl {
namespace {

// The local graph of one class of ranks.
class Partition {
 public:
  Partition(const Plan& plan, int rank_class, const std::vector<Boundary>& boundaries)
      : plan_(plan),
        global_(*plan.graph),
        here_(rank_class),
        mesh_(plan.meshes[static_cast<size_t>(rank_class)]),
        boundaries_(boundaries),
        now_(static_cast<size_t>(global_.value_count())),
        received_(now_.size()) {}
  // The body of a node, into the graph of its TaskGraph.
  Partition(const Plan& body, const Partition& outer, LocalGraph& into)
      : plan_(body),
        global_(*body.graph),
        here_(outer.here_),
        mesh_(outer.mesh_),
        boundaries_(outer.boundaries_),
        local_(into),
        now_(static_cast<size_t>(global_.value_count())),
        received_(now_.size()) {}

  Result<LocalGraph> run() {
    local_.graph.name = global_.name;
    local_.rank_class = here_;
    local_.mesh = mesh_;
    local_.batch = plan_.batch_of_class(here_);
    local_.calls = plan_.calls[static_cast<size_t>(here_)];
    local_.blocks = blocks_of(local_.calls);
    local_.commits = !global_.updates.empty();
    copy_leaves();
    for (int block = 0; block < static_cast<int>(local_.blocks.size()); ++block) {
      carry_on(block);
      for (const Boundary& b : boundaries_) {
        if (b.late) EPL_TRY(pass_on(b, block));
      }
      for (int n = 0; n < global_.node_count(); ++n) EPL_TRY(visit(n, block));
      moved_.clear();  // a piece belongs to one loop
    }
    EPL_TRY(finish());
    join_collectives(local_);
    EPL_TRY(verify(local_.graph));
    return std::move(local_);
  }

 private:
  const Sharding& stored(Value v) const { return plan_.shardings[static_cast<size_t>(v.index)]; }
  bool made_here(Value v) const { return plan_.class_of(v) == here_; }
  bool placed_here(int n) const {
    const int at = plan_.node_task_graph[static_cast<size_t>(n)];
    return at != every_task_graph && plan_.class_of(at) == here_;
  }
  BlockKind kind(int block) const { return local_.blocks[static_cast<size_t>(block)].kind; }

  // A node in a block, and what goes over the boundary behind it.
  Status visit(int n, int block) {
    const int at = plan_.node_task_graph[static_cast<size_t>(n)];
    if (placed_here(n) || at == every_task_graph) {
      const bool again = is_again(n, local_.blocks[static_cast<size_t>(block)]);
      if (again || plan_.block_of(NodeId{n}, here_) == local_.blocks[static_cast<size_t>(block)])
        EPL_TRY(place(n, block, again));
    }
    for (const Boundary& b : boundaries_) {
      if (!b.late && global_.value(b.value).producer.index == n) EPL_TRY(pass_on(b, block));
    }
    return {};
  }

  // What `pre` has computed is computed again where its TaskGraph sees the samples.
  bool is_again(int n, const BlockId& block) const {
    const bool sees = block.kind == BlockKind::main || block.kind == BlockKind::forward;
    if (!sees || plan_.node_block[static_cast<size_t>(n)] != BlockKind::pre ||
        !plan_.node_cloned[static_cast<size_t>(n)] || !placed_here(n))
      return false;
    const int at = plan_.node_task_graph[static_cast<size_t>(n)];
    return block.kind == BlockKind::main || block.stage == plan_.task_graphs[static_cast<size_t>(at)].stage;
  }

  // All classes come by all boundaries in one order, so that no ranks wait for each other in a ring.
  Status pass_on(const Boundary& b, int block) {
    const BlockId& here = local_.blocks[static_cast<size_t>(block)];
    const bool sends = b.from == here_ && b.sent == here, receives = b.to == here_ && b.received == here;
    if (!sends && !receives) return {};
    const auto mesh_of = [&](int rank_class) -> const Mesh& { return plan_.meshes[static_cast<size_t>(rank_class)]; };
    const ValueInfo& info = global_.value(b.value);
    auto made = cross(mesh_of(b.from), b.from, mesh_of(b.to), b.to, global_.type(b.value), stored(b.value));
    if (!made.ok()) return made.status().with_context(cat("value ", info.name));
    Crossing& crossing = *made;
    if (const int64_t channel = channel_of(plan_, boundaries_, b); channel > 0) {
      for (Move& send : crossing.sends) send.attributes.set("channel", channel);
      crossing.receive.attributes.set("channel", channel);
    }
    const Phase phase = info.producer ? global_.node(info.producer).phase : Phase::forward;
    Value& now = now_[static_cast<size_t>(b.value.index)];
    if (sends) {
      Value leaves = now;
      for (const Move& move : crossing.meet) leaves = append(move, cat(info.name, move.suffix), {leaves}, phase, block);
      for (const Move& send : crossing.sends) append(send, cat(info.name, send.suffix), {leaves}, phase, block);
    }
    if (receives) {
      now = append(crossing.receive, cat(info.name, crossing.receive.suffix), {}, phase, block);
      received_[static_cast<size_t>(b.value.index)] = crossing.as;
    }
    return {};
  }

  // An input of which a piece is not a run of the caller's memory: all of it comes in, and its pieces are sliced out.
  bool staged(Value v) const {
    const int dim = stored(v).cut_dim(batch_axis);
    if (global_.value(v).kind != ValueKind::input || dim < 0) return false;
    const Cuts& cuts = stored(v).dims[static_cast<size_t>(dim)];
    const auto makes_pieces = [&](const AxisCut& cut) { return mesh_.pieces(cut.axes) > 1; };
    return (dim > 0 && mesh_.pieces(cuts) > 1) || std::ranges::any_of(cuts.begin() + 1, cuts.end(), makes_pieces);
  }
  // How it lies here before a node asks for it.
  Sharding lies(Value v) const {
    if (const auto& as = received_[static_cast<size_t>(v.index)]) return *as;
    return staged(v) ? Sharding{.dims = std::vector<Cuts>(stored(v).dims.size())} : stored(v);
  }

  // Of several classes each has the inputs and constants that its nodes use, and one has each state; what is nobody's
  // is the first one's.
  std::vector<bool> leaves_here() const {
    std::vector<bool> used(static_cast<size_t>(global_.value_count()), plan_.classes() == 1);
    std::vector<bool> anywhere(used.size(), false);
    const auto use = [&](Value v, bool here) {
      if (!v) return;
      anywhere[static_cast<size_t>(v.index)] = true;
      if (here && (made_here(v) || !is_state(global_.value(v).kind))) used[static_cast<size_t>(v.index)] = true;
    };
    for (int n = 0; n < global_.node_count(); ++n) {
      for (Value v : global_.node(NodeId{n}).inputs) use(v, placed_here(n));
    }
    for (const Graph::Update& update : global_.updates) use(update.state, made_here(update.state));
    for (const Graph::Output& output : global_.outputs) use(output.value, made_here(output.value));
    for (size_t i = 0; i < used.size(); ++i) used[i] = used[i] || (!anywhere[i] && here_ == 0);
    return used;
  }

  void copy_leaves() {
    const std::vector<bool> here = leaves_here();
    for (int i = 0; i < global_.value_count(); ++i) {
      Value v{i};
      const ValueInfo& info = global_.value(v);
      if (info.kind == ValueKind::result || !here[static_cast<size_t>(i)]) continue;
      const Sharding sharding = lies(v);
      const TensorType type = local_type(mesh_, info.type, sharding);
      const bool in_pieces = is_state(info.kind) && type != info.type;
      if (in_pieces) local_.cut_state.push_back({info.name, info.type, sharding, info.data});
      now_[static_cast<size_t>(i)] =
          local_.graph.add_leaf(info.kind, info.name, type, in_pieces ? Tensor() : info.data);
      local_.graph.value(now_[static_cast<size_t>(i)]).batch_dim = info.batch_dim;
      if (info.kind == ValueKind::input) local_.inputs.push_back(port(info.name, v, of_batch(v, sharding)));
    }
  }

  LocalPort port(const std::string& name, Value v, const Sharding& sharding) const {
    return {.name = name,
            .value = now_[static_cast<size_t>(v.index)],
            .global_type = global_.type(v),
            .sharding = sharding};
  }

  // The cuts that the batch has.
  Sharding of_batch(Value v, const Sharding& sharding) const {
    const Cuts batch = plan_.batch_of(plan_.value_task_graph[static_cast<size_t>(v.index)]);
    Sharding made{.dims = sharding.dims};
    for (Cuts& cuts : made.dims) std::erase_if(cuts, [&](const AxisCut& cut) { return !find_cut(batch, cut.axes[0]); });
    return made;
  }
  // As the caller gets it: cut by the batch alone, in the way of the class.
  Sharding as_given(Value v) const {
    Sharding made{.dims = std::vector<Cuts>(stored(v).dims.size())};
    const int dim = stored(v).cut_dim(batch_axis);
    if (dim < 0) return made;
    Cuts& cuts = made.dims[static_cast<size_t>(dim)] = local_.batch;
    for (AxisCut& cut : cuts) cut.outer *= stored(v).outer(batch_axis);
    return made;
  }

  // The operand as the node wants it. What is gathered in the forward pass is gathered again in the backward pass: it
  // is in pieces so that nobody has to keep all of it.
  Result<Value> operand(Value v, const Sharding& wanted, Phase user, int block) {
    if (!v) return v;
    EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, global_.type(v), lies(v), wanted));
    if (moves.empty()) return now_[v.index];
    for (auto [known, end] = moved_.equal_range(v.index); known != end; ++known) {
      if (known->second.as == wanted && (!known->second.phase || *known->second.phase == user))
        return known->second.piece;
    }
    const ValueInfo& info = global_.value(v);
    const bool gathers = std::ranges::any_of(moves, &Move::gathers);
    const Phase phase = gathers                          ? user
                        : info.kind == ValueKind::result ? global_.node(info.producer).phase
                                                         : Phase::forward;
    Value piece = now_[v.index];
    for (const Move& move : moves) piece = append(move, cat(info.name, move.suffix), {piece}, phase, block);
    moved_.emplace(v.index, Moved{wanted, piece, gathers ? std::optional(user) : std::nullopt});
    return piece;
  }

  Status place(int n, int block, bool again) {
    const Node& old = global_.node(NodeId{n});
    EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan_, NodeId{n}));
    EPL_ASSIGN(const PieceCut pieces, piece_cut(plan_, NodeId{n}));
    const Cuts batch = plan_.batch_of(std::max(plan_.node_task_graph[static_cast<size_t>(n)], 0));
    const int64_t lanes = mesh_.lanes(batch), units = mesh_.units_of_lane(batch);
    if (pieces.by_body()) return place_body(n, operands, pieces, block);
    Node node = old;
    node.region = block;
    std::vector<TensorType> input_types, types;
    std::vector<std::string> names;
    if (plan_.node_task_graph[static_cast<size_t>(n)] == every_task_graph) {
      for (Value& v : node.inputs) v = v && made_here(v) ? v : Value{};
      if (std::ranges::none_of(node.inputs, [](Value v) { return static_cast<bool>(v); })) return {};
    }
    const std::vector<Value> inputs = node.inputs;
    const int later = operands.added_later;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (static_cast<int>(i) == later) {
        node.inputs[i] = {};
        input_types.emplace_back();
        continue;
      }
      // What takes any operands takes their pieces as they are stored.
      const Sharding& wanted = old.op->takes_any_operands && inputs[i] ? stored(inputs[i]) : operands.inputs[i];
      auto value = operand(inputs[i], wanted, old.phase, block);
      if (!value.ok()) return value.status().with_context(cat("operand ", i, " of node ", old.name)).at(old.name);
      node.inputs[i] = *value;
      input_types.push_back(node.inputs[i] ? local_.graph.type(node.inputs[i]) : TensorType{});
    }
    Value elsewhere;
    if (pieces.counts()) {
      EPL_TRY(count_on(node, pieces, operands, block));
      input_types.push_back(local_.graph.type(node.inputs.back()));
    }
    if (pieces.picks()) {
      Value& picks = node.inputs[static_cast<size_t>(pieces.rule.row->indices)];
      EPL_ASSIGN(elsewhere, own(picks, pieces, old, block));
    }
    int64_t sum_outer = 1;
    bool sums = false;
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      const Value v = old.outputs[o];
      types.push_back(local_type(mesh_, global_.type(v), operands.outputs[o]));
      names.push_back(again ? cat(global_.value(v).name, ".again") : global_.value(v).name);
      if (std::ranges::find(operands.outputs[o].partial, batch_axis, &Partial::axis) ==
          operands.outputs[o].partial.end())
        continue;
      sums = true;
      sum_outer = operands.sum_outers[o];
    }
    // The order of a sum over one unit is that of its positions, wherever the batch lies.
    if (sums) node.units = {units, units > 1 ? sum_outer : 1};
    if (const int64_t count = local_segments(mesh_, plan_.node_shardings[static_cast<size_t>(n)]); count > 1)
      node.units = {count, operands.segment_outer};
    const bool in_pieces = plan_.node_shardings[static_cast<size_t>(n)].cut_by(batch_axis);
    if (old.op->random && !in_pieces && mesh_.pieces(local_.batch) > 1)
      node.attributes.set(std::string(draws_in_full), true);
    const auto& factors = plan_.node_shardings[static_cast<size_t>(n)].factors;
    if (std::ranges::any_of(factors, [&](const Cuts& cuts) { return mesh_.pieces(cuts) > 1; })) {
      const bool in_lanes = sums && lanes > 1;  // each lane has shapes of its own
      if (old.op->localize && !in_lanes) old.op->localize(node.attributes, input_types, types);
    }
    if (sums && lanes > 1) return place_in_lanes(old, node, lanes, operands, types, block);
    NodeId made = local_.graph.add_node(std::move(node), types, names);
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      Value given = local_.graph.node(made).outputs[o];
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

  // A sum over the batch runs over each lane by itself: the node is there once for each of them. `types` are those of
  // its results over all lanes.
  Status place_in_lanes(const Node& old, const Node& node, int64_t lanes, const OperandShardings& operands,
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

  Value joined(const std::vector<Value>& lanes, const Sharding& sharding, const Node& old, int block) {
    const int dim = sharding.cut_dim(batch_axis);
    const LaneJoin join = join_lanes(mesh_, local_.graph.type(lanes[0]), sharding.dims[static_cast<size_t>(dim)], dim,
                                     static_cast<int64_t>(lanes.size()));
    std::vector<Value> parts;
    for (Value v : lanes) parts.push_back(append(join.part, cat(old.name, join.part.suffix), {v}, old.phase, block));
    const Value all = append(join.joined, cat(old.name, join.joined.suffix), parts, old.phase, block);
    return append(join.all, cat(old.name, join.all.suffix), {all}, old.phase, block);
  }

  // Nodes that a builder adds behind one of the plan.
  template <class F> Value write(const Node& behind, const char* suffix, int block, F f) {
    Builder b(local_.graph, behind.phase);
    b.set_scope(cat(behind.name, suffix));
    const int first = local_.graph.node_count();
    const Value made = f(b);
    EPL_CHECK(b.status().ok(), b.status().to_string());
    for (int n = first; n < local_.graph.node_count(); ++n)
      local_.graph.node(NodeId{n}).region = static_cast<int32_t>(block);
    return made;
  }

  // A number for each piece that these axes make, of which a rank gets its own.
  Result<Value> of_piece(const Tensor& all, const std::vector<int>& axes, const Node& old, int block) {
    const Value table = local_.graph.add_constant(local_.graph.unique_name(cat(old.name, ".firsts")), all);
    const Sharding whole{.dims = {{}}}, own{.dims = {{{.axes = axes}}}};
    EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, all.type(), whole, own));
    Value first = table;
    for (const Move& move : moves) first = append(move, cat(old.name, ".first"), {first}, old.phase, block);
    return first;
  }

  // Elements are numbered over all pieces: the node gets the number of its first one, and learns how they go on.
  Status count_on(Node& node, const PieceCut& cut, const OperandShardings& operands, int block) {
    const Sharding& lies = operands.outputs[0];
    const auto dim = static_cast<size_t>(lies.cut_dim(cut.axes.front()));
    const Shape& shape = global_.type(node.outputs[0]).shape;
    int64_t stride = shape[dim] / lies.outer(cut.axes.front());
    for (size_t d = dim + 1; d < shape.size(); ++d) stride *= shape[d];
    const int64_t parts = mesh_.pieces(cut.axes), run = stride / parts;
    Tensor firsts({DType::i64, {parts}});
    for (int64_t p = 0; p < parts; ++p) firsts.set_int(p, p * run);
    node.inputs.resize(static_cast<size_t>(cut.rule.row->counts) + 1);
    EPL_ASSIGN(node.inputs.back(), of_piece(firsts, cut.axes, node, block));
    node.attributes.set("run", run);
    node.attributes.set("stride", stride);
    return {};
  }

  // Indices into a dimension that ranks share out become indices into the piece that is here; those into other pieces
  // are out of its range. Returns which these are.
  Result<Value> own(Value& indices, const PieceCut& cut, const Node& old, int block) {
    const int64_t parts = mesh_.pieces(cut.axes), rows = cut.size() / parts;
    const DType dtype = local_.graph.type(indices).dtype;
    Tensor firsts({dtype, {parts}});
    for (int64_t p = 0; p < parts; ++p) firsts.set_int(p, p * rows);
    EPL_ASSIGN(const Value first, of_piece(firsts, cut.axes, old, block));
    return write(old, ".own", block, [&](Builder& b) {
      const OwnIndices made = own_indices(b, b.var(indices), b.reshape(b.var(first), {}), rows, cut.size());
      indices = made.indices.value();
      return made.elsewhere.value();
    });
  }

  // What a rank adds to a sum of picked elements: nothing where another rank has them. That is -0: any other number of
  // a sum keeps its bits, -0 too.
  Value zero_elsewhere(Value given, Value elsewhere, const PieceCut& cut, size_t o, const Node& old, int block) {
    const Shape& indices = local_.graph.type(elsewhere).shape;
    const bool alike = indices == local_.graph.type(given).shape;  // one for each element
    const Shape shape = alike ? indices : cut.beside(o, indices);
    return write(old, ".here", block, [&](Builder& b) {
      const Var y = b.var(given);
      return b.select(b.reshape(b.var(elsewhere), shape), b.like(y, -0.0), y).value();
    });
  }

  // A node along whose cut dimension its kernel cannot work: the nodes of its body, each with its own cuts.
  Status place_body(int n, const OperandShardings& operands, const PieceCut& pieces, int block) {
    const Node& old = global_.node(NodeId{n});
    auto made = piece_body(plan_, NodeId{n}, pieces, operands);
    if (!made.ok()) return made.status().with_context(cat("body of node ", old.name)).at(old.name);
    const PieceBody& body = *made;
    Partition inside(body.plan, *this, local_);
    for (size_t i = 0; i < old.inputs.size(); ++i) {
      if (!old.inputs[i]) continue;
      EPL_ASSIGN(inside.now_[static_cast<size_t>(body.operands[i].index)],
                 operand(old.inputs[i], operands.inputs[i], old.phase, block));
    }
    for (int i = 0; i < body.plan.graph->value_count(); ++i) {
      const ValueInfo& info = body.plan.graph->value(Value{i});
      if (info.kind == ValueKind::constant)
        inside.now_[static_cast<size_t>(i)] = local_.graph.add_constant(local_.graph.unique_name(info.name), info.data);
    }
    for (int n = 0; n < body.plan.graph->node_count(); ++n) EPL_TRY(inside.place(n, block, false));
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      if (!old.outputs[o]) continue;
      const auto result = static_cast<size_t>(body.results[o].index);
      EPL_TRY(store(old.outputs[o], {inside.now_[result]}, body.plan.shardings[result], old, block));
    }
    return {};
  }

  // The result, if the move has one.
  Value append(const Move& move, std::string name, std::vector<Value> operands, Phase phase, int block) {
    Node node{.name = std::move(name), .op = &op_named(move.op), .attributes = move.attributes};
    node.inputs = std::move(operands);
    node.phase = phase;
    node.region = block;
    std::vector<TensorType> types;
    if (move.gives) types.push_back(move.type);
    const Node& made = local_.graph.node(local_.graph.add_node(std::move(node), types));
    return move.gives ? made.outputs[0] : Value{};
  }

  // From what the node gives, for each lane where it sums over them, to how the value is stored. What is due after a
  // move that ends with the loop waits for the next block.
  Status store(Value global, std::vector<Value> lanes, const Sharding& given, const Node& old, int block) {
    auto moves = reshard(mesh_, global_.type(global), given, stored(global));
    if (!moves.ok()) return moves.status().with_context(cat("result of node ", old.name)).at(old.name);
    const BlockKind next = kind(block) == BlockKind::pre ? BlockKind::mid : BlockKind::post;
    if (plan_.micro_batches() == 1 && lanes.size() > 1)
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

  void carry_on(int block) {
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

  // By the binary tree.
  Value sum(std::vector<Value> lanes, const std::string& name, Phase phase, int block) {
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

  // Pieces over axes that do not cut the batch are gathered.
  Result<Value> given(Value v) {
    EPL_ASSIGN(const std::vector<Move> moves, reshard(mesh_, global_.type(v), lies(v), as_given(v)));
    const NodeId producer = global_.value(v).producer;
    const int block = producer ? local_.find(plan_.block_of(producer, here_)) : local_.sample_block();
    const Phase phase = producer ? global_.node(producer).phase : Phase::forward;
    Value now = now_[static_cast<size_t>(v.index)];
    for (const Move& move : moves) now = append(move, cat(global_.value(v).name, move.suffix), {now}, phase, block);
    return now;
  }

  Status finish() {
    for (const Graph::Output& output : global_.outputs) {
      const Value v = now_[static_cast<size_t>(output.value.index)];
      const NodeId producer = global_.value(output.value).producer;
      const bool every = producer && plan_.node_task_graph[static_cast<size_t>(producer.index)] == every_task_graph;
      if (!v || (!every && !made_here(output.value))) continue;
      // An input that is an output lies as the caller gave it.
      const bool moves = global_.value(output.value).kind != ValueKind::input;
      EPL_ASSIGN(const Value leaves, moves ? given(output.value) : Result<Value>(v));
      local_.graph.outputs.push_back({output.name, leaves});
      const Sharding given_as = moves ? as_given(output.value) : of_batch(output.value, stored(output.value));
      local_.outputs.push_back(port(output.name, output.value, given_as));
      local_.outputs.back().value = leaves;
      local_.outputs.back().emitted = made_here(output.value);
    }
    for (const Graph::Update& update : global_.updates) {
      if (!made_here(update.state)) continue;
      local_.graph.updates.push_back({now_[update.state.index], now_[update.next.index]});
    }
    return {};
  }

  struct Waiting {
    Value global;
    std::optional<Move> move;  // or a sum of lanes
    std::vector<Value> lanes;
    Phase phase;
    BlockKind block;
  };
  struct Moved {
    Sharding as;
    Value piece;
    std::optional<Phase> phase;  // for the nodes of this phase alone
  };

  const Plan& plan_;
  const Graph& global_;
  const int here_;
  const Mesh& mesh_;
  const std::vector<Boundary>& boundaries_;
  LocalGraph own_;
  LocalGraph& local_ = own_;
  std::vector<Value> now_;
  std::vector<std::optional<Sharding>> received_;  // by value: of those from another TaskGraph, how they lie
  std::multimap<int32_t, Moved> moved_;            // by value, of the block at hand
  std::vector<Waiting> waiting_;
};

}  // namespace

int LocalGraph::find(const BlockId& block) const {
  const auto found = std::ranges::find(blocks, block);
  return found == blocks.end() ? -1 : static_cast<int>(found - blocks.begin());
}

int LocalGraph::sample_block() const {
  const auto found = std::ranges::find_if(
      blocks, [](const BlockId& b) { return b.kind == BlockKind::main || b.kind == BlockKind::forward; });
  return found == blocks.end() ? -1 : static_cast<int>(found - blocks.begin());
}

Result<std::vector<LocalGraph>> partition(const Plan& plan) {
  EPL_ASSIGN(const std::vector<Boundary> all, boundaries(plan));
  EPL_ASSIGN(std::vector<std::vector<SendWait>> waits, send_waits(plan, all));
  std::vector<LocalGraph> locals;
  for (int c = 0; c < plan.classes(); ++c) {
    EPL_ASSIGN(LocalGraph local, Partition(plan, c, all).run());
    local.waits = std::move(waits[static_cast<size_t>(c)]);
    locals.push_back(std::move(local));
  }
  return locals;
}

}  // namespace epl
