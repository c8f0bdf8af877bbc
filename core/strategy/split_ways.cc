#include "core/strategy/split_ways.h"

#include <algorithm>

#include "core/strategy/segments.h"
#include "core/strategy/windows.h"

namespace epl {
namespace {

// Whether a cut of the batch, or of experts, leaves whole runs of the factor.
bool fits_in_cuts(const SplitState& s, NodeId n, const CutFactor& factor) {
  const auto& factors = s.plan.node_shardings[n].factors;
  if (factors.empty()) return true;
  const Cuts batch = s.plan.batch_of(s.plan.node_task_graph[n]);
  for (const AxisCut& cut : factors[factor.factor]) {
    int64_t pieces = cut.outer;
    if (!find_cut(batch, cut.axes.front())) {  // another TaskGraph's own, or already cut by experts
      if (s.is_here(n)) return false;
      continue;
    }
    for (int axis : cut.axes) pieces *= s.plan.mesh(s.here).axes[axis].size;
    if (factor.outer % pieces != 0) return false;
  }
  return true;
}

// Ways as they are found, each once.
class Ways {
 public:
  Ways(const SplitState& s, NodeId n) : s_(s), n_(n), node_(s.graph.node(n)), rule_(s.rule_of(n)) {}

  void add_pinned(const std::vector<PinnedOperand>& pinned) {
    for (const PinnedOperand& pin : pinned) {
      const ShardingRule::Operand& dims = pin.result ? rule_.outputs[pin.at] : rule_.inputs[pin.at];
      for (int f : dims[pin.dim]) {
        if (counts(f)) offer(all_of(f));
      }
    }
  }
  // As operands lie, and as results are wanted.
  void add_given() {
    for (size_t i = 0; i < node_.inputs.size(); ++i) {
      if (node_.inputs[i] && s_.at[node_.inputs[i]]) offer(factor_at(rule_, rule_.inputs[i], s_.at[node_.inputs[i]]));
    }
    for (size_t o = 0; o < node_.outputs.size(); ++o) {
      const auto& wish = s_.wishes[node_.outputs[o]];
      if (wish && *wish) offer(factor_at(rule_, rule_.outputs[o], *wish));
    }
  }
  // Rows of a table that is picked from, and slots that rows are put into.
  void add_rows() {
    for (size_t i = 0; i < node_.inputs.size() && s_.picks(n_); ++i) {
      if (!node_.inputs[i] || s_.decided[node_.inputs[i]]) continue;
      for (const ShardingRule::Dim& dim : rule_.inputs[i]) {
        for (int f : dim) {
          if (s_.is_added(n_, {f, 1})) offer(all_of(f));
        }
      }
    }
    if (s_.fills(n_)) offer_runs([&](int f) { return s_.is_added(n_, {f, 1}); });
  }
  void add_windows() {
    for (size_t f = s_.extended_of(n_).added; f < rule_.factors.size(); ++f) {
      if (s_.extended_of(n_).window(static_cast<int>(f)) >= 0) offer({static_cast<int>(f), 1});
    }
  }
  // What begins in a dimension of a weight.
  void add_new() {
    for (size_t f = 0; f < rule_.factors.size(); ++f) {
      if (begins(static_cast<int>(f)) && f < s_.extended_of(n_).added && counts(static_cast<int>(f)))
        offer(all_of(static_cast<int>(f)));
    }
    if (!s_.experts) offer_runs([&](int f) { return begins(f); });
  }
  bool empty() const { return found_.empty(); }
  std::vector<CutFactor> take() { return std::move(found_); }

 private:
  bool counts(int f) const { return !s_.experts || counts_experts(s_.origins, node_, rule_, f); }
  bool begins(int f) const { return s_.origins.factor(f).cut(); }
  // Pieces of a run of so many parts: AxisCut::of.
  int64_t of(int64_t parts) const { return parts % s_.parts == 0 ? 0 : parts; }
  // A factor in runs of one element.
  CutFactor all_of(int f) const { return {f, 1, of(rule_.factors[f].size)}; }
  void offer(const CutFactor& factor) {
    if (factor && fits(s_, n_, factor) && std::ranges::find(found_, factor) == found_.end()) found_.push_back(factor);
  }
  template <class May> void offer_runs(const May& may) {
    s_.nodes.runs_of_results(n_, split_foresight, may,
                             [&](int f, const DimRuns& runs) { offer({f, runs.outer, of(runs.parts)}); });
  }

  const SplitState& s_;
  const NodeId n_;
  const Node& node_;
  const ShardingRule& rule_;
  std::vector<CutFactor> found_;
};

}  // namespace

bool fits(const SplitState& s, NodeId n, const CutFactor& factor) {
  const ShardingRule::Factor& known = s.rule_of(n).factors[factor.factor];
  if (known.size % (factor.outer * (factor.of > 0 ? factor.of : s.parts)) != 0) return false;
  if (factor.of > 0 && (!s.uneven || factor.of % s.parts == 0 || largest_piece(s, factor) == factor.of)) return false;
  const bool slides = s.extended_of(n).window(factor.factor) >= 0;
  if (slides && (s.axes.size() > 1 || !may_slide(s.plan, n, s.extended_of(n), factor, s.parts))) return false;
  if (s.is_added(n, factor))
    return (s.experts ? s.deals && s.picks(n) : s.pieces) &&
           (s.plan.mesh(s.here).lanes(s.plan.batch_of(s.here)) == 1 ||
            (s.experts && !sums_batch_without(s.rule_of(n), s.plan.node_shardings[n], factor.factor))) &&
           (factor.outer == 1 || !s.picks(n));
  if (known.unshardable) return false;
  if (s.by_segments && !keeps_segments(s.rule_of(n), s.plan.node_shardings[n].segments, factor, s.parts)) return false;
  return fits_in_cuts(s, n, factor);
}

std::vector<CutFactor> ways_to_cut(const SplitState& s, NodeId n, const std::vector<PinnedOperand>& pinned) {
  Ways ways(s, n);
  ways.add_pinned(pinned);
  ways.add_given();
  ways.add_rows();
  if (s.work(n) == 0) return ways.take();
  if (s.windows && s.graph.node(n).phase == Phase::forward) ways.add_windows();
  if (!ways.empty() && s.windows && !s.begun) return ways.take();
  ways.add_new();
  return ways.take();
}

}  // namespace epl
