#include <array>
#include <map>
#include <tuple>

#include "core/base/check.h"
#include "core/ir/op.h"
#include "core/program/local_graph.h"
#include "core/strategy/batch_cut.h"

namespace epl {
namespace {

class Partition {
 public:
  explicit Partition(const Plan& plan)
      : plan_(plan), global_(*plan.graph), pieces_(plan.mesh.size("data") * plan.micro_batches()), now_(global_.value_count()) {}

  Result<LocalGraph> run() {
    local_.graph.name = global_.name;
    local_.ranks = plan_.mesh.size("data");
    local_.micro_batches = plan_.micro_batches();
    local_.units = plan_.mesh.size("unit");
    local_.schedule = plan_.schedule;
    copy_leaves();
    for (BlockKind block : all_blocks) {
      reduce_over_ranks(block);
      for (int n = 0; n < global_.node_count(); ++n) {
        bool here = plan_.node_block[n] == block;
        bool again = block == BlockKind::main && plan_.node_block[n] == BlockKind::pre && plan_.node_cloned[n];
        if (here || again) EPL_TRY(place(n, block, again));
      }
      pieces_of_.clear();  // a piece belongs to one loop
    }
    finish();
    EPL_TRY(verify(local_.graph));
    return std::move(local_);
  }

 private:
  int cut_dim(Value v) const { return plan_.shardings[v.index].cut_dim(); }
  CutPlace cut_at(Value v) const {
    const Sharding& sharding = plan_.shardings[v.index];
    return sharding.cut_dim() < 0 ? CutPlace() : CutPlace{sharding.cut_dim(), sharding.outer};
  }

  TensorType local_type(Value v) const {
    TensorType type = global_.type(v);
    if (int dim = cut_dim(v); dim >= 0) type.shape[dim] /= pieces_;
    return type;
  }

  bool staged(Value v) const { return pieces_ > 1 && global_.value(v).kind == ValueKind::input && cut_dim(v) > 0; }

  void copy_leaves() {
    for (int i = 0; i < global_.value_count(); ++i) {
      Value v{i};
      const ValueInfo& info = global_.value(v);
      if (info.kind == ValueKind::result) continue;
      // Pieces of an input along its first dimension are runs of the caller's memory; others are cut out by a slice.
      TensorType type = staged(v) ? info.type : local_type(v);
      now_[i] = local_.graph.add_leaf(info.kind, info.name, std::move(type), info.data);
      local_.graph.value(now_[i]).batch_dim = info.batch_dim;
      if (info.kind == ValueKind::input) local_.inputs.push_back({info.name, now_[i], info.type, staged(v) ? -1 : cut_dim(v), 1});
    }
  }

  // The operand as the node wants it: its piece where the node works on pieces and the value is whole.
  Value operand(Value v, CutPlace place, BlockKind block) {
    if (!v || pieces_ == 1 || !place || (cut_dim(v) >= 0 && !staged(v))) return v ? now_[v.index] : Value{};
    auto [it, inserted] = pieces_of_.emplace(std::tuple(v.index, place.dim, place.outer), Value{});
    if (!inserted) return it->second;
    const ValueInfo& info = global_.value(v);
    TensorType type = info.type;
    type.shape[place.dim] /= pieces_;
    Node slice{.name = cat(info.name, ".piece"), .op = &op_named("batch_slice")};
    slice.attributes = {{"dim", int64_t{place.dim}}, {"size", type.shape[place.dim]}, {"outer", place.outer}};
    slice.inputs = {now_[v.index]};
    slice.region = static_cast<int32_t>(block);
    slice.phase = info.kind == ValueKind::result ? global_.node(info.producer).phase : Phase::forward;
    it->second = local_.graph.node(local_.graph.add_node(std::move(slice), {type})).outputs[0];
    return it->second;
  }

