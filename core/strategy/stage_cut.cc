#include "core/strategy/stage_cut.h"

#include <algorithm>
#include <limits>
#include <map>

#include "core/base/text.h"
#include "core/ir/op.h"
#include "core/strategy/node_cost.h"

namespace epl {

std::string_view layer_of(std::string_view name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto separates = [](char c) { return c == '.' || c == '/'; };
  for (size_t i = 1; i + 1 < name.size(); ++i) {
    if (!is_digit(name[i]) || !separates(name[i - 1])) continue;
    size_t end = i;
    while (end < name.size() && is_digit(name[end])) ++end;
    if (end < name.size() && separates(name[end])) return name.substr(0, end);
    i = end;
  }
  return {};
}

namespace {

constexpr double slack = 1.05;
constexpr int nowhere = -1;

class Stages {
 public:
  Stages(const Graph& graph, const StageJob& job, const CostModel& cost, const Plan* first)
      : graph_(graph), job_(job), model_(cost), first_(first), count_(job.stages) {
    found_.node_stage.assign(graph_.node_count(), nowhere);
  }

  Result<StageCut> run() {
    if (first_) {
      follow_first_entry();
    } else {
      find_order();
      if (static_cast<int>(units()) < count_)
        return invalid("pipeline.num_stages: ", units(), " nodes cannot be ", count_, " stages");
      weigh();
      cut();
    }
    place_the_rest();
    return std::move(found_);
  }

 private:
  const Node& node(NodeId n) const { return graph_.node(n); }
  int& stage(NodeId n) { return found_.node_stage[n]; }
  bool forward(NodeId n) const { return node(n).phase == Phase::forward; }

  // Nodes of the forward pass that depend on inputs. The parts of a composite are one unit: its backward pass takes
  // from all of them, and so they stay together.
  void find_order() {
    ByValue<bool> on_inputs(graph_.value_count());
    for (const NodeId n : graph_.node_ids()) {
      if (!forward(n)) continue;
      const bool sees = std::ranges::any_of(
          node(n).inputs, [&](Value v) { return v && (graph_.value(v).kind == ValueKind::input || on_inputs[v]); });
      for (Value v : node(n).outputs) {
        if (v) on_inputs[v] = sees;
      }
      if (!sees) continue;
      if (order_.empty() || node(order_.back()).origin_name() != node(n).origin_name())
        begins_.push_back(order_.size());
      order_.push_back(n);
    }
    begins_.push_back(order_.size());
  }

  size_t units() const { return begins_.size() - 1; }
  const Node& first_of(size_t unit) const { return node(order_[begins_[unit]]); }
  const Node& last_of(size_t unit) const { return node(order_[begins_[unit + 1] - 1]); }

  // Seconds of a step on each rank of a stage: the ranks share what is computed and moved, and each launches a kernel
  // for each micro-batch.
  double cost_of(NodeId n) const {
    if (node(n).op->view) return 0;
    const auto calls = static_cast<double>(node(n).phase == Phase::update ? 1 : job_.micro_batches);
    const auto ranks = static_cast<double>(job_.ranks_of_stage);
    Work work = work_of(graph_, node(n));
    work.flops /= calls * ranks;
    work.bytes /= calls * ranks;
    return calls * model_.kernel(work);
  }

  // What is made before a unit and used from it on.
  struct Crossing {
    double bytes = 0, seconds = 0;
  };
  // In each call a message from each rank of a stage to one of the next. Which ranks these are is not known yet.
  double sending(double bytes) const {
    const auto calls = static_cast<double>(job_.micro_batches), ranks = static_cast<double>(job_.ranks_of_stage);
    return calls * model_.collective(Collective::Kind::send, {2, 0, job_.ranks - 1}, bytes / calls / ranks);
  }

