// flow: sums over ranks that nodes pass on.
//
// What a cut factor leaves to be summed is complete right behind its node, and costs an all-reduce. A node that only
// adds and moves its operands may as well add pieces of sums, which are summed once, behind it: of the gradients that
// queries, keys and values give to one value, one all-reduce is left of three. A value stays a sum that is due where
// all its users pass it on, on other ranks as well if these split alike: (p0 + p1) + (q0 + q1) has not the bits of
// (p0 + q0) + (p1 + q1), so where stages begin must not decide which of the two it is.
//
// A sum of which every user takes the same piece is a reduce-scatter: half of what an all-reduce moves, and no bit
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

  Status run() {
    for (int axis = 0; axis < static_cast<int>(plan_.mesh().axes.size()); ++axis) {
      axis_ = axis;
      if (std::ranges::none_of(plan_.task_graphs, [&](const TaskGraph& t) { return splits(t); })) continue;
      EPL_TRY(find());
      for (bool fewer = true; fewer;) fewer = drop();
      write();
    }
    return {};
  }

 private:
  static size_t index(Value v) { return static_cast<size_t>(v.index); }
  bool splits(const TaskGraph& t) const { return std::ranges::find(t.split, axis_) != t.split.end(); }
  bool due(Value v) const { return !v || due_[index(v)]; }

  // The sums that nodes leave, and those that they could pass on.
  Status find() {
    due_.assign(static_cast<size_t>(graph_.value_count()), false);
    passes_.assign(static_cast<size_t>(graph_.node_count()), false);
    for (int n = 0; n < graph_.node_count(); ++n) {
      const Node& node = graph_.node(NodeId{n});
      const NodeSharding& sharding = plan_.node_shardings[static_cast<size_t>(n)];
      const int at = plan_.node_task_graph[static_cast<size_t>(n)];
      if (at == every_task_graph || !splits(plan_.task_graphs[static_cast<size_t>(at)])) continue;
      if (sharding.cut_by(axis_)) {
        EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan_, NodeId{n}));
        if (operands.added_later >= 0) continue;
        for (size_t o = 0; o < node.outputs.size(); ++o) {
          const Partial sum{axis_, ShardingRule::Reduce::sum};
          const auto& partial = operands.outputs[o].partial;
          due_[index(node.outputs[o])] = std::ranges::find(partial, sum) != partial.end();
        }
      } else if (could_pass(node)) {
        passes_[static_cast<size_t>(n)] = true;
        due_[index(node.outputs[0])] = true;
      }
    }
    return {};
  }

  // Over how many ranks the TaskGraph of a value splits; 0: it does not.
  int64_t pieces(Value v) const {
    const int at = plan_.value_task_graph[index(v)];
    return splits(plan_.task_graphs[static_cast<size_t>(at)]) ? plan_.mesh(at).axes[static_cast<size_t>(axis_)].size
                                                              : 0;
  }

  bool could_pass(const Node& node) const {
    if (node.outputs.size() != 1 || node.inputs.empty() || !is_float(graph_.type(node.outputs[0]).dtype)) return false;
    int64_t bytes = 0;
    for (Value v : node.inputs) {
      if (!v || !due(v) || pieces(v) != pieces(node.outputs[0])) return false;
      bytes += graph_.type(v).bytes();
    }
    return graph_.type(node.outputs[0]).bytes() <= bytes && adds_and_moves(graph_, node);
  }

  // One round: what is asked for complete, and nodes of which an operand is.
  bool drop() {
    bool any = false;
    for (int n = 0; n < graph_.node_count(); ++n) {
      if (passes_[static_cast<size_t>(n)] &&
          !std::ranges::all_of(graph_.node(NodeId{n}).inputs, [&](Value v) { return due(v) && stays(v); })) {
        passes_[static_cast<size_t>(n)] = false;
        due_[index(graph_.node(NodeId{n}).outputs[0])] = false;
        any = true;
      }
    }
    return any;
  }

  // All its users pass it on.
  bool stays(Value v) const {
    const auto is = [&](Value other) { return other == v; };
    return std::ranges::none_of(graph_.outputs, is, &Graph::Output::value) &&
           std::ranges::none_of(graph_.updates, is, &Graph::Update::next) && !users_[index(v)].empty() &&
           std::ranges::all_of(users_[index(v)], [&](int32_t n) { return passes_[static_cast<size_t>(n)]; });
  }

  void write() {
    for (int n = 0; n < graph_.node_count(); ++n) {
      if (!passes_[static_cast<size_t>(n)]) continue;
      plan_.node_shardings[static_cast<size_t>(n)].flowing.push_back(axis_);
      for (Value v : graph_.node(NodeId{n}).inputs) {
        auto& partial = plan_.shardings[index(v)].partial;
        const Partial sum{axis_, ShardingRule::Reduce::sum};
        if (std::ranges::find(partial, sum) == partial.end()) partial.push_back(sum);
      }
    }
  }

  Plan& plan_;
  const Graph& graph_;
  const std::vector<std::vector<int32_t>> users_;  // by value
  int axis_ = 0;                                   // at hand
  std::vector<bool> due_;                          // by value: what its node gives is a sum over axis_ that is due
  std::vector<bool> passes_;                       // by node: it passes such sums on
};

