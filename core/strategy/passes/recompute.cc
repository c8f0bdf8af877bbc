// recompute: results of the forward pass that the backward pass computes again instead of keeping them
// (`gradient_checkpoint.type`; Chen et al. 2016, arXiv 1604.06174).
//
// A node that is computed again runs twice: where the plan has it, and behind that, in the backward pass, right before
// the first node that takes a result of it. It is cut as it was, draws the numbers that it drew, and has the same bits.
// So no option of a plan has to know. The first results are dropped when the forward pass has used them.
//
// Kept are leaves, the values that cut a stage into segments, and everything that would have to be sent or summed
// again: sums over ranks or over the batch, results that come from other ranks, results that the caller gets. Nodes
// that ranks have alone and ops of the host run once.
//
// With `collection` the user names the values that are kept, or they are what TaskGraphs give each other. With `auto`
// the nodes of a stage are a chain, in their order. At each position some bytes cross from the nodes before it to those
// behind it, and each segment between two positions takes some bytes while the backward pass is in it. The positions
// chosen are those with the least sum of what crosses, once for each micro-batch in flight, and of the largest
// segment. For one largest segment they are a shortest path; about 40 sizes of it are tried.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/strategy/node_cost.h"
#include "core/strategy/pass.h"

namespace epl {
namespace {

constexpr int segment_sizes = 40, price_classes = 12;

// The nodes of one stage that run in its forward pass, and what of their results the backward pass takes.
class Chain {
 public:
  // What a position costs: bytes that cross it, and bytes of results that the backward pass takes, up to it.
  struct Position {
    double crossing = 0, taken = 0;
  };

  explicit Chain(std::vector<Position> positions) : positions_(std::move(positions)) {}

  // Where the stage is cut if no segment takes more than `share` of what all take; none: it cannot be cut so.
  std::vector<int> cuts(double share) const {
    const int end = static_cast<int>(positions_.size()) - 1;
    const std::optional<Path> path = shortest(narrow_positions(), share * positions_[end].taken, end);
    return path ? path->cuts : std::vector<int>();
  }

  // Where the stage is cut, ascending; none where nothing is gained. What is behind the last cut is computed again only
  // where several micro-batches are in flight (`in_flight`).
  std::vector<int> best_cuts(double in_flight) const {
    std::vector<int> best;
    const int end = static_cast<int>(positions_.size()) - 1;
    const std::vector<int> narrow = narrow_positions();
    const double all = positions_.empty() ? 0 : positions_[end].taken;
    double least = in_flight * all;
    for (int i = 0; i < segment_sizes; ++i) {
      const double largest = all * (i + 1) / segment_sizes;
      const std::optional<Path> path = shortest(narrow, largest, end);
      if (!path || in_flight * path->crossing + largest >= least) continue;
      least = in_flight * path->crossing + largest;
      best = path->cuts;
    }
    return best;
  }

 private:
  struct Path {
    double crossing = 0;
    std::vector<int> cuts;
  };

  // Those where no more bytes cross than beside them; of many, those with least.
  std::vector<int> narrow_positions() const {
    constexpr size_t most = 400;
    std::vector<int> out;
    for (int p = 0; p + 1 < std::ssize(positions_); ++p) {
      const bool before = p == 0 || positions_[p].crossing <= positions_[p - 1].crossing;
      if (before && positions_[p].crossing <= positions_[p + 1].crossing) out.push_back(p);
    }
    if (out.size() > most) {
      std::ranges::stable_sort(out, {}, [&](int p) { return positions_[p].crossing; });
      out.resize(most);
      std::ranges::sort(out);
    }
    return out;
  }

  // The cuts over which least crosses, where no segment takes more than `largest`.
  std::optional<Path> shortest(const std::vector<int>& narrow, double largest, int end) const {
    constexpr double none = std::numeric_limits<double>::infinity();
    std::vector<int> at = narrow;
    at.push_back(end);
    std::vector<double> cost(at.size(), none);
    std::vector<int> from(at.size(), -1);
    for (size_t q = 0; q < at.size(); ++q) {
      const double here = q + 1 == at.size() ? 0 : positions_[at[q]].crossing;
      if (positions_[at[q]].taken <= largest) cost[q] = here;
      for (size_t p = 0; p < q; ++p) {
        if (positions_[at[q]].taken - positions_[at[p]].taken > largest || cost[p] + here >= cost[q]) continue;
        cost[q] = cost[p] + here;
        from[q] = static_cast<int>(p);
      }
    }
    if (cost.back() == none) return {};
    Path path{.crossing = cost.back()};
    for (int q = from.back(); q >= 0; q = from[q]) path.cuts.push_back(at[q]);
    std::ranges::reverse(path.cuts);
    return path;
  }

