// sequence: what lies between the nodes that a split cuts is cut too, where `split.sequence` asks for it.
//
// Behind a sum over the ranks of a split all of them have the same value, and go on alike until the next node that is
// cut: norms, residual sums, dropout. They may as well have a shard each. Then the sum is a reduce-scatter, and what
// the next node needs in full is gathered in front of it: as many bytes move, each rank does its share of the work
// between, and keeps its share for the backward pass (Korthikanti et al. 2022). Nothing here knows of sequences: for
// the first sum all dimensions are tried, and that is taken which keeps the most in shards and moves the least. Where
// samples are cut already this is the dimension of positions. What is gathered in the forward pass is gathered again in
// the backward pass, so that no rank keeps it. Positions that do not divide make uneven shards; at level `layout` they
// stay uncut, with a note.
#include <algorithm>
#include <set>

#include "core/strategy/batch_cut.h"
#include "core/strategy/pass.h"
#include "core/strategy/segments.h"

namespace epl {
namespace {

// What one way to cut comes to.
struct Region {
  ByValue<CutPosition> at;
  ByNode<CutFactor> factors;
  std::set<std::pair<Value, Phase>> gathered;  // values, in the passes that gather them
  double kept_elsewhere = 0;                   // bytes that a rank need not write, keep and read
  double moved = 0;                            // bytes that move beyond those of the sums as they were
  int values = 0;                              // in shards
};

class Between {
 public:
  Between(Plan& plan, const CostModel& cost, int task_graph)
      : plan_(plan),
        cost_(cost),
        graph_(*plan.graph),
        here_(task_graph),
        axes_(plan.task_graphs[task_graph].split),
        mesh_(plan.mesh(task_graph)),
        degree_(mesh_.shards(axes_)),
        by_segments_(sums_by_segments(plan)),
        users_(graph_.users()),
        rules_(plan.rules->extended),
        free_(graph_.node_count(), false),
        sums_(graph_.value_count(), false),
        kept_replicated_(sums_.size(), false),
        joined_(sums_.size()) {
    taken_.at.resize(sums_.size());
    taken_.factors.resize(free_.size());
  }

  void run() {
    describe();
    for (const Value v : graph_.value_ids()) {
      if (!sums_[v] || taken_.at[v]) continue;
      Region best = taken_;
      best.kept_elsewhere = best.moved = 0;
      for (const CutPosition& position : positions(v)) {
        Region region = grown(v, position);
        if (gain(region) > gain(best)) best = std::move(region);
      }
      taken_ = std::move(best);
    }
    write();
  }

 private:
  double bytes(Value v) const { return static_cast<double>(graph_.type(v).bytes()); }
  // Of what a rank does not have.
  double others(Value v) const { return bytes(v) * static_cast<double>(degree_ - 1) / static_cast<double>(degree_); }
  // Seconds. That there is one more collective counts nothing: the strategy has asked for it.
  double gain(const Region& region) const {
    return cost_.memory(2 * region.kept_elsewhere) -
           cost_.moving(Collective::Kind::send, RankGroup::of_first(degree_), region.moved);
  }
  bool split(int axis) const { return std::ranges::find(axes_, axis) != axes_.end(); }

  void describe() {
    for (const Graph::Output& output : graph_.outputs) kept_replicated_[output.value] = true;
    for (const Graph::Update& update : graph_.updates) kept_replicated_[update.next] = true;
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      const NodeSharding& sharding = plan_.node_shardings[n];
      const int at = plan_.node_task_graph[n];
      for (Value v : node.inputs) {
        if (v && plan_.value_task_graph[v] != at) kept_replicated_[v] = true;
      }
      if (at != here_ || node.phase == Phase::update) continue;
      free_[n] = !sharding.cut_by(axes_.front()) && sharding.flowing.empty() && !node.op->takes_any_operands;
      const OperandShardings operands = operand_shardings(plan_, n);
      for (size_t o = 0; o < node.outputs.size(); ++o) describe_result(n, operands, o);
    }
  }

