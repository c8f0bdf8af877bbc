// split: how the nodes of split scopes are cut over the ranks of mesh axis "split".
//
// Each TaskGraph is gone through in the order of the graph, expert scopes first. A node takes the factor, or none, that
// costs least: work that stays uncut, and bytes that move. Nodes with much work are cut wherever a rule
// allows it; the others follow their operands. A cut begins in a dimension of a weight: those that come of the model's
// inputs, as samples and positions, are left alone. A parameter is stored as its first user needs it, is not gathered
// again, and its gradient lies as it does. With these costs the two products of a feed-forward block are cut by columns
// and by rows, and an attention by heads (Megatron-LM, Shoeybi et al. 2019), and so is what was not foreseen.
//
// Where windows slide over a dimension of the inputs (rows of an image) a cut may begin there: weights stay whole,
// ranks read over borders. As that decides for all that follows, the graph is gone through both ways (`split.spatial`).
#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "core/strategy/batch_cut.h"
#include "core/strategy/deal.h"
#include "core/strategy/origins.h"
#include "core/strategy/pins.h"
#include "core/strategy/reasons.h"
#include "core/strategy/segments.h"
#include "core/strategy/shared_weights.h"
#include "core/strategy/split_nodes.h"
#include "core/strategy/windows.h"

namespace epl {
namespace {

// Costs in bytes moved: of an operation that is not cut (a product is cut whatever it moves), of a byte of a weight
// that is gathered (weights are cut because they are large), of a byte that a rank takes of what it has, and of an
// operation that the others wait for because their pieces are smaller (few: whole heads are worth more).
constexpr double uncut_operation = 100, gathered_weight = 100, sliced_byte = 0.01, uneven_operation = 0.01;
// A byte of a table that each rank has all of; and how many sums over ranks a body takes that is cut, about.
constexpr double whole_table = 10, body_sums = 3;
constexpr int foresight = 12;  // so many nodes behind one another are looked at for what becomes of a result

class Splitting {
 public:
  Splitting(PassContext& context, int task_graph, bool experts, bool windows = false)
      : plan_(context.plan),
        graph_(*plan_.graph),
        first_entry_(context.request.state_of),
        here_(task_graph),
        experts_(experts),
        axes_(split_axes(plan_.task_graphs[task_graph], experts)),
        axis_(axes_.front()),
        parts_(plan_.mesh(task_graph).pieces(axes_)),
        by_segments_(sums_by_segments(plan_)),
        pieces_(!by_segments_ && !experts && context.options.flag("pieces")),
        deals_(context.options.flag("pieces")),
        uneven_(!by_segments_ && context.options.flag("uneven")),
        windows_(windows && pieces_),
        rows_move_(experts && axes_.size() == 1 && find_cut(plan_.batch_of_class(plan_.class_of(task_graph)), axis_)),
        at_(graph_.value_count()),
        decided_(at_.size(), false),
        kept_whole_(at_.size(), false),
        crosses_(at_.size(), false),
        wishes_(at_.size()),
        origins_(graph_) {}

  Status run() {
    nodes_.emplace(plan_, windows_);
    EPL_TRY(find_pins());
    describe_leaves();
    find_kept_whole();
    for (const NodeId n : graph_.node_ids()) {
      if (graph_.node(n).phase != Phase::forward && !wished_) find_wishes();
      EPL_TRY(decide(n));
    }
    for (const Graph::Update& update : graph_.updates) {
      if (alike(plan_.value_task_graph[update.state])) at_[update.next] = at_[update.state];
      crosses_[update.next] = crosses_[update.state];
    }
    write();
    return {};
  }
  // Whether a product of the TaskGraph is cut.
  bool found_any() const { return found_any_; }
  int windows() const { return windows_cut_; }  // nodes that are cut along a dimension of their windows
  double cost() const { return cost_; }
  // Tells the plan why.
  void explain() const { reasons_.tell(plan_, parts_); }

 private:
  // Whether a TaskGraph is cut over as many ranks as this one: then its nodes are decided here as well, as if the two
  // were one, though each pass writes for its own. So stages do not change how nodes are cut.
  bool alike(int task_graph) const {
    if (task_graph == every_task_graph) return false;
    const std::vector<int> axes = split_axes(plan_.task_graphs[task_graph], experts_);
    return !axes.empty() && plan_.mesh(task_graph).pieces(axes) == parts_;
  }

