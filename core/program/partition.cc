#include <map>

#include "core/base/check.h"
#include "core/ir/op.h"
#include "core/program/local_graph.h"
#include "core/program/reshard.h"

namespace epl {
namespace {

class Partition {
 public:
  explicit Partition(const Plan& plan)
      : plan_(plan),
        global_(*plan.graph),
        pieces_(plan.mesh.size("data") * plan.micro_batches()),
        now_(global_.value_count()) {}

  Result<LocalGraph> run() {
    local_.graph.name = global_.name;
    local_.ranks = plan_.mesh.size("data");
    local_.micro_batches = plan_.micro_batches();
    local_.units = plan_.mesh.size("unit");
    local_.schedule = plan_.schedule;
    copy_leaves();
    for (BlockKind block : all_blocks) {
      carry_on(block);
      for (int n = 0; n < global_.node_count(); ++n) {
        bool here = plan_.node_block[n] == block;
        bool again = block == BlockKind::main && plan_.node_block[n] == BlockKind::pre && plan_.node_cloned[n];
        if (here || again) EPL_TRY(place(n, block, again));
      }
      moved_.clear();  // a piece belongs to one loop
    }
    finish();
    EPL_TRY(verify(local_.graph));
    return std::move(local_);
  }

 private:
  const Sharding& stored(Value v) const { return plan_.shardings[static_cast<size_t>(v.index)]; }

  // An input of which a piece is not a run of the caller's memory: it comes whole, and its pieces are sliced out.
  bool staged(Value v) const {
    return global_.value(v).kind == ValueKind::input && stored(v).cut_dim() > 0 &&
           plan_.mesh.pieces(stored(v).dims[static_cast<size_t>(stored(v).cut_dim())].axes) > 1;
  }
  Sharding lies(Value v) const {
    return staged(v) ? Sharding{.dims = std::vector<AxisCut>(stored(v).dims.size())} : stored(v);
  }

  void copy_leaves() {
    for (int i = 0; i < global_.value_count(); ++i) {
      Value v{i};
      const ValueInfo& info = global_.value(v);
      if (info.kind == ValueKind::result) continue;
      now_[i] = local_.graph.add_leaf(info.kind, info.name, local_type(plan_.mesh, info.type, lies(v)), info.data);
      local_.graph.value(now_[i]).batch_dim = info.batch_dim;
      if (info.kind == ValueKind::input) local_.inputs.push_back({info.name, now_[i], info.type, lies(v).cut_dim(), 1});
    }
  }

  // The operand as the node wants it.
  Result<Value> operand(Value v, const Sharding& wanted, BlockKind block) {
    if (!v) return v;
    EPL_ASSIGN(const std::vector<Move> moves, reshard(plan_.mesh, global_.type(v), lies(v), wanted));
    if (moves.empty()) return now_[v.index];
    for (auto [known, end] = moved_.equal_range(v.index); known != end; ++known) {
      if (known->second.as == wanted) return known->second.piece;
    }
    const ValueInfo& info = global_.value(v);
    const Phase phase = info.kind == ValueKind::result ? global_.node(info.producer).phase : Phase::forward;
    Value piece = now_[v.index];
    for (const Move& move : moves) piece = append(move, cat(info.name, move.suffix), piece, phase, block);
    moved_.emplace(v.index, Moved{wanted, piece});
    return piece;
  }

