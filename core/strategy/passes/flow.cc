// flow: sums over ranks that nodes pass on.
//
// What a cut factor leaves to be summed is complete right behind its node, and costs an all-reduce. A node that only
// adds and moves its operands may as well add shards of sums, which are summed once, behind it: of the gradients that
// queries, keys and values give to one value, one all-reduce is left of three. A value stays a sum that is pending
// where all its users pass it on, on other ranks as well if these split alike: (p0 + p1) + (q0 + q1) has not the bits
// of (p0 + q0) + (p1 + q1), so where stages begin must not decide which of the two it is.
//
// A sum of which every user takes the same shard is a reduce-scatter: half of what an all-reduce moves, and no bit
// else.
#include <algorithm>
#include <optional>

#include "core/strategy/linear.h"
#include "core/strategy/pass.h"
#include "core/strategy/segments.h"

namespace epl {
namespace {

class Flow {
 public:
  explicit Flow(Plan& plan) : plan_(plan), graph_(*plan.graph), users_(graph_.users()) {}

  void run() {
    for (int axis = 0; axis < std::ssize(plan_.mesh().axes); ++axis) {
      axis_ = axis;
      if (std::ranges::none_of(plan_.task_graphs, [&](const TaskGraph& t) { return splits(t); })) continue;
      find();
      for (bool fewer = true; fewer;) fewer = drop();
      write();
    }
  }

 private:
  bool splits(const TaskGraph& t) const { return std::ranges::find(t.split, axis_) != t.split.end(); }
  bool pending(Value v) const { return !v || pending_[v]; }

  // The sums that nodes leave, and those that they could pass on.
  void find() {
    pending_.assign(graph_.value_count(), false);
    passes_.assign(graph_.node_count(), false);
    for (const NodeId n : graph_.node_ids()) {
      const Node& node = graph_.node(n);
      const NodeSharding& sharding = plan_.node_shardings[n];
      const int at = plan_.node_task_graph[n];
      if (at == every_task_graph || !splits(plan_.task_graphs[at])) continue;
      if (sharding.cut_by(axis_)) {
        const OperandShardings operands = operand_shardings(plan_, n);
        if (operands.added_later >= 0) continue;
        for (size_t o = 0; o < node.outputs.size(); ++o) {
          const Partial sum{axis_, ShardingRule::Reduce::sum};
          const auto& partial = operands.outputs[o].partial;
          pending_[node.outputs[o]] = std::ranges::find(partial, sum) != partial.end();
        }
      } else if (could_pass(node)) {
        passes_[n] = true;
        pending_[node.outputs[0]] = true;
      }
    }
  }

  // Over how many ranks the TaskGraph of a value splits; 0: it does not.
  int64_t shards(Value v) const {
    const int at = plan_.value_task_graph[v];
    return splits(plan_.task_graphs[at]) ? plan_.mesh(at).axes[axis_].size : 0;
  }

  bool could_pass(const Node& node) const {
    if (node.outputs.size() != 1 || node.inputs.empty() || !is_float(graph_.type(node.outputs[0]).dtype)) return false;
    int64_t bytes = 0;
    for (Value v : node.inputs) {
      if (!v || !pending(v) || shards(v) != shards(node.outputs[0])) return false;
      bytes += graph_.type(v).bytes();
    }
    return graph_.type(node.outputs[0]).bytes() <= bytes && adds_and_moves(graph_, node);
  }

  // One round: what is asked for complete, and nodes of which an operand is.
  bool drop() {
    bool any = false;
    for (const NodeId n : graph_.node_ids()) {
      if (passes_[n] && !std::ranges::all_of(graph_.node(n).inputs, [&](Value v) { return pending(v) && stays(v); })) {
        passes_[n] = false;
        pending_[graph_.node(n).outputs[0]] = false;
        any = true;
      }
    }
    return any;
  }

  // All its users pass it on.
  bool stays(Value v) const {
    const auto is = [&](Value other) { return other == v; };
    return std::ranges::none_of(graph_.outputs, is, &Graph::Output::value) &&
           std::ranges::none_of(graph_.updates, is, &Graph::Update::next) && !users_[v].empty() &&
           std::ranges::all_of(users_[v], [&](NodeId n) { return passes_[n]; });
  }