  const ExtendedRule& extended_of(NodeId n) const { return nodes_->rule(n); }
  const ShardingRule& rule_of(NodeId n) const { return extended_of(n).rule; }
  double work(NodeId n) const { return nodes_->work(n); }
  bool is_added(NodeId n, const CutFactor& factor) const {
    return static_cast<size_t>(factor.factor) >= extended_of(n).added;
  }
  bool picks(NodeId n) const { return extended_of(n).row && extended_of(n).row->indices >= 0; }
  bool is_here(NodeId n) const { return plan_.node_task_graph[n] == here_; }
  // Whether a node puts rows into slots of experts, as the indices beside them say.
  bool fills(NodeId n) const { return experts_ && extended_of(n).puts_rows() && is_here(n); }

  void describe_leaves() {
    for (const Value v : graph_.value_ids()) {
      decided_[v] = !is_state(graph_.value(v).kind) || !alike(plan_.value_task_graph[v]);
      if (first_entry_ && !decided_[v]) take_stored(v);
    }
  }

  // Entries of one plan share their state.
  void take_stored(Value v) {
    const Value there = first_entry_->graph->find(graph_.value(v).name);
    if (!there) return;
    const Sharding& stored = first_entry_->shardings[there];
    decided_[v] = true;
    at_[v] = place_of(stored);
  }

  // What leaves to the caller; and to another TaskGraph, where stages would else change how nodes are cut, and with
  // that the order of their sums.
  void find_kept_whole() {
    for (const Graph::Output& output : graph_.outputs) kept_whole_[output.value] = true;
    for (const NodeId n : graph_.node_ids()) {
      const int here = plan_.node_task_graph[n];
      for (Value v : graph_.node(n).inputs) {
        if (!v || here == every_task_graph || plan_.value_task_graph[v] == here) continue;
        // Within a stage it is brought from one way of lying to the other. Which ranks have a stage changes nothing.
        const int there = plan_.value_task_graph[v];
        if (plan_.task_graphs[here].stage == plan_.task_graphs[there].stage) continue;
        crosses_[v] = true;
        if (!alike(here)) kept_whole_[v] = decided_[v] = true;
      }
    }
  }

  // How the gradients of weights are wanted, once it is known where these lie: back from the update, through nodes of
  // little work.
  void find_wishes() {
    wished_ = true;
    if (windows_) wishes_ = beside_forward(plan_, at_, axis_);
    const auto beside = wishes_;
    for (const NodeId n : graph_.node_ids().reversed()) {
      const Node& node = graph_.node(n);
      if (node.phase == Phase::forward) break;
      const ShardingRule& rule = rule_of(n);
      const auto wish = [&](const CutFactor& factor) {
        const OperandShardings operands = operands_of(n, factor);
        for (size_t i = 0; i < node.inputs.size(); ++i) {
          const Value v = node.inputs[i];
          if (v && !beside[v]) wishes_[v] = place_of(operands.inputs[i]);
        }
      };
      bool updates = false;
      for (size_t i = 0; i < node.inputs.size() && node.phase == Phase::update; ++i) {
        if (!node.inputs[i] || graph_.value(node.inputs[i]).kind != ValueKind::parameter) continue;
        updates = true;
        const CutPlace& place = at_[node.inputs[i]];
        const CutFactor factor = place ? factor_at(rule, rule.inputs[i], place) : CutFactor();
        if (factor || !place) wish(factor);
        break;
      }
      if (updates || work(n) > 0 || (experts_ && picks(n))) continue;
      for (size_t o = 0; o < node.outputs.size(); ++o) {
        const auto& wished = wishes_[node.outputs[o]];
        // Whole sums are made of pieces as well, and so is the norm of a gradient.
        if (!wished || ((windows_ || node.phase == Phase::update) && !*wished)) continue;
        const CutFactor factor = *wished ? factor_at(rule, rule.outputs[o], *wished) : CutFactor();
        if (factor || !*wished) wish(factor);
        break;
      }
    }
  }
  CutPlace place_of(const Sharding& sharding) const { return epl::place_of(sharding, axis_); }

  struct Choice : NodePlaces {
    CutFactor factor;
    double cost = 0;
  };