  std::vector<Position> positions_;
};

class Recomputing {
 public:
  explicit Recomputing(PassContext& context)
      : plan_(context.plan),
        cost_(context.cost),
        graph_(*plan_.graph),
        users_(graph_.users()),
        may_(graph_.node_count(), false),
        taken_(graph_.value_count(), false),
        kept_(graph_.value_count(), false) {}

  Status run(bool collection, int64_t segments, int64_t cheap) {
    if (std::ranges::none_of(graph_.nodes(), [](const Node& node) { return node.phase == Phase::backward; })) return {};
    find_candidates();
    if (cheap > 0) {
      keep_expensive(cheap);
    } else if (!collection) {
      for (int s = 0; s < plan_.stages(); ++s) cut_stage(s, static_cast<double>(segments) / segment_sizes);
    } else {
      EPL_TRY(keep_collection());
    }
    write();
    return {};
  }

 private:
  const Node& node(NodeId n) const { return graph_.node(n); }
  NodeId producer(Value v) const { return v ? graph_.value(v).producer : NodeId{}; }
  bool in_forward(NodeId n) const {
    const BlockKind block = plan_.node_block[n];
    return node(n).phase == Phase::forward && (block == BlockKind::main || block == BlockKind::forward);
  }
  bool in_backward(NodeId n) const {
    const BlockKind block = plan_.node_block[n];
    return node(n).phase == Phase::backward &&
           (block == BlockKind::main || block == BlockKind::backward || block == BlockKind::weight);
  }
  int stage(NodeId n) const { return plan_.task_graphs[plan_.node_task_graph[n]].stage; }

  void find_candidates() {
    ByValue<bool> given(graph_.value_count());
    for (const Graph::Output& output : graph_.outputs) given[output.value] = true;
    for (const Graph::Update& update : graph_.updates) given[update.next] = true;
    const int64_t last = plan_.strategy.integer("gradient_checkpoint.end_taskgraph");
    for (const NodeId n : graph_.node_ids()) {
      const int at = plan_.node_task_graph[n];
      if (at == every_task_graph || !in_forward(n) || (last >= 0 && at > last)) continue;
      // An op of the host is called once in a step.
      if (op_table().find(node(n).op->name) != node(n).op || plan_.node_shardings[n].rank_local) continue;
      const OperandShardings operands = operand_shardings(plan_, n);
      bool complete = operands.added_later < 0;
      for (size_t o = 0; o < node(n).outputs.size(); ++o) {
        const Value v = node(n).outputs[o];
        // A mean over micro-batches is taken of what the first run has given.
        const bool mean = v && plan_.alone(v) && plan_.shardings[v].cut_dim(batch_axis) < 0;
        complete = complete && operands.outputs[o].partial.empty() && !(v && given[v]) && !mean;
      }
      may_[n] = complete;
    }
    for (const NodeId n : graph_.node_ids()) {
      if (plan_.node_task_graph[n] == every_task_graph || !in_backward(n)) continue;
      for (Value v : node(n).inputs) {
        if (v && producer(root(v))) taken_[root(v)] = true;
      }
    }
  }

  // A view has the bytes of what it looks at.
  Value root(Value v) const {
    while (producer(v) && node(producer(v)).op->view) v = node(producer(v)).inputs[0];
    return v;
  }
  double bytes(Value v) const {
    return local_bytes(plan_, plan_.node_task_graph[producer(v)], graph_.type(v), plan_.shardings[v]);
  }

  // Micro-batches whose forward calls of a stage have ended and whose backward calls have not begun, at most.
  double in_flight(int stage) const {
    int64_t most = 1, now = 0;
    for (const BlockCall& call : plan_.calls[virtual_device_of_stage(stage)]) {
      if (call.stage != stage) continue;
      if (call.block == BlockKind::forward) most = std::max(most, ++now);
      if (call.block == BlockKind::backward) --now;
    }
    return static_cast<double>(most);
  }
  int virtual_device_of_stage(int stage) const {
    return std::ranges::find(plan_.task_graphs, stage, &TaskGraph::stage)->virtual_device;
  }