  void write() {
    for (const NodeId n : graph_.node_ids()) {
      if (!passes_[n]) continue;
      plan_.node_shardings[n].flowing.push_back(axis_);
      for (Value v : graph_.node(n).inputs) {
        auto& partial = plan_.shardings[v].partial;
        const Partial sum{axis_, ShardingRule::Reduce::sum};
        if (std::ranges::find(partial, sum) == partial.end()) partial.push_back(sum);
      }
    }
  }

  Plan& plan_;
  const Graph& graph_;
  const ByValue<std::vector<NodeId>> users_;
  int axis_ = 0;           // the current one
  ByValue<bool> pending_;  // what its node gives is a sum over axis_ that is pending
  ByNode<bool> passes_;    // it passes such sums on
};

// Sums of which every user takes the same shard: they are stored in these shards, so that a rank gets the sum of its
// own. So come the answers of experts that are cut over ranks, each of which goes on with its own samples.
class Scattering {
 public:
  explicit Scattering(Plan& plan) : plan_(plan), graph_(*plan.graph), users_(graph_.users()), given_(users_.size()) {
    for (const Graph::Output& output : graph_.outputs) given_[output.value] = true;
    for (const Graph::Update& update : graph_.updates) given_[update.next] = true;
  }

  void run() {
    for (const NodeId n : graph_.node_ids()) {
      const int at = plan_.node_task_graph[n];
      if (at == every_task_graph || !plan_.node_shardings[n].cut()) continue;
      const Node& node = graph_.node(n);
      const OperandShardings operands = operand_shardings(plan_, n);
      for (size_t o = 0; o < node.outputs.size() && operands.added_later < 0; ++o) {
        if (!is_sum_over_ranks(operands.outputs[o], at)) continue;
        const std::optional<Sharding> wanted = shard_of_users(node.outputs[o]);
        if (!wanted || !cuts_by(*wanted, operands.outputs[o].partial)) continue;
        plan_.shardings[node.outputs[o]] = *wanted;
        plan_.explain(n, "its sum is scattered, because all that read it take the same shards");
      }
    }
  }

 private:
  // Over ranks that have the same samples.
  bool is_sum_over_ranks(const Sharding& made, int task_graph) const {
    const BatchLayout batch = plan_.batch_of(task_graph);
    return !made.partial.empty() && std::ranges::all_of(made.partial, [&](const Partial& partial) {
      return partial.kind == ShardingRule::Reduce::sum && !batch.cuts_over(partial.axis);
    });
  }
  static bool cuts_by(const Sharding& sharding, const std::vector<Partial>& partial) {
    return std::ranges::all_of(partial, [&](const Partial& p) { return sharding.cut_dim(p.axis) >= 0; });
  }

  // What all users on the same ranks want of it; none where they differ, or where somebody else gets it.
  std::optional<Sharding> shard_of_users(Value v) const {
    std::optional<Sharding> wanted;
    if (given_[v] || !plan_.shardings[v].partial.empty()) return wanted;
    for (const NodeId user : users_[v]) {
      const Node& node = graph_.node(user);
      const int at = plan_.node_task_graph[user];
      if (at == every_task_graph || node.op->takes_any_operands ||
          plan_.virtual_device_of(at) != plan_.virtual_device_of(v))
        return std::nullopt;
      const OperandShardings operands = operand_shardings(plan_, user);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != v) continue;
        const Sharding& here = operands.inputs[i];
        if (!here.partial.empty() || here.uneven() || (wanted && *wanted != here)) return std::nullopt;
        wanted = here;
      }
    }
    return wanted;
  }

  Plan& plan_;
  const Graph& graph_;
  const ByValue<std::vector<NodeId>> users_;
  ByValue<bool> given_;  // to the caller, or as new state
};

}  // namespace

EPL_PASS(flow) {
  return {.doc = "lets sums over ranks flow through nodes that only add and move them",
          .run = [](PassContext& c) -> Status {
            if (c.plan.shardings.size() != c.plan.graph->value_count())
              return invalid("it needs place and propagate before it");
            // Of segments each sum is a tree of its own; to scatter it changes nothing.
            if (!sums_by_segments(c.plan)) Flow(c.plan).run();
            Scattering(c.plan).run();
            return {};
          }};
}

}  // namespace epl