  Status decide(NodeId n) {
    const Node& node = graph_.node(n);
    if (node.op->takes_any_operands) return {};  // on pieces as on all of it
    origins_.visit(node, rule_of(n));
    if (!alike(plan_.node_task_graph[n])) return {};
    const std::vector<PinnedOperand> pinned = pinned_operands(node);
    const std::vector<CutFactor> ways = node.op->random ? std::vector<CutFactor>() : candidates(n, pinned);
    Choice best = weigh(n, {});
    bool as_pinned = obeys(best, pinned);
    const double whole = best.cost;
    double cheapest_cut = std::numeric_limits<double>::infinity();
    for (const CutFactor& factor : ways) {
      Choice choice = weigh(n, factor);
      cheapest_cut = std::min(cheapest_cut, choice.cost);
      if (!obeys(choice, pinned) || (as_pinned && choice.cost >= best.cost)) continue;
      best = std::move(choice);
      as_pinned = true;
    }
    if (!as_pinned) return refuse(n, pinned, ways);
    apply(n, best);
    cost_ += best.cost;
    const bool left = !best.factor && work(n) > 0 && node.phase == Phase::forward;
    if (left && is_here(n))
      reasons_.add_whole(
          node, ways.empty() ? "no dimension that they may share out divides" : "any cut moves more than it saves");
    if (is_here(n)) reasons_.add(n, reason(n, pinned, ways.size(), best, whole, cheapest_cut));
    return {};
  }

  // What the user wants of values. Where a scope has experts as well, their axes do not cut it.
  Status find_pins() {
    EPL_ASSIGN(pins_, pinned_dims(plan_, first_entry_ == nullptr));
    for (const Value v : pins_.ids()) {
      const int at = plan_.value_task_graph[v];
      if (!alike(at) || (experts_ && !split_axes(plan_.task_graphs[at], false).empty())) pins_[v] = -1;
    }
    return {};
  }
  bool pinned(Value v) const { return v && pins_[v] >= 0; }
  // Of the operands, those that lie as this node needs them.
  std::vector<PinnedOperand> pinned_operands(const Node& node) const {
    std::vector<PinnedOperand> found;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Value v = node.inputs[i];
      if (pinned(v) && !decided_[v]) found.push_back({v, false, i, pins_[v]});
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Value v = node.outputs[o];
      if (pinned(v)) found.push_back({v, true, o, pins_[v]});
    }
    return found;
  }
  Status refuse(NodeId n, const std::vector<PinnedOperand>& pinned, const std::vector<CutFactor>& ways) const {
    std::vector<NodePlaces> places;
    for (const CutFactor& factor : ways) places.push_back(weigh(n, factor));
    return refused_pins(plan_, n, pinned, places, parts_);
  }