  // Sums over the batch are of weights' gradients, and are complete when the loop has ended.
  void describe_result(NodeId n, const OperandShardings& operands, size_t o) {
    const Value v = graph_.node(n).outputs[o];
    const auto& pending = operands.outputs[o].partial;
    const BatchLayout batch = plan_.batch_of(here_);
    const bool over_batch = std::ranges::any_of(pending, [&](const Partial& p) { return batch.cuts_over(p.axis); });
    if (over_batch) kept_replicated_[v] = true;
    const Sharding& stored = plan_.shardings[v];
    const bool ours = !pending.empty() && std::ranges::all_of(pending, [&](const Partial& p) {
      return split(p.axis) && p.kind == ShardingRule::Reduce::sum;
    });
    sums_[v] = ours && stored.partial.empty() && stored.cut_dim(axes_.front()) < 0;
    if (operands.added_later < 0) return;
    for (const ShardingRule::Dim& dim : rules_[n].rule.inputs[operands.added_later])
      joined_[v].insert(dim.begin(), dim.end());
  }

  // The largest shard of an uneven cut, in granules.
  int64_t largest(const CutPosition& position) const { return (position.of + degree_ - 1) / degree_; }
  // Whether a cut of a dimension or factor of this size finds its position among those that it has. Uneven shards are
  // of granules that nothing inside them cuts, and smaller than the dimension.
  bool nests(int64_t size, const Cuts& cuts, const CutPosition& position) const {
    const int64_t run = position.outer * (position.of > 0 ? position.of : degree_);
    if (size % run != 0) return false;
    if (position.of > 0 && (by_segments_ || position.of % degree_ == 0 || largest(position) == position.of))
      return false;
    return std::ranges::all_of(cuts, [&](const AxisCut& cut) {
      int64_t shards = cut.outer * std::max<int64_t>(cut.of, 1);
      for (int axis : cut.of > 0 ? std::vector<int>() : cut.axes) shards *= mesh_.axes[axis].size;
      return cut.outer > position.outer ? cut.outer % run == 0
                                        : cut.outer < position.outer && position.outer % shards == 0;
    });
  }
  // Whether a value may lie in shards there. What is added to a sum when it is complete must have all that it is added
  // to, so its own dimensions are left alone.
  bool may_lie(Value v, const CutPosition& position) const {
    const int d = position.dim;
    const TensorType& type = graph_.type(v);
    const auto joins = [&](int f) { return joined_[v].contains(f); };
    if (!joined_[v].empty()) {
      const ValueInfo& info = graph_.value(v);
      const auto& dims = rules_[info.producer].rule.outputs[info.output];
      if (std::ranges::any_of(dims[d], joins)) return false;
    }
    return !kept_replicated_[v] && nests(type.shape[d], plan_.shardings[v].dims[d], position);
  }

  // In front of what the batch cuts of a dimension, and behind it; in equal shards where there are any.
  std::vector<CutPosition> positions(Value v) const {
    std::vector<CutPosition> found;
    for (int d = 0; d < graph_.type(v).ndim(); ++d) {
      for (const int64_t outer : {int64_t{1}, plan_.batch}) {
        if (outer == 0) continue;
        const int64_t run = graph_.type(v).shape[d] / outer;
        const CutPosition position{d, outer, run % degree_ == 0 ? 0 : run};
        const bool new_position = std::ranges::find(found, position) == found.end();
        if (new_position && may_lie(v, position)) found.push_back(position);
      }
    }
    return found;
  }

  Region grown(Value sum, const CutPosition& position) const {
    Region region = taken_;
    region.kept_elsewhere = region.moved = 0;
    lay(region, sum, position);
    region.moved -= others(sum);
    for (const NodeId n : graph_.node_ids().after(graph_.value(sum).producer)) visit(region, n);
    return region;
  }

