// recompute: results of the forward pass that the backward pass computes again instead of keeping them
// (`gradient_checkpoint.type`; Chen et al. 2016, arXiv 1604.06174).
//
// A node that is computed again runs twice: where the plan has it, and behind that, in the backward pass, right before
// the first node that takes a result of it. It is cut as it was, draws the numbers that it drew, and has the same bits.
// So no option of a plan has to know. The first results are dropped when the forward pass has used them.
//
// Kept are leaves and everything that would have to be sent or summed again: sums over ranks or over the batch, results
// that come from other ranks, results that the caller gets. Nodes that ranks have alone and ops of the host run once.
//
// With `collection` the user names the values that are kept, or they are what TaskGraphs give each other. Else each
// stage is a problem of its own (core/strategy/recompute_stage.h), and a solver chooses.
#include <algorithm>
#include <cmath>

#include "core/strategy/node_cost.h"
#include "core/strategy/pass.h"
#include "core/strategy/recompute_stage.h"

namespace epl {
namespace {

class Recomputing {
 public:
  explicit Recomputing(PassContext& context)
      : plan_(context.plan),
        cost_(context.cost),
        graph_(*plan_.graph),
        users_(graph_.users()),
        may_(nodes_that_may(plan_)),
        taken_(graph_.value_count(), false),
        kept_(graph_.value_count(), false),
        solved_(context.request.solved ? *context.request.solved : own_solved_) {}

  // `bytes`: that a virtual device may have, by the problems of its stages; 0: as few as can be.
  Status run(bool collection, int64_t bytes) {
    if (std::ranges::none_of(graph_.nodes(), [](const Node& node) { return node.phase == Phase::backward; })) return {};
    for (const NodeId n : graph_.node_ids()) {
      if (!in_backward_pass(plan_, n)) continue;
      for (Value v : node(n).inputs) {
        if (const Value root = viewed(graph_, v); producer(root)) taken_[root] = true;
      }
    }
    if (collection) {
      EPL_TRY(keep_collection());
    } else {
      const ByNode<bool> may = may_;
      for (int s = 0; s < plan_.stages(); ++s) choose(s, may, static_cast<double>(bytes));
    }
    write();
    return {};
  }

 private:
  const Node& node(NodeId n) const { return graph_.node(n); }
  NodeId producer(Value v) const { return v ? graph_.value(v).producer : NodeId{}; }

  void choose(int s, const ByNode<bool>& may, double bytes) {
    const StageProblem made = stage_problem(plan_, cost_, s, may);
    std::optional<RecomputeChoice> choice;
    if (bytes > 0) choice = solved_.within(made.problem, bytes_of_stage(plan_, made.problem, s, bytes));
    if (!choice) choice = solved_.least(made.problem);
    for (size_t i = 0; i < made.nodes.size(); ++i) {
      if (choice->again[i]) continue;
      may_[made.nodes[i]] = false;
      // Nor is what looks at its results.
      for (Value v : node(made.nodes[i]).outputs) {
        if (v) kept_[v] = true;
      }
    }
    seconds_ += choice->seconds;
    least_seconds_ += choice->least_seconds;
  }

  // What is kept by name, and in front of the last of it what is computed again.
  Status keep_collection() {
    const std::vector<std::string> globs = comma_separated(plan_.strategy.text("gradient_checkpoint.tensors"));
    for (const std::string& glob : globs) {
      bool any = false;
      for (const Value v : graph_.value_ids()) {
        const NodeId n = producer(v);
        if (!n || !in_forward_pass(plan_, n) ||
            (!glob_match(glob, graph_.value(v).name) && !glob_match(glob, node(n).name)))
          continue;
        any = kept_[viewed(graph_, v)] = kept_[v] = true;
      }
      if (!any)
        return invalid("gradient_checkpoint.tensors: ", quoted(glob),
                       " names no result of the forward pass; epl plan prints all names");
    }
    if (globs.empty()) {
      for (const NodeId n : graph_.node_ids()) {
        for (Value v : node(n).inputs) {
          const NodeId from = producer(v);
          if (from && in_forward_pass(plan_, from) && in_forward_pass(plan_, n) &&
              plan_.node_task_graph[from] != plan_.node_task_graph[n])
            kept_[viewed(graph_, v)] = true;
        }
      }
    }
    ByNode<bool> in_front(graph_.node_count(), false);
    for (const NodeId n : graph_.node_ids().reversed()) {
      for (Value v : node(n).outputs) {
        if (!v) continue;
        const auto is_in_front = [&](NodeId user) { return in_forward_pass(plan_, user) && in_front[user]; };
        if (kept_[v] || std::ranges::any_of(users_[v], is_in_front)) in_front[n] = true;
      }
      // What lies behind all of them is needed at once, unless several micro-batches are in flight.
      if (!in_front[n] && in_flight_of(n) == 1) may_[n] = false;
    }
    return {};
  }
  double in_flight_of(NodeId n) const { return may_[n] ? micro_batches_in_flight(plan_, stage_of(plan_, n)) : 1; }