  // Costs are bytes moved; work that stays uncut counts as bytes.
  std::string reason(NodeId n, const std::vector<PinnedOperand>& pinned, size_t ways, const Choice& best, double whole,
                     double cheapest_cut) const {
    const Node& node = graph_.node(n);
    if (best.factor) {
      std::string from;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] && best.inputs[i] && at_[node.inputs[i]] == best.inputs[i] && work(n) == 0)
          from = graph_.value(node.inputs[i]).name;
      }
      return cat("cut by ", dimension_text(graph_, n, rule_of(n), best.factor.factor),
                 from.empty() ? "" : cat(", as ", from, " is"),
                 pinned.empty() ? "" : cat(", as the strategy asks for ", pins_text(graph_, pinned)), ": ",
                 moves_text(best.cost, whole),
                 extended_of(n).window(best.factor.factor) >= 0 ? "; its windows read over the borders of pieces" : "");
    }
    if (ways > 0)
      return cat("whole on every rank, because ",
                 cheapest_cut > 9e18 ? "no cut is possible" : cat("with a cut ", moves_text(cheapest_cut, whole)));
    if (node.op->random) return "whole on every rank, because it draws random numbers";
    if (work(n) <= 0) return "";
    return cat("whole on every rank, because no dimension has ", parts_, uneven_ ? "" : " equal", " pieces");
  }

  // The factors that operands bring, and of a node with much work all others, as what uses its results would like them.
  std::vector<CutFactor> candidates(NodeId n, const std::vector<PinnedOperand>& pinned) const {
    const Node& node = graph_.node(n);
    const ShardingRule& rule = rule_of(n);
    std::vector<CutFactor> found;
    const auto offer = [&](const CutFactor& factor) {
      if (factor && fits(n, factor) && std::ranges::find(found, factor) == found.end()) found.push_back(factor);
    };
    const auto counts = [&](int f) { return !experts_ || counts_experts(origins_, node, rule, f); };
    for (const PinnedOperand& pin : pinned) {
      const ShardingRule::Operand& dims = pin.result ? rule.outputs[pin.at] : rule.inputs[pin.at];
      for (int f : dims[pin.dim]) {
        if (counts(f)) offer(all_of(n, f));
      }
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] && at_[node.inputs[i]]) offer(factor_at(rule, rule.inputs[i], at_[node.inputs[i]]));
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const auto& wish = wishes_[node.outputs[o]];
      if (wish && *wish) offer(factor_at(rule, rule.outputs[o], *wish));
    }
    for (size_t i = 0; i < node.inputs.size() && picks(n); ++i) {  // rows of a table
      if (!node.inputs[i] || decided_[node.inputs[i]]) continue;
      for (const ShardingRule::Dim& dim : rule.inputs[i]) {
        for (int f : dim) {
          if (is_added(n, {f, 1})) offer(all_of(n, f));
        }
      }
    }
    const auto offer_runs = [&](int f, const DimRuns& runs) { offer({f, runs.outer, of(runs.parts)}); };
    if (fills(n)) nodes_->runs_of_results(n, foresight, [&](int f) { return is_added(n, {f, 1}); }, offer_runs);
    if (work(n) == 0) return found;
    for (size_t f = extended_of(n).added; f < rule.factors.size() && windows_ && node.phase == Phase::forward; ++f) {
      if (extended_of(n).window(static_cast<int>(f)) >= 0) offer({static_cast<int>(f), 1});
    }
    if (!found.empty() && windows_ && !begun_) return found;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (origins_.factor(static_cast<int>(f)).cut() && f < extended_of(n).added && counts(static_cast<int>(f)))
        offer(all_of(n, static_cast<int>(f)));
    }
    if (experts_) return found;
    nodes_->runs_of_results(n, foresight, [&](int f) { return origins_.factor(f).cut(); }, offer_runs);
    return found;
  }

  // Pieces of a run of so many parts: AxisCut::of.
  int64_t of(int64_t parts) const { return parts % parts_ == 0 ? 0 : parts; }
  // A factor in runs of one element.
  CutFactor all_of(NodeId n, int f) const { return {f, 1, of(rule_of(n).factors[f].size)}; }

  // What it costs the nodes of the forward pass that use a value to have it cut at this place.
  double cost_of_uses(Value v, const CutPlace& place, int ahead) const {
    if (!place || ahead == 0) return 0;
    double all = 0;
    for (const NodeId user : nodes_->users(v)) {
      const Node& node = graph_.node(user);
      if (node.phase != Phase::forward) continue;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (node.inputs[i] != v) continue;
        const CutFactor factor = factor_at(rule_of(user), rule_of(user).inputs[i], place);
        if (!factor || node.op->random || !fits(user, factor)) return others() * bytes(v);  // gathered once, for all
        if (work(user) > 0) continue;
        const OperandShardings operands = operands_of(user, factor);
        for (size_t o = 0; o < node.outputs.size(); ++o) {
          const Sharding& given = operands.outputs[o];
          if (!given.partial.empty()) all += 2 * others() * bytes(node.outputs[o]);
          all += cost_of_uses(node.outputs[o], place_of(given), ahead - 1);
        }
      }
    }
    return std::min(all, others() * bytes(v));
  }

  OperandShardings operands_of(NodeId n, const CutFactor& factor) const {
    NodeSharding sharding;
    sharding.factors.resize(rule_of(n).factors.size());
    if (factor) sharding.factors[factor.factor] = {{.axes = axes_, .outer = factor.outer, .of = factor.of}};
    return operand_shardings(extended_of(n), sharding);
  }

  // The largest piece of an uneven cut, in parts.
  int64_t largest(const CutFactor& factor) const { return (factor.of + parts_ - 1) / parts_; }
  // Whether there are pieces of the factor, inside the runs that a cut of the batch leaves. Segments of a sum begin
  // where no piece ends, which only equal ones grant.
  bool fits(NodeId n, const CutFactor& factor) const {
    const ShardingRule::Factor& known = rule_of(n).factors[factor.factor];
    if (known.size % (factor.outer * (factor.of > 0 ? factor.of : parts_)) != 0) return false;
    if (factor.of > 0 && (!uneven_ || factor.of % parts_ == 0 || largest(factor) == factor.of)) return false;
    const bool slides = extended_of(n).window(factor.factor) >= 0;
    if (slides && (axes_.size() > 1 || !may_slide(plan_, n, extended_of(n), factor, parts_))) return false;
    if (is_added(n, factor))
      return (experts_ ? deals_ && picks(n) : pieces_) &&
             (plan_.mesh(here_).lanes(plan_.batch_of(here_)) == 1 ||
              (experts_ && !sums_batch_without(rule_of(n), plan_.node_shardings[n], factor.factor))) &&
             (factor.outer == 1 || !picks(n));
    if (known.unshardable) return false;
    if (by_segments_ && !keeps_segments(rule_of(n), plan_.node_shardings[n].segments, factor, parts_)) return false;
    const auto& factors = plan_.node_shardings[n].factors;
    if (factors.empty()) return true;
    const Cuts batch = plan_.batch_of(plan_.node_task_graph[n]);
    for (const AxisCut& cut : factors[factor.factor]) {
      int64_t pieces = cut.outer;
      if (!find_cut(batch, cut.axes.front())) {  // another TaskGraph's own, or already cut by experts
        if (is_here(n)) return false;
        continue;
      }
      for (int axis : cut.axes) pieces *= plan_.mesh(here_).axes[axis].size;
      if (factor.outer % pieces != 0) return false;
    }
    return true;
  }

  double bytes(Value v) const { return static_cast<double>(graph_.type(v).bytes()); }
  // Of what a rank does not have.
  double others() const { return static_cast<double>(parts_ - 1) / static_cast<double>(parts_); }

  Choice weigh(NodeId n, const CutFactor& factor) const {
    const Node& node = graph_.node(n);
    Choice choice{.factor = factor};
    const OperandShardings operands = operands_of(n, factor);
    if (!factor) choice.cost += work(n) * others() * uncut_operation;
    if (factor.of > 0) {
      const double most = static_cast<double>(largest(factor)) / static_cast<double>(factor.of);
      choice.cost += work(n) * (most - 1 / static_cast<double>(parts_)) * uneven_operation;
    }
    if (factor && extended_of(n).window(factor.factor) >= 0)
      choice.cost += window_cost(graph_, node, extended_of(n), factor.factor, parts_, origins_);
    if (factor && is_added(n, factor) && extended_of(n).row->by_body()) {
      const double lanes = bytes(node.inputs[0]) / static_cast<double>(rule_of(n).factors[factor.factor].size);
      choice.cost += body_sums * 2 * others() * lanes;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const CutPlace wanted = place_of(operands.inputs[i]);
      choice.inputs.push_back(wanted);
      if (node.inputs[i] && picks(n) && !wanted && !decided_[node.inputs[i]])
        choice.cost += whole_table * others() * bytes(node.inputs[i]);
      if (node.inputs[i]) choice.cost += operand_cost(node, node.inputs[i], wanted, static_cast<bool>(factor));
    }
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const Sharding& given = operands.outputs[o];
      choice.outputs.push_back(place_of(given));
      // All slots on each rank, where tokens would go to their own.
      if (fills(n) && !choice.outputs.back()) choice.cost += whole_table * others() * bytes(node.outputs[o]);
      for (const Partial& partial : given.partial) {
        const double each = rows_move_ && picks(n) ? 1 / static_cast<double>(parts_) : 2;
        choice.cost += each * others() * bytes(node.outputs[o]);
        if (partial.kind != ShardingRule::Reduce::sum) choice.cost = std::numeric_limits<double>::infinity();
      }
      const auto& wish = wishes_[node.outputs[o]];
      if (choice.outputs.back() && kept_whole_[node.outputs[o]]) {
        choice.cost += others() * bytes(node.outputs[o]);
      } else if (wish) {
        if (choice.outputs.back() && choice.outputs.back() != *wish) choice.cost += others() * bytes(node.outputs[o]);
      } else if ((work(n) > 0 || fills(n)) && node.phase == Phase::forward) {
        choice.cost += cost_of_uses(node.outputs[o], choice.outputs.back(), foresight);
      }
    }
    return choice;
  }

  // To bring an operand to where it is wanted, and, in the forward pass, to bring its gradient back: it is a sum over
  // the ranks where the operand is not cut, and pieces where it is.
  double operand_cost(const Node& node, Value v, const CutPlace& wanted, bool cut) const {
    const CutPlace& now = at_[v];
    const bool trained = node.phase == Phase::forward && origins_.depends_on_weights(v) && graph_.value(v).producer &&
                         is_float(graph_.type(v).dtype);
    if (!decided_[v]) return 0;
    if (now == wanted) return !now && cut && trained ? 2 * others() * bytes(v) : 0;
    const double there =
        now ? others() * bytes(v) * (origins_.is_weight(v) ? gathered_weight : 1) : sliced_byte * bytes(v);
    return there + (trained && (!now || cut) ? others() * bytes(v) : 0);
  }

  void apply(NodeId n, const Choice& choice) {
    const Node& node = graph_.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i] || decided_[node.inputs[i]]) continue;
      decided_[node.inputs[i]] = true;
      at_[node.inputs[i]] = choice.inputs[i];
    }
    if (!choice.factor) return;
    begun_ = begun_ || work(n) > 0;
    windows_cut_ += extended_of(n).window(choice.factor.factor) >= 0;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      if (!kept_whole_[node.outputs[o]]) at_[node.outputs[o]] = choice.outputs[o];
    }
    if (!is_here(n)) return;
    found_any_ = found_any_ || work(n) > 0;
    auto& factors = plan_.node_shardings[n].factors;
    const size_t wanted = is_added(n, choice.factor) ? rule_of(n).factors.size() : extended_of(n).added;
    if (factors.size() < wanted) factors.resize(wanted);
    add_cut(factors[choice.factor.factor], choice.factor.outer, choice.factor.of);
  }

  void add_cut(Cuts& cuts, int64_t outer, int64_t of) const {
    cuts.insert(std::ranges::upper_bound(cuts, outer, {}, &AxisCut::outer), {.axes = axes_, .outer = outer, .of = of});
  }

  void write() {
    for (const Value v : at_.ids()) {
      if (at_[v] && !crosses_[v] && plan_.value_task_graph[v] == here_)
        add_cut(plan_.shardings[v].dims[at_[v].dim], at_[v].outer, at_[v].of);
    }
  }

  Plan& plan_;
  const Graph& graph_;
  const Plan* const first_entry_;  // null: this is it
  const int here_;                 // the TaskGraph whose nodes it cuts
  const bool experts_;             // it cuts what counts experts alone
  const std::vector<int> axes_;    // over these, all of them together
  const int axis_;                 // the first, by which they are found
  const int64_t parts_;
  const bool by_segments_;
  bool pieces_;         // the factors of PieceRules may be cut
  bool deals_;          // so may those of rows that pick their expert
  bool uneven_;         // pieces need not be equal
  const bool windows_;  // a cut may begin in a dimension of windows
  // Elsewhere the axis cuts the batch: each row comes from a rank, and its answer goes back there, to nobody else.
  const bool rows_move_;
  int windows_cut_ = 0;
  double cost_ = 0;
  std::optional<SplitNodes> nodes_;          // once it runs
  ByValue<CutPlace> at_;                     // where this axis cuts it
  ByValue<bool> decided_;                    // its place is known; state is where it is needed first
  ByValue<int> pins_;                        // the dimension that the user wants to be cut, -1 for any
  ByValue<bool> kept_whole_;                 // the caller gets it
  ByValue<bool> crosses_;                    // it goes to another TaskGraph, and is stored whole
  ByValue<std::optional<CutPlace>> wishes_;  // where it is wanted in the end, nowhere or somewhere
  bool found_any_ = false, begun_ = false;
  Reasons reasons_;
  bool wished_ = false;  // wishes_ are known
  Origins origins_;
};

