// propagate: which dimension of each value carries the batch, from the sharding rules of the ops.
//
// Forward: a node whose operands are cut follows them, also where samples are not the major part of a dimension.
// Backward: a value that is the same for every rank and micro-batch but is only used in shards (a broadcast gradient, a
// mask) is made in shards. Where a node couples the samples in a way that no cut follows, it is replicated on every
// rank, for which its operands are gathered. Micro-batches do not meet like this: the node is named, and the batch is
// not cut in time (decide).
#include <algorithm>

#include "core/strategy/batch_cut.h"
#include "core/strategy/pass.h"

namespace epl {
namespace {

class Propagation {
 public:
  Propagation(Plan& plan, const SamplePositions& outputs)
      : plan_(plan),
        outputs_(outputs),
        graph_(*plan.graph),
        units_(plan.units()),
        cut_(graph_.value_count()),
        factor_(graph_.node_count()),
        rules_(plan.rules->own) {}

  Status run() {
    for (Value v : graph_.leaves(ValueKind::input)) cut_[v].dim = graph_.value(v).batch_dim;
    for (const NodeId n : graph_.node_ids()) EPL_TRY(forward(n));
    make_in_shards();
    position_outputs();
    explain();
    write();
    return {};
  }

 private:
  std::vector<CutPosition> input_cuts(const Node& node) const {
    std::vector<CutPosition> cuts;
    for (Value v : node.inputs) cuts.push_back(v ? cut_[v] : CutPosition());
    return cuts;
  }

  Status forward(NodeId n) {
    const Node& node = graph_.node(n);
    BatchCut cut = follow_batch(rules_[n], input_cuts(node), units_);
    if (!cut.couples && !draws_in_order(node, cut)) {
      cut.couples = true;
      cut.why = "it draws random numbers in the order of the full tensor";
    }
    if (!cut.couples) {
      apply(n, cut);
      return {};
    }
    if (plan_.micro_batches() > 1 && !plan_.independent_micro_batches) {
      plan_.coupled = cat("node ", node.name, " (", node.op->name, ") couples the samples of the batch: ", cut.why);
      return several_micro_batches(plan_, node);
    }
    if (plan_.single_samples()) return {};
    plan_.notes.push_back(cat("node ", node.name, " sees the full ",
                              plan_.independent_micro_batches ? "micro-batch" : "batch",
                              shards() > 1 ? ", on every rank that has a part of it: " : ": ", cut.why));
    return {};
  }

  // The current samples are consecutive elements, which random numbers count.
  bool draws_in_order(const Node& node, const BatchCut& cut) const {
    if (!node.op->random || !cut.factor) return true;
    const CutPosition& position = cut.outputs[0];
    const Shape& shape = graph_.type(node.outputs[0]).shape;
    return position.outer == 1 &&
           std::all_of(shape.begin(), shape.begin() + position.dim, [](int64_t d) { return d == 1; });
  }

  void apply(NodeId n, const BatchCut& cut) {
    const Node& node = graph_.node(n);
    factor_[n] = cut.factor;
    if (!cut.factor) return;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!node.outputs[o]) continue;
      cut_[node.outputs[o]] = cut.outputs[o];
    }
  }

  // In reverse, so that the wishes of later nodes are known.
  void make_in_shards() {
    if (shards() == 1) return;
    auto users = graph_.users();
    ByValue<bool> pinned(graph_.value_count());
    for (const auto& output : graph_.outputs) pinned[output.value] = true;
    for (const auto& update : graph_.updates) pinned[update.next] = true;
    for (const NodeId n : graph_.node_ids().reversed()) {
      const Node& node = graph_.node(n);
      if (factor_[n] || node.op->random) continue;
      CutFactor factor;
      bool agreed = true;
      for (size_t o = 0; o < node.outputs.size() && agreed; ++o) {
        Value v = node.outputs[o];
        if (!v || (users[v].empty() && !pinned[v])) continue;
        const CutPosition position = wish(v, users[v]);
        const CutFactor wished = position ? factor_at(rules_[n], rules_[n].outputs[o], position) : CutFactor();
        agreed = !pinned[v] && wished && (!factor || wished == factor);
        if (agreed) factor = wished;
      }
      if (!agreed || !factor) continue;
      BatchCut cut = follow_batch(rules_[n], std::vector<CutPosition>(node.inputs.size()), units_, factor);
      bool sums = std::ranges::find(cut.outputs, CutPosition()) != cut.outputs.end();
      if (!cut.couples && !sums) apply(n, cut);
    }
  }