// Sums of which every user takes the same piece: they are stored in these pieces, so that a rank gets the sum of its
// own. So come the answers of experts that are cut over ranks, each of which goes on with its own samples.
class Scattering {
 public:
  explicit Scattering(Plan& plan) : plan_(plan), graph_(*plan.graph), users_(graph_.users()), given_(users_.size()) {
    for (const Graph::Output& output : graph_.outputs) given_[index(output.value)] = true;
    for (const Graph::Update& update : graph_.updates) given_[index(update.next)] = true;
  }

  Status run() {
    for (int n = 0; n < graph_.node_count(); ++n) {
      const int at = plan_.node_task_graph[static_cast<size_t>(n)];
      if (at == every_task_graph || !plan_.node_shardings[static_cast<size_t>(n)].cut()) continue;
      const Node& node = graph_.node(NodeId{n});
      EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan_, NodeId{n}));
      for (size_t o = 0; o < node.outputs.size() && operands.added_later < 0; ++o) {
        if (!is_sum_over_ranks(operands.outputs[o], at)) continue;
        EPL_ASSIGN(const std::optional<Sharding> wanted, piece_of_users(node.outputs[o]));
        if (!wanted || !cuts_by(*wanted, operands.outputs[o].partial)) continue;
        plan_.shardings[index(node.outputs[o])] = *wanted;
        plan_.explain(n, "its sum is scattered, because all that read it take the same pieces");
      }
    }
    return {};
  }

 private:
  static size_t index(Value v) { return static_cast<size_t>(v.index); }

  // Over ranks that have the same samples.
  bool is_sum_over_ranks(const Sharding& made, int task_graph) const {
    const Cuts batch = plan_.batch_of(task_graph);
    return !made.partial.empty() && std::ranges::all_of(made.partial, [&](const Partial& partial) {
      return partial.kind == ShardingRule::Reduce::sum && !find_cut(batch, partial.axis);
    });
  }
  static bool cuts_by(const Sharding& sharding, const std::vector<Partial>& partial) {
    return std::ranges::all_of(partial, [&](const Partial& p) { return sharding.cut_dim(p.axis) >= 0; });
  }

  // What all users on the same ranks want of it; none where they differ, or where somebody else gets it.
  Result<std::optional<Sharding>> piece_of_users(Value v) const {
    std::optional<Sharding> wanted;
    if (given_[index(v)] || !plan_.shardings[index(v)].partial.empty()) return wanted;
    for (const int32_t user : users_[index(v)]) {
      const Node& node = graph_.node(NodeId{user});
      const int at = plan_.node_task_graph[static_cast<size_t>(user)];
      if (at == every_task_graph || node.op->takes_any_operands || plan_.class_of(at) != plan_.class_of(v))
        return std::optional<Sharding>();
      EPL_ASSIGN(const OperandShardings operands, operand_shardings(plan_, NodeId{user}));
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != v) continue;
        const Sharding& here = operands.inputs[i];
        if (!here.partial.empty() || here.uneven() || (wanted && *wanted != here)) return std::optional<Sharding>();
        wanted = here;
      }
    }
    return wanted;
  }

  Plan& plan_;
  const Graph& graph_;
  const std::vector<std::vector<int32_t>> users_;  // by value
  std::vector<bool> given_;                        // by value: to the caller, or as new state
};

}  // namespace

EPL_PASS(flow) {
  return {.doc = "lets sums over ranks flow through nodes that only add and move them",
          .run = [](PassContext& c) -> Status {
            if (static_cast<int>(c.plan.shardings.size()) != c.plan.graph->value_count())
              return invalid("it needs place and propagate before it");
            // Of segments each sum is a tree of its own; to scatter it changes nothing.
            if (!sums_by_segments(c.plan)) EPL_TRY(Flow(c.plan).run());
            return Scattering(c.plan).run();
          }};
}

}  // namespace epl