// Experts that are nodes of their own, as a loop over them is exported, are dealt to ranks where they are alike. Else
// each of them is cut over the ranks, which run one program, so that a rank has as much of the weights.
Status split_experts(PassContext& c) {
  std::vector<int> none;
  for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
    const TaskGraph& found = c.plan.task_graphs[t];
    if (found.experts.empty()) continue;
    // Where no product is found, what moves and adds may have been cut all the same: that is taken back. Pins that name
    // other dimensions than those that count experts cut each expert.
    auto before = std::pair(c.plan.shardings, c.plan.node_shardings);
    Splitting splitting(c, t, true);
    const Status status = splitting.run();
    if (status.ok() && splitting.found_any()) {
      splitting.explain();
      continue;
    }
    std::tie(c.plan.shardings, c.plan.node_shardings) = std::move(before);
    const int64_t parts = c.plan.mesh(t).pieces(found.experts);
    std::string why = cat("experts cannot be shared out as its dims say: ", status.message());
    if (status.ok()) {
      EPL_ASSIGN(why, deal_experts(c, t));
    }
    if (why.empty()) continue;
    c.plan.notes.push_back(cat("scope ", found.scope, " (expert ", parts, "): ", why,
                               ", so each expert is cut over the ", parts, " ranks"));
    none.push_back(t);
  }
  for (const int t : none) c.plan.task_graphs[t].experts.clear();
  return {};
}