  Status place(int n, BlockKind block, bool again) {
    const Node& old = global_.node(NodeId{n});
    EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan_, NodeId{n}));
    Node node = old;
    node.region = static_cast<int32_t>(block);
    std::vector<TensorType> input_types, types;
    std::vector<std::string> names;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      auto value = operand(old.inputs[i], operands.inputs[i], block);
      if (!value.ok()) return value.status().with_context(cat("operand ", i, " of node ", old.name)).at(old.name);
      node.inputs[i] = *value;
      input_types.push_back(node.inputs[i] ? local_.graph.type(node.inputs[i]) : TensorType{});
    }
    int64_t sum_outer = 1;
    bool sums = false;
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      const Value v = old.outputs[o];
      types.push_back(local_type(plan_.mesh, global_.type(v), operands.outputs[o]));
      names.push_back(again ? cat(global_.value(v).name, ".again") : global_.value(v).name);
      if (operands.outputs[o].partial.empty()) continue;
      sums = true;
      sum_outer = operands.sum_outers[o];
    }
    // The order of a sum over one unit is that of its positions, wherever the batch lies.
    if (sums) node.units = {local_.units, local_.units > 1 ? sum_outer : 1};
    const bool cut = plan_.node_shardings[static_cast<size_t>(n)].cut();
    if (cut && pieces_ > 1) {
      if (old.op->random && (stored(old.outputs[0]).cut_dim() != 0 || stored(old.outputs[0]).outer() != 1)) {
        return unsupported("node ", old.name, " draws random numbers for samples that are not in dimension 0")
            .at(old.name);
      }
      if (old.op->localize) old.op->localize(node.attributes, input_types, types);
    }
    NodeId made = local_.graph.add_node(std::move(node), types, names);
    for (size_t o = 0; o < old.outputs.size(); ++o) {
      EPL_TRY(store(old.outputs[o], local_.graph.node(made).outputs[o], operands.outputs[o], old, block));
    }
    return {};
  }

  Value append(const Move& move, std::string name, Value v, Phase phase, BlockKind block) {
    Node node{.name = std::move(name), .op = &op_named(move.op), .attributes = move.attributes};
    node.inputs = {v};
    node.phase = phase;
    node.region = static_cast<int32_t>(block);
    return local_.graph.node(local_.graph.add_node(std::move(node), {move.type})).outputs[0];
  }

  // From what the node gives to how the value is stored. What is due after a move that ends with the loop waits for the
  // next block.
  Status store(Value global, Value v, const Sharding& given, const Node& old, BlockKind block) {
    auto moves = reshard(plan_.mesh, global_.type(global), given, stored(global));
    if (!moves.ok()) return moves.status().with_context(cat("result of node ", old.name)).at(old.name);
    now_[global.index] = v;
    bool ended = false;
    for (const Move& move : *moves) {
      if (ended) {
        waiting_.push_back({global, move, old.phase, block == BlockKind::pre ? BlockKind::mid : BlockKind::post});
        continue;
      }
      Value& now = now_[global.index];
      now = append(move, cat(local_.graph.value(now).name, move.suffix), now, old.phase, block);
      ended = move.at_last_turn;
    }
    return {};
  }

  void carry_on(BlockKind block) {
    for (const Waiting& w : waiting_) {
      if (w.block != block) continue;
      Value& now = now_[w.global.index];
      now = append(w.move, cat(local_.graph.value(now).name, w.move.suffix), now, w.phase, block);
    }
  }

  void finish() {
    // The boundaries may have put nodes into blocks that the plan left empty.
    local_.schedule.clear();
    for (BlockKind block : all_blocks) {
      bool used = block == BlockKind::main;
      for (const Node& node : local_.graph.nodes()) used = used || local_.block(node) == block;
      for (int64_t m = 0; used && m < (block_loops(block) ? local_.micro_batches : 1); ++m)
        local_.schedule.push_back({block, m});
    }
    for (const Graph::Output& output : global_.outputs) {
      Value v = now_[output.value.index];
      local_.graph.outputs.push_back({output.name, v});
      local_.outputs.push_back(
          {output.name, v, global_.type(output.value), stored(output.value).cut_dim(), stored(output.value).outer()});
    }
    for (const Graph::Update& update : global_.updates) {
      local_.graph.updates.push_back({now_[update.state.index], now_[update.next.index]});
    }
  }

  struct Waiting {
    Value global;
    Move move;
    Phase phase;
    BlockKind block;
  };
  struct Moved {
    Sharding as;
    Value piece;
  };

  const Plan& plan_;
  const Graph& global_;
  int64_t pieces_;
  LocalGraph local_;
  std::vector<Value> now_;
  std::multimap<int32_t, Moved> moved_;  // by value, of the block at hand
  std::vector<Waiting> waiting_;
};

}  // namespace

Result<LocalGraph> partition(const Plan& plan) { return Partition(plan).run(); }

}  // namespace epl