  // Of the candidates, those whose results the backward pass takes, or a node takes that is computed again.
  void write() {
    plan_.node_recomputed.assign(graph_.node_count(), false);
    double again = 0, all = 0, saved = 0;
    int count = 0;
    for (const NodeId n : graph_.node_ids().reversed()) {
      if (plan_.node_task_graph[n] == every_task_graph) continue;
      const double seconds = node_seconds(cost_, plan_, n, plan_.node_shardings[n]);
      all += seconds;
      const auto takes = [&](NodeId user) { return in_backward_pass(plan_, user) || plan_.node_recomputed[user]; };
      const auto is_taken = [&](Value v) { return v && std::ranges::any_of(users_[v], takes); };
      if (!may_[n] || std::ranges::any_of(node(n).outputs, [&](Value v) { return v && kept_[viewed(graph_, v)]; }) ||
          std::ranges::none_of(node(n).outputs, is_taken))
        continue;
      plan_.node_recomputed[n] = true;
      plan_.explain(n, "the backward pass computes it again, and does not keep it");
      again += seconds;
      for (Value v : node(n).outputs) {
        if (v && taken_[v]) saved += result_bytes(plan_, v);
      }
      ++count;
    }
    if (count == 0) plan_.node_recomputed = {};
    plan_.notes.push_back(
        count == 0
            ? cat("gradient_checkpoint.type: nothing is computed again, because no result that is kept would "
                  "leave memory for others")
            : cat("gradient_checkpoint.type: the backward pass computes ", count, " nodes again, ",
                  number_text(std::round(1000 * again / all) / 10), " % of the time of all kernels, and a ",
                  "micro-batch keeps ", grouped(static_cast<int64_t>(saved)), " bytes less on its ranks", bound()));
  }

  // How much less time another choice could take.
  std::string bound() const {
    if (seconds_ <= 0) return {};
    if (least_seconds_ <= 0) return "; how much less time another choice in as few bytes could take is not known";
    const double less = std::ceil(1000 * (seconds_ - least_seconds_) / seconds_ - 1e-6) / 10;
    return less <= 0 ? std::string("; in as few bytes nothing takes less time")
                     : cat("; in as few bytes nothing takes more than ", number_text(less), " % less time for it");
  }

  Plan& plan_;
  const CostModel& cost_;
  const Graph& graph_;
  const ByValue<std::vector<NodeId>> users_;
  ByNode<bool> may_;                        // be computed again
  ByValue<bool> taken_;                     // by the backward pass; by roots of views
  ByValue<bool> kept_;                      // the same
  double seconds_ = 0, least_seconds_ = 0;  // of what the solver has chosen, and of what it could have at least
  SolvedRecompute own_solved_;
  SolvedRecompute& solved_;
};

}  // namespace

EPL_PASS(recompute) {
  return {
      .doc = "results of the forward pass are computed again in the backward pass instead of being kept",
      .options = {{.name = "bytes",
                   .value = int64_t{0},
                   .doc = "least time within so many bytes of a rank, as the solver counts them; 0: by the strategy",
                   .range = {.from = 0, .to = 9e15}}},
      .run = [](PassContext& c) -> Status {
        const std::string type = c.plan.strategy.text("gradient_checkpoint.type");
        const int64_t bytes = c.options.integer("bytes");
        if (type == "budget" && bytes == 0) return {};
        if (type.empty() && bytes == 0) return {};
        if (c.plan.node_block.empty() && c.plan.graph->node_count() > 0) return invalid("it needs schedule before it");
        return Recomputing(c).run(type == "collection" && bytes == 0, bytes);
      }};
}

}  // namespace epl