  void lay(Region& region, Value v, const CutPosition& position) const {
    region.at[v] = position;
    region.kept_elsewhere += position.of == 0 ? others(v)
                                              : bytes(v) * static_cast<double>(position.of - largest(position)) /
                                                    static_cast<double>(position.of);
    ++region.values;
  }

  void visit(Region& region, NodeId n) const {
    const Node& node = graph_.node(n);
    const auto in_shards = [&](Value v) { return v && region.at[v]; };
    if (node.op->takes_any_operands || std::ranges::none_of(node.inputs, in_shards)) return;
    double best = gathering(region, node, {});
    CutFactor chosen;
    for (size_t i = 0; i < node.inputs.size() && free_[n]; ++i) {
      if (!in_shards(node.inputs[i])) continue;
      const CutFactor factor = factor_at(rules_[n].rule, rules_[n].rule.inputs[i], region.at[node.inputs[i]]);
      if (!factor || !fits(n, factor)) continue;
      const double cost = cost_of(region, n, factor);
      if (cost < best || (cost == best && !chosen)) {
        best = cost;
        chosen = factor;
      }
    }
    region.moved += best;
    follow(region, n, chosen);
  }

  bool fits(NodeId n, const CutFactor& factor) const {
    const ExtendedRule& known = rules_[n];
    const auto f = static_cast<size_t>(factor.factor);
    const NodeSharding& sharding = plan_.node_shardings[n];
    const bool counts = known.row && known.row->counts >= 0 && f >= known.added;
    if (graph_.node(n).op->random != counts) return false;
    if (!counts && (f >= known.added || known.rule.factors[f].unshardable || known.rule.factors[f].added >= 0))
      return false;
    if (known.rule.factors[f].reduce != ShardingRule::Reduce::sum) return false;
    if (by_segments_ && !keeps_segments(known.rule, sharding.segments, factor, degree_)) return false;
    return nests(known.rule.factors[f].size, f < sharding.factors.size() ? sharding.factors[f] : Cuts(),
                 {.outer = factor.outer, .of = factor.of});
  }

  OperandShardings operands_of(NodeId n, const CutFactor& factor) const {
    const ShardingRule& rule = rules_[n].rule;
    NodeSharding sharding;
    sharding.factors.resize(rule.factors.size());
    if (factor) sharding.factors[factor.factor] = {{.axes = axes_, .outer = factor.outer, .of = factor.of}};
    return operand_shardings(rule, sharding);
  }
  CutPosition position_of(const Sharding& sharding) const { return epl::position_of(sharding, axes_.front()); }

  // Bytes to gather those operands that do not lie as they are wanted.
  double gathering(const Region& region, const Node& node, const std::vector<CutPosition>& wanted) const {
    double all = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (!v || !region.at[v] || (!wanted.empty() && wanted[i] == region.at[v])) continue;
      if (!region.gathered.contains({v, node.phase})) all += others(v);
    }
    return all;
  }