  // Where every use wants shards, or nowhere.
  CutPosition wish(Value v, const std::vector<NodeId>& users) const {
    CutPosition wanted;
    for (const NodeId user : users) {
      if (!factor_[user]) return {};
      const Node& node = graph_.node(user);
      BatchCut cut = follow_batch(rules_[user], std::vector<CutPosition>(node.inputs.size()), units_, factor_[user]);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != v) continue;
        if (!cut.inputs[i] || (wanted && wanted != cut.inputs[i])) return {};
        wanted = cut.inputs[i];
      }
    }
    return wanted;
  }

  void position_outputs() {
    for (const Graph::Output& output : graph_.outputs) {
      const auto known = outputs_.find(output.name);
      if (known != outputs_.end() && !cut_[output.value]) cut_[output.value] = known->second;
    }
  }

  void explain() {
    for (const NodeId n : graph_.node_ids()) {
      if (!factor_[n]) continue;
      const Node& node = graph_.node(n);
      const auto carries = std::ranges::find_if(node.inputs, [&](Value v) { return v && cut_[v]; });
      plan_.explain(n, carries == node.inputs.end() ? std::string("cut by samples, because it is used in shards alone")
                                                    : cat("cut by samples, as ", graph_.value(*carries).name, " is"));
    }
  }

  // Of the batch, with memory of their own, where it is cut most.
  int64_t shards() const {
    int64_t most = 1;
    for (int t = 0; t < std::ssize(plan_.task_graphs); ++t)
      most = std::max(most, plan_.mesh(t).shards(plan_.batch_of(t).cuts()));
    return most;
  }

  void write() {
    plan_.shardings.assign(graph_.value_count(), {});
    for (const Value v : graph_.value_ids()) {
      Sharding& sharding = plan_.shardings[v];
      sharding.dims.resize(graph_.type(v).ndim());
      if (cut_[v]) sharding.dims[cut_[v].dim] = plan_.batch_of(plan_.value_task_graph[v]).cuts_inside(cut_[v].outer);
    }
    plan_.node_shardings.assign(graph_.node_count(), {});
    for (const NodeId n : graph_.node_ids()) {
      if (!factor_[n]) continue;
      auto& factors = plan_.node_shardings[n].factors;
      factors.resize(rules_[n].factors.size());
      const int at = std::max(plan_.node_task_graph[n], 0);
      // All ranks of a virtual device number their samples in one way where they draw random numbers for them.
      const bool draws = graph_.node(n).op->random;
      const BatchLayout batch = draws ? plan_.batch_of_virtual_device(plan_.virtual_device_of(at)) : plan_.batch_of(at);
      factors[factor_[n].factor] = batch.cuts_inside(factor_[n].outer);
    }
  }

  Plan& plan_;
  const SamplePositions& outputs_;
  const Graph& graph_;
  int64_t units_;
  ByValue<CutPosition> cut_;
  ByNode<CutFactor> factor_;
  const ByNode<ShardingRule>& rules_;
};

}  // namespace

EPL_PASS(propagate) {
  return {.doc = "finds the dimension of every value that carries the batch",
          .run = [](PassContext& c) { return Propagation(c.plan, c.request.outputs).run(); }};
}

}  // namespace epl