  // Sums of costs before each unit, and what goes over a cut there.
  void weigh() {
    std::map<std::string_view, size_t> at;
    std::vector<double> costs(units(), 0);
    std::map<Value, size_t> used;                      // the unit where a parameter is used first
    std::map<Value, std::pair<size_t, size_t>> lives;  // the units where it is made and used last
    for (size_t u = 0; u < units(); ++u) {
      at.emplace(first_of(u).origin_name(), u);
      for (size_t i = begins_[u]; i < begins_[u + 1]; ++i) {
        costs[u] += cost_of(order_[i]);
        for (Value v : node(order_[i]).inputs) {
          if (v && graph_.value(v).kind == ValueKind::parameter) used.emplace(v, u);
          if (const auto made = lives.find(v); made != lives.end()) made->second.second = u;
        }
        for (Value v : node(order_[i]).outputs) {
          if (v) lives.emplace(v, std::pair(u, u));
        }
      }
    }
    for (const NodeId n : graph_.node_ids()) {
      if (node(n).phase == Phase::update) {
        for (Value v : node(n).inputs) {
          if (const auto user = used.find(v); user != used.end()) {
            costs[user->second] += cost_of(n);
            break;
          }
        }
      }
      if (node(n).phase != Phase::backward) continue;
      if (const auto origin = at.find(node(n).origin_name()); origin != at.end()) costs[origin->second] += cost_of(n);
    }
    before_.assign(1, 0);
    for (double cost : costs) before_.push_back(before_.back() + cost);
    crossing_.assign(units() + 1, {});
    for (const auto& [value, life] : lives) {
      const auto bytes = static_cast<double>(graph_.type(value).bytes());
      const double seconds = sending(bytes);
      for (size_t c = life.first + 1; c <= life.second; ++c) {
        crossing_[c].bytes += bytes;
        crossing_[c].seconds += seconds;
      }
    }
  }

  double work(size_t begin, size_t end) const { return before_[end] - before_[begin]; }
  // As stage `k`, counted from 1.
  double work_as(size_t k, size_t begin, size_t end) const {
    return work(begin, end) / (job_.speeds.empty() ? 1 : job_.speeds[k - 1]);
  }
  // With what comes in and goes out, and comes back as gradients.
  double cost(size_t k, size_t begin, size_t end) const {
    return work_as(k, begin, end) + 2 * (crossing_[begin].seconds + crossing_[end].seconds);
  }

  // A cut before a unit: how many layers it divides, then the seconds of what goes over it.
  using Price = std::pair<int, double>;
  Price price(size_t at) const {
    const std::string_view left = layer_of(last_of(at - 1).name), right = layer_of(first_of(at).name);
    return {!left.empty() && left == right ? 1 : 0, crossing_[at].seconds};
  }

  // The smallest cost of the largest of `count_` runs: `best[i]` of the first i units.
  double smallest_largest() const {
    const size_t size = units();
    std::vector<double> best(size + 1, 0);
    for (size_t i = 0; i <= size; ++i) best[i] = cost(1, 0, i);
    for (size_t k = 2; k <= static_cast<size_t>(count_); ++k) {
      for (size_t i = size; i >= k; --i) {
        double found = std::numeric_limits<double>::infinity();
        for (size_t j = i; j-- > k - 1;) {
          if (work_as(k, j, i) >= found) break;
          found = std::min(found, std::max(best[j], cost(k, j, i)));
        }
        best[i] = found;
      }
    }
    return best[size];
  }