  // Bytes that move where a node follows its operands.
  double cost_of(const Region& region, NodeId n, const CutFactor& factor) const {
    const Node& node = graph_.node(n);
    const OperandShardings operands = operands_of(n, factor);
    std::vector<CutPosition> wanted;
    for (const Sharding& input : operands.inputs) wanted.push_back(position_of(input));
    double cost = gathering(region, node, wanted);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] && scatters(region, node.inputs[i], wanted[i])) cost -= others(node.inputs[i]);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Value v = node.outputs[o];
      if (!operands.outputs[o].partial.empty()) cost += 2 * others(v);
      if (position_of(operands.outputs[o]) && !may_lie(v, position_of(operands.outputs[o]))) cost += others(v);
    }
    return cost;
  }
  // Whether a sum that is replicated so far is wanted in shards.
  bool scatters(const Region& region, Value v, const CutPosition& wanted) const {
    return sums_[v] && wanted && !region.at[v] && may_lie(v, wanted);
  }

  void follow(Region& region, NodeId n, const CutFactor& factor) const {
    const Node& node = graph_.node(n);
    const OperandShardings operands = operands_of(n, factor);
    region.factors[n] = factor;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (!v) continue;
      const CutPosition wanted = position_of(operands.inputs[i]);
      if (scatters(region, v, wanted)) {
        lay(region, v, wanted);
        for (const NodeId user : users_[v]) {  // those before have taken it in full
          const Node& before = graph_.node(user);
          if (user < n && region.gathered.insert({v, before.phase}).second) region.moved += others(v);
        }
      } else if (region.at[v] && region.at[v] != wanted) {
        region.gathered.insert({v, node.phase});
      }
    }
    for (size_t o = 0; o < node.outputs.size() && factor; ++o) {
      const CutPosition position = position_of(operands.outputs[o]);
      if (position && may_lie(node.outputs[o], position)) lay(region, node.outputs[o], position);
    }
  }

  void add_cut(Cuts& cuts, int64_t outer, int64_t of) const {
    cuts.insert(std::ranges::upper_bound(cuts, outer, {}, &AxisCut::outer), {.axes = axes_, .outer = outer, .of = of});
  }

  void write() {
    if (taken_.values == 0) {
      if (std::ranges::find(sums_, true) == sums_.end()) return;
      plan_.notes.push_back(cat("split.sequence: what lies between the nodes that ", degree_,
                                " ranks share out stays replicated on each of them: no dimension that it keeps has ",
                                by_segments_ ? "equal shards, which reproducible.level = layout needs" : "shards"));
      return;
    }
    plan_.notes.push_back(cat("split.sequence: ", taken_.values, " values between the nodes that ", degree_,
                              " ranks share out lie in shards too"));
    for (const NodeId n : graph_.node_ids()) {
      const CutFactor& factor = taken_.factors[n];
      if (!factor) continue;
      auto& factors = plan_.node_shardings[n].factors;
      const ExtendedRule& known = rules_[n];
      const size_t wanted = static_cast<size_t>(factor.factor) < known.added ? known.added : known.rule.factors.size();
      if (factors.size() < wanted) factors.resize(wanted);
      add_cut(factors[factor.factor], factor.outer, factor.of);
      plan_.explain(n, "in shards between cut nodes, as its operand is");
    }
    for (const Value v : taken_.at.ids()) {
      const CutPosition& position = taken_.at[v];
      if (position) add_cut(plan_.shardings[v].dims[position.dim], position.outer, position.of);
    }
  }

  Plan& plan_;
  const CostModel& cost_;
  const Graph& graph_;
  const int here_;               // the TaskGraph whose nodes it cuts
  const std::vector<int> axes_;  // over these, all of them together
  const Mesh& mesh_;
  const int64_t degree_;    // of the split
  const bool by_segments_;  // segments of a sum begin where no shard ends, which only equal shards grant
  const ByValue<std::vector<NodeId>> users_;
  const ByNode<ExtendedRule>& rules_;
  ByNode<bool> free_;   // replicated so far, and may follow
  ByValue<bool> sums_;  // a sum over the split is complete right behind its node
  ByValue<bool> kept_replicated_;
  ByValue<std::set<int>> joined_;  // factors of what is added when the sum is complete
  Region taken_;
};

}  // namespace

EPL_PASS(sequence) {
  return {.doc = "where split.sequence asks for it: cuts what lies between the nodes of a split, behind sums",
          .run = [](PassContext& c) -> Status {
            if (!c.plan.strategy.flag("split.sequence")) return {};
            if (c.plan.shardings.size() != c.plan.graph->value_count())
              return invalid("it needs place and propagate before it");
            for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
              if (!c.plan.task_graphs[t].split.empty()) Between(c.plan, c.cost, t).run();
            }
            return {};
          }};
}

}  // namespace epl