// Cuts a TaskGraph, beginning in dimensions of windows where that is cheaper or asked for. Entries of one plan agree.
Status cut(PassContext& c, int task_graph) {
  std::string spatial = c.plan.strategy.text("split.spatial");
  if (const Plan* first = c.request.state_of) spatial = cuts_windows(*first) ? "on" : "off";
  Splitting channels(c, task_graph, false);
  const TaskGraph& t = c.plan.task_graphs[task_graph];
  const int64_t parts = c.plan.mesh(task_graph).pieces(split_axes(t, false));
  const bool either = spatial != "off" && !sums_by_segments(c.plan) && has_windows(c.plan, parts);
  const Plan before = either ? c.plan : Plan();
  const Status by_channels_runs = channels.run();
  if (!either) {
    EPL_TRY(by_channels_runs);
    if (spatial == "on") c.plan.notes.push_back("split.spatial: no dimension of windows can be cut, or level layout");
    channels.explain();
    return {};
  }
  Plan by_channels = std::exchange(c.plan, before);
  Splitting windows(c, task_graph, false, true);
  // Pins may leave one way alone.
  const Status by_windows_runs = windows.run();
  if (!by_windows_runs.ok() && (!by_channels_runs.ok() || spatial == "on")) return by_windows_runs;
  const bool cheaper = !by_channels_runs.ok() || spatial == "on" || windows.cost() < channels.cost();
  if (!by_windows_runs.ok() || !cheaper || (by_channels_runs.ok() && windows.windows() == 0)) {
    c.plan = std::move(by_channels);
    channels.explain();
    return {};
  }
  windows.explain();
  c.plan.notes.push_back(
      cat("split.spatial: ", windows.windows(), " nodes slide windows over pieces on ", parts,
          " ranks, and read over their borders: costs ", grouped(static_cast<int64_t>(windows.cost())),
          by_channels_runs.ok() ? cat(", cutting channels ", grouped(static_cast<int64_t>(channels.cost())))
                                : std::string(", as dims asks")));
  return {};
}

}  // namespace

EPL_PASS(split) {
  return {.doc = "cuts the nodes of split scopes over their ranks, and stores what they use in pieces",
          .options = {{"pieces", true, false, "also along dimensions that kernels need whole"},
                      {"uneven", true, false, "also where pieces are not equal"}},
          .run = [](PassContext& c) -> Status {
            const bool propagated = c.plan.shardings.size() == c.plan.graph->value_count();
            if (!propagated) return invalid("it needs place and propagate before it");
            EPL_TRY(pinned_dims(c.plan, c.request.state_of == nullptr).status());  // also where nothing is cut
            EPL_TRY(split_experts(c));
            for (int t = 0; t < std::ssize(c.plan.task_graphs); ++t) {
              if (split_axes(c.plan.task_graphs[t], false).empty()) continue;
              EPL_TRY(cut(c, t));
            }
            EPL_TRY(check_pins(c.plan, c.request.state_of == nullptr));
            return check_shared_weights(c.plan);
          }};
}

}  // namespace epl