  // The position of each node among those of its stage, and what its results cost there.
  void cut_stage(int s, double share) {
    std::vector<NodeId> nodes;
    ByNode<int> position(graph_.node_count(), -1);
    for (const NodeId n : graph_.node_ids()) {
      if (!in_forward(n) || plan_.node_task_graph[n] == every_task_graph || stage(n) != s) continue;
      position[n] = static_cast<int>(nodes.size());
      nodes.push_back(n);
    }
    if (nodes.empty()) return;
    ByValue<int> last_use(graph_.value_count(), -1);
    for (const NodeId n : nodes) {
      for (Value v : node(n).inputs) {
        v = root(v);
        if (!producer(v) || position[producer(v)] < 0 || !may_[producer(v)]) continue;
        last_use[v] = std::max(last_use[v], position[n]);
      }
    }
    std::vector<Chain::Position> positions(nodes.size());
    for (const Value v : last_use.ids()) {
      if (!producer(v) || position[producer(v)] < 0) continue;
      const int made = position[producer(v)];
      if (taken_[v] && may_[producer(v)]) positions[made].taken += bytes(v);
      if (last_use[v] <= made) continue;
      positions[made].crossing += bytes(v);
      positions[last_use[v]].crossing -= bytes(v);
    }
    for (size_t p = 1; p < positions.size(); ++p) {
      positions[p].crossing += positions[p - 1].crossing;
      positions[p].taken += positions[p - 1].taken;
    }
    const double flying = in_flight(s);
    const Chain chain(std::move(positions));
    const std::vector<int> cuts = share > 0 ? chain.cuts(share) : chain.best_cuts(flying);
    for (const Value v : last_use.ids()) {
      if (last_use[v] < 0) continue;
      const auto cut = std::ranges::lower_bound(cuts, position[producer(v)]);
      if (cut != cuts.end() && *cut < last_use[v]) kept_[v] = true;
    }
    // The last segment is needed at once.
    const int end = cuts.empty() ? -1 : cuts.back();
    for (const NodeId n : nodes) {
      if (position[n] > end && (flying == 1 || cuts.empty())) may_[n] = false;
    }
  }

  // A node is computed again if that takes no more time for each byte than a price. At the price, the cheapest results
  // that the backward pass takes are so many of 12 equal parts of all their bytes.
  void keep_expensive(int64_t cheap) {
    const auto price = [&](NodeId n) {
      double here = 0;
      for (Value v : node(n).outputs) here += v ? bytes(v) : 0;
      return node_seconds(cost_, plan_, n, plan_.node_shardings[n]) / std::max(here, 1.0);
    };
    std::vector<std::pair<double, double>> priced;  // and bytes
    double total = 0;
    for (const Value v : taken_.ids()) {
      if (!taken_[v] || !may_[producer(v)]) continue;
      priced.emplace_back(price(producer(v)), bytes(v));
      total += bytes(v);
    }
    std::ranges::sort(priced);
    double most = 0, before = 0;
    for (const auto& [one, bytes] : priced) {
      before += bytes;
      if (before <= total * static_cast<double>(cheap) / price_classes) most = one;
    }
    for (const NodeId n : graph_.node_ids()) may_[n] = may_[n] && (node(n).op->view || price(n) <= most);
  }

  // What is kept by name, and in front of the last of it what is computed again.
  Status keep_collection() {
    const std::vector<std::string> globs = comma_separated(plan_.strategy.text("gradient_checkpoint.tensors"));
    for (const std::string& glob : globs) {
      bool any = false;
      for (const Value v : graph_.value_ids()) {
        const NodeId n = producer(v);
        if (!n || !in_forward(n) || (!glob_match(glob, graph_.value(v).name) && !glob_match(glob, node(n).name)))
          continue;
        any = kept_[root(v)] = kept_[v] = true;
      }
      if (!any)
        return invalid("gradient_checkpoint.tensors: ", quoted(glob),
                       " names no result of the forward pass; epl plan prints all names");
    }
    if (globs.empty()) {
      for (const NodeId n : graph_.node_ids()) {
        for (Value v : node(n).inputs) {
          const NodeId from = producer(v);
          if (from && in_forward(from) && in_forward(n) && plan_.node_task_graph[from] != plan_.node_task_graph[n])
            kept_[root(v)] = true;
        }
      }
    }
    ByNode<bool> in_front(graph_.node_count(), false);
    for (const NodeId n : graph_.node_ids().reversed()) {
      for (Value v : node(n).outputs) {
        if (!v) continue;
        const auto is_in_front = [&](NodeId user) { return in_forward(user) && in_front[user]; };
        if (kept_[v] || std::ranges::any_of(users_[v], is_in_front)) in_front[n] = true;
      }
      // What lies behind all of them is needed at once, unless several micro-batches are in flight.
      if (!in_front[n] && in_flight_of(n) == 1) may_[n] = false;
    }
    return {};
  }
  double in_flight_of(NodeId n) const { return may_[n] && node(n).phase == Phase::forward ? in_flight(stage(n)) : 1; }