  Status place(int n, BlockKind block, bool again) {
    const Node& old = global_.node(NodeId{n});
    std::vector<CutPlace> wanted(old.inputs.size());
    int64_t sum_outer = 1;
    if (plan_.node_cut[n]) {
      EPL_ASSIGN(ShardingRule rule, node_rule(global_, old));
      const BatchCut cut = cut_of(rule, old);
      wanted = cut.inputs;
      sum_outer = cut.sum_outer;
    }
    Node node = old;
    node.region = static_cast<int32_t>(block);
    std::vector<TensorType> input_types, types;
    std::vector<std::string> names;
    bool sums = false;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      node.inputs[i] = operand(old.inputs[i], wanted[i], block);
      input_types.push_back(node.inputs[i] ? local_.graph.type(node.inputs[i]) : TensorType{});
    }
    for (Value v : old.outputs) {
      types.push_back(local_type(v));
      names.push_back(again ? cat(global_.value(v).name, ".again") : global_.value(v).name);
      sums = sums || !plan_.shardings[v.index].reduced.empty();
    }
    // The order of a sum over one unit is that of its positions, wherever the batch lies.
    if (sums) node.units = {local_.units, local_.units > 1 ? sum_outer : 1};
    if (plan_.node_cut[n] && pieces_ > 1) {
      if (old.op->random && cut_at(old.outputs[0]) != CutPlace{0, 1}) {
        return unsupported("node ", old.name, " draws random numbers for samples that are not in dimension 0").at(old.name);
      }
      if (old.op->localize) old.op->localize(node.attributes, input_types, types);
    }
    NodeId made = local_.graph.add_node(std::move(node), types, names);
    for (size_t i = 0; i < old.outputs.size(); ++i) {
      Value v = local_.graph.node(made).outputs[i];
      bool reduced = !plan_.shardings[old.outputs[i].index].reduced.empty();
      now_[old.outputs[i].index] = reduced ? reduce(old.outputs[i], v, old, block) : v;
    }
    return {};
  }

  BatchCut cut_of(const ShardingRule& rule, const Node& node) {
    std::vector<CutPlace> cuts;
    bool any = false;
    for (Value v : node.inputs) {
      cuts.push_back(v ? cut_at(v) : CutPlace());
      any = any || cuts.back();
    }
    CutFactor wanted;
    for (size_t o = 0; o < node.outputs.size() && !any; ++o) {
      if (const CutPlace place = cut_at(node.outputs[o])) wanted = factor_at(rule, rule.outputs[o], place);
    }
    BatchCut cut = follow_batch(rule, cuts, plan_.units(), wanted);
    EPL_CHECK(cut.factor, "node ", node.name, " does not follow the batch as the plan says");
    return cut;
  }

  Value append(std::string_view op, Attributes attributes, std::string_view suffix, Value v, Phase phase, BlockKind block) {
    Node node{.name = cat(local_.graph.value(v).name, suffix), .op = &op_named(op), .attributes = std::move(attributes)};
    node.inputs = {v};
    node.phase = phase;
    node.region = static_cast<int32_t>(block);
    return local_.graph.node(local_.graph.add_node(std::move(node), {local_.graph.type(v)})).outputs[0];
  }

  // Continues the tree over units: over micro-batches, then over ranks. In a loop the sum over ranks waits for the loop's
  // end, that is for the next block.
  Value reduce(Value global, Value v, const Node& old, BlockKind block) {
    bool loops = block_loops(block) && local_.micro_batches > 1;
    if (loops) v = append("accumulate", {}, ".accumulated", v, old.phase, block);
    if (local_.ranks == 1) return v;
    if (loops) {
      waiting_.push_back({global, old.phase, block == BlockKind::pre ? BlockKind::mid : BlockKind::post});
      return v;
    }
    return append("all_reduce", {{"axis", std::string("data")}}, ".reduced", v, old.phase, block);
  }

  void reduce_over_ranks(BlockKind block) {
    for (const Waiting& w : waiting_) {
      if (w.block != block) continue;
      Value& v = now_[w.global.index];
      v = append("all_reduce", {{"axis", std::string("data")}}, ".reduced", v, w.phase, block);
    }
  }

  void finish() {
    // The seams may have put nodes into blocks that the plan left empty.
    local_.schedule.clear();
    for (BlockKind block : all_blocks) {
      bool used = block == BlockKind::main;
      for (const Node& node : local_.graph.nodes()) used = used || local_.block(node) == block;
      for (int64_t m = 0; used && m < (block_loops(block) ? local_.micro_batches : 1); ++m) local_.schedule.push_back({block, m});
    }
    for (const Graph::Output& output : global_.outputs) {
      Value v = now_[output.value.index];
      local_.graph.outputs.push_back({output.name, v});
      local_.outputs.push_back({output.name, v, global_.type(output.value), cut_dim(output.value), plan_.shardings[output.value.index].outer});
    }
    for (const Graph::Update& update : global_.updates) {
      local_.graph.updates.push_back({now_[update.state.index], now_[update.next.index]});
    }
  }

  struct Waiting {
    Value global;
    Phase phase;
    BlockKind block;
  };

  const Plan& plan_;
  const Graph& global_;
  int64_t pieces_;
  LocalGraph local_;
  std::vector<Value> now_;
  std::map<std::tuple<int32_t, int, int64_t>, Value> pieces_of_;
  std::vector<Waiting> waiting_;
};

}  // namespace

Result<LocalGraph> partition(const Plan& plan) { return Partition(plan).run(); }

}  // namespace epl