  // The cheapest cuts into runs of at most `limit`.
  std::vector<size_t> cheapest(double limit) const {
    const size_t size = units();
    const Price never{INT32_MAX, 0};
    std::vector<std::vector<Price>> best(static_cast<size_t>(count_) + 1, std::vector<Price>(size + 1, never));
    std::vector<std::vector<size_t>> from(static_cast<size_t>(count_) + 1, std::vector<size_t>(size + 1, 0));
    best[0][0] = {0, 0};
    for (size_t k = 1; k <= static_cast<size_t>(count_); ++k) {
      for (size_t i = k; i <= size; ++i) {
        for (size_t j = i; j-- > k - 1 && work_as(k, j, i) <= limit;) {
          if (best[k - 1][j] == never || cost(k, j, i) > limit) continue;
          const Price here = j == 0 ? Price{0, 0} : price(j);
          const Price all{best[k - 1][j].first + here.first, best[k - 1][j].second + here.second};
          if (all < best[k][i]) best[k][i] = all, from[k][i] = j;
        }
      }
    }
    std::vector<size_t> begins;
    size_t end = size;
    for (size_t k = static_cast<size_t>(count_); k > 0; --k) begins.push_back(end = from[k][end]);
    std::ranges::reverse(begins);
    return begins;
  }

  void cut() {
    const std::vector<size_t> begins = cheapest(smallest_largest() * slack);
    std::vector<std::string> shares;
    for (size_t s = 0; s < begins.size(); ++s) {
      const size_t end = s + 1 < begins.size() ? begins[s + 1] : units();
      for (size_t i = begins_[begins[s]]; i < begins_[end]; ++i) stage(order_[i]) = static_cast<int>(s);
      const double share = before_.back() > 0 ? work(begins[s], end) / before_.back() : 0;
      shares.push_back(
          cat(static_cast<int64_t>(share * 100 + 0.5), " % from ", first_of(begins[s]).name, " on",
              s == 0 ? std::string()
                     : cat(" (", static_cast<int64_t>(crossing_[begins[s]].bytes), " bytes of the batch come in)")));
    }
    found_.note = cat("the work of the stages: ", join(shares, ", "));
  }

  // The stages of the same nodes and weights in the first entry; any other node comes after its operands.
  void follow_first_entry() {
    const Graph& graph = *first_->graph;
    std::map<std::string_view, int> by_node, by_state;
    for (const NodeId n : graph.node_ids()) {
      const Node& known = graph.node(n);
      const int task_graph = first_->node_task_graph[n];
      if (known.phase != Phase::forward || task_graph < 0) continue;
      const int at = first_->task_graphs[task_graph].stage;
      by_node.emplace(known.name, at);
      for (Value v : known.inputs) {
        if (v && is_state(graph.value(v).kind)) by_state.emplace(graph.value(v).name, at);
      }
    }
    for (const NodeId n : graph_.node_ids()) {
      if (!forward(n)) continue;
      if (const auto known = by_node.find(node(n).name); known != by_node.end()) stage(n) = known->second;
      for (Value v : node(n).inputs) {
        if (!v) continue;
        const auto known = by_state.find(graph_.value(v).name);
        if (stage(n) == nowhere && is_state(graph_.value(v).kind) && known != by_state.end()) stage(n) = known->second;
        if (const NodeId producer = graph_.value(v).producer) stage(n) = std::max(stage(n), stage(producer));
      }
    }
  }

  // What is in no stage yet is where it is needed first.
  void place_the_rest() {
    const auto users = graph_.users();
    for (const NodeId n : graph_.node_ids().reversed()) {
      if (!forward(n) || stage(n) != nowhere) continue;
      int first = count_;
      for (Value v : node(n).outputs) {
        if (!v) continue;
        for (const NodeId user : users[v]) {
          if (forward(user) && stage(user) != nowhere) first = std::min(first, stage(user));
        }
      }
      stage(n) = first == count_ ? 0 : first;
    }
  }

  const Graph& graph_;
  const StageJob& job_;
  const CostModel& model_;
  const Plan* first_;
  const int count_;
  StageCut found_;
  std::vector<NodeId> order_;       // nodes
  std::vector<size_t> begins_;      // where each unit begins in the order, and its end
  std::vector<double> before_;      // by unit: seconds of all before it
  std::vector<Crossing> crossing_;  // by unit
};

}  // namespace

Result<StageCut> cut_stages(const Graph& graph, const StageJob& job, const CostModel& cost, const Plan* first) {
  return Stages(graph, job, cost, first).run();
}

}  // namespace epl