  // Of the candidates, those whose results the backward pass takes, or a node takes that is computed again.
  void write() {
    plan_.node_recomputed.assign(graph_.node_count(), false);
    double again = 0, all = 0, saved = 0;
    int count = 0;
    for (const NodeId n : graph_.node_ids().reversed()) {
      if (plan_.node_task_graph[n] == every_task_graph) continue;
      const double seconds = node_seconds(cost_, plan_, n, plan_.node_shardings[n]);
      all += seconds;
      const auto takes = [&](NodeId user) { return in_backward(user) || plan_.node_recomputed[user]; };
      const auto is_taken = [&](Value v) { return v && std::ranges::any_of(users_[v], takes); };
      if (!may_[n] || std::ranges::any_of(node(n).outputs, [&](Value v) { return v && kept_[root(v)]; }) ||
          std::ranges::none_of(node(n).outputs, is_taken))
        continue;
      plan_.node_recomputed[n] = true;
      plan_.explain(n, "the backward pass computes it again, and does not keep it");
      again += seconds;
      for (Value v : node(n).outputs) {
        if (v && taken_[v]) saved += bytes(v);
      }
      ++count;
    }
    if (count == 0) plan_.node_recomputed = {};
    plan_.notes.push_back(
        count == 0 ? cat("gradient_checkpoint.type: nothing is computed again, because no result that is kept would "
                         "leave memory for others")
                   : cat("gradient_checkpoint.type: the backward pass computes ", count, " nodes again, ",
                         number_text(std::round(1000 * again / all) / 10), " % of the time of all kernels, and a ",
                         "micro-batch keeps ", grouped(static_cast<int64_t>(saved)), " bytes less on its ranks"));
  }

  Plan& plan_;
  const CostModel& cost_;
  const Graph& graph_;
  const ByValue<std::vector<NodeId>> users_;
  ByNode<bool> may_;     // be computed again
  ByValue<bool> taken_;  // by the backward pass; by roots of views
  ByValue<bool> kept_;   // the same
};

}  // namespace

EPL_PASS(recompute) {
  return {
      .doc = "results of the forward pass are computed again in the backward pass instead of being kept",
      .options = {{.name = "segments",
                   .value = int64_t{0},
                   .doc = "cut a stage so that no segment takes more than so many 40ths of all; 0: by the strategy",
                   .range = {.from = 0, .to = segment_sizes}},
                  {.name = "cheap",
                   .value = int64_t{0},
                   .doc = "compute again what takes least time for each byte, so many 12ths of the bytes; 0: by the "
                          "strategy",
                   .range = {.from = 0, .to = price_classes}},
                  {.name = "least", .value = false, .doc = "as gradient_checkpoint.type auto"}},
      .run = [](PassContext& c) -> Status {
        const std::string type = c.plan.strategy.text("gradient_checkpoint.type");
        const int64_t segments = c.options.integer("segments"), cheap = c.options.integer("cheap");
        const bool told = segments > 0 || cheap > 0 || c.options.flag("least");
        if (type == "budget" && !told) return {};
        if (type.empty() && !told) {
          if (c.plan.strategy.text("gradient_checkpoint.tensors").empty()) return {};
          return invalid("gradient_checkpoint.tensors names what is kept, and gradient_checkpoint.type is not set; ",
                         "say \"collection\"");
        }
        if (c.plan.node_block.empty() && c.plan.graph->node_count() > 0) return invalid("it needs schedule before it");
        return Recomputing(c).run(type == "collection" && !told, segments, cheap);
      }};
}

}  // namespace epl
