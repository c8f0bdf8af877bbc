#include "core/strategy/block_ways.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace epl {
namespace {

// So many nodes are decided freely, which takes a tenth of a second. Of others a rule says what happens.
constexpr int most_free = 16;
constexpr int not_again = std::numeric_limits<int>::max(), early_step = -1, before_all = -9;
constexpr double nothing = -std::numeric_limits<double>::infinity();

class BlockSearch {
 public:
  explicit BlockSearch(const BlockProblem& block)
      : block_(block),
        own_(block.own),
        taken_first_(own_.bytes.size(), not_again),
        taken_last_(own_.bytes.size(), before_all),
        used_(own_.bytes.size(), -1),
        held_(own_.bytes.size()),
        twice_(own_.nodes.size(), 0),
        free_(own_.nodes.size(), 0),
        level_(own_.steps.size() + 1) {}

  BlockWays run() {
    for (int s = static_cast<int>(own_.steps.size()) - 1; s >= 0; --s) {
      for (const int v : own_.steps[s].takes) {
        taken_first_[v] = s;
        taken_last_[v] = std::max(taken_last_[v], s);
      }
    }
    for (size_t n = 0; n < own_.nodes.size(); ++n) {
      for (const int v : own_.nodes[n].inputs) used_[v] = static_cast<int>(n);
    }
    choose_free();
    needed_ = taken_first_;
    decide(static_cast<int>(own_.nodes.size()) - 1);
    if (block_.out >= 0) {
      goes_on_ = true;
      needed_[block_.out] = early_step;
      decide(static_cast<int>(own_.nodes.size()) - 1);
    }
    return std::move(found_);
  }

 private:
  double bytes(int v) const { return own_.bytes[v]; }
  bool is_taken(size_t n) const {
    return std::ranges::any_of(own_.nodes[n].outputs, [&](int v) { return taken_first_[v] != not_again; });
  }

  // Where there are too many, those with the most bytes that steps take. Of the others, what no step takes is computed
  // again for those that need it, and what a step takes is kept.
  void choose_free() {
    std::vector<int> may;
    for (size_t n = 0; n < own_.nodes.size(); ++n) {
      if (own_.nodes[n].may) may.push_back(static_cast<int>(n));
    }
    found_.all = std::ssize(may) <= most_free;
    if (!found_.all) {
      std::ranges::stable_sort(may, std::greater(), [&](int n) {
        double taken = 0;
        for (const int v : own_.nodes[n].outputs) taken += taken_first_[v] != not_again ? bytes(v) : 0;
        return taken;
      });
      may.resize(most_free);
    }
    for (const int n : may) free_[n] = true;
    for (size_t n = 0; n < own_.nodes.size(); ++n) {
      if (std::ranges::find(own_.nodes[n].outputs, block_.out) != own_.nodes[n].outputs.end()) free_[n] = true;
    }
  }

  // From the last node to the first, so that it is known when each is needed again.
  void decide(int n) {
    if (n < 0) return add();
    const RecomputeProblem::Node& node = own_.nodes[n];
    int made = not_again;
    for (const int v : node.outputs) made = std::min(made, needed_[v]);
    const bool may = made != not_again && node.may;
    if (!may || free_[n] || is_taken(n)) decide(n - 1);
    if (!may || (!free_[n] && is_taken(n))) return;
    std::vector<int> before;
    before.reserve(node.inputs.size());
    for (const int v : node.inputs) {
      before.push_back(needed_[v]);
      needed_[v] = std::min(needed_[v], made);
    }
    twice_[n] = true;
    decide(n - 1);
    twice_[n] = false;
    for (size_t i = node.inputs.size(); i-- > 0;) needed_[node.inputs[i]] = before[i];
  }

  int made(int n) const {
    int first = not_again;
    for (const int v : own_.nodes[n].outputs) first = std::min(first, needed_[v]);
    return first;
  }

  // The way that has been decided.
  void add() {
    BlockWay way;
    held_ = taken_last_;
    std::ranges::fill(level_, 0);
    for (size_t n = 0; n < own_.nodes.size(); ++n) {
      if (!twice_[n]) continue;
      way.seconds += own_.nodes[n].seconds;
      for (const int v : own_.nodes[n].inputs) held_[v] = std::max(held_[v], made(static_cast<int>(n)) - 1);
    }
    if (goes_on_) way.out = GoesOn::kept;
    for (size_t n = 0; n < own_.nodes.size(); ++n) {
      const int since = twice_[n] ? made(static_cast<int>(n)) : 0;
      for (const int v : own_.nodes[n].outputs) {
        if (goes_on_ && v == block_.out && twice_[n]) way.out = GoesOn::early;
        if (needed_[v] == not_again) continue;
        const bool goes_on = goes_on_ && v == block_.out;
        if (!twice_[n]) way.kept += bytes(v);
        if (!twice_[n] && !goes_on_ && v == block_.out) way.out = GoesOn::stays;
        // What an early result is made of has gone when it is there.
        if (!twice_[n] && held_[v] < early_step && !goes_on) way.early -= bytes(v);
        if (since == early_step && (held_[v] >= early_step || goes_on)) way.early += bytes(v);
        if (held_[v] < std::max(since, 0)) continue;
        level_[std::max(since, 0)] += bytes(v);
        level_[held_[v] + 1] -= bytes(v);
      }
    }
    find_peaks(way);
    find_forward(way);
    keep_best(std::move(way));
  }

  void find_peaks(BlockWay& way) const {
    const int in = block_.in, since = in >= 0 ? needed_[in] : not_again;
    way.takes = since != not_again;
    way.through = since == early_step;
    const bool goes = way.takes && !block_.in_is_taken_before;
    if (way.through && goes && held_[in] < early_step) way.early -= bytes(in);
    way.whole = way.before = way.after = nothing;
    double now = 0;
    for (int s = 0; s < std::ssize(own_.steps); ++s) {
      now += level_[s];
      const double all = now + own_.steps[s].bytes;
      const double without = goes && s > held_[in] ? all - bytes(in) : all;
      way.whole = std::max(way.whole, without);
      if (s < since) {
        way.before = std::max(way.before, all);
      } else {
        way.after = std::max(way.after, without);
      }
    }
  }

  void find_forward(BlockWay& way) {
    std::vector<double>& level = forward_;
    level.assign(own_.nodes.size() + 1, 0);
    const int last = static_cast<int>(own_.nodes.size()) - 1;
    for (int n = 0; n <= last; ++n) {
      for (const int v : own_.nodes[n].outputs) {
        const bool stays = v == block_.out || (!twice_[n] && needed_[v] != not_again);
        level[n] += bytes(v);
        level[(stays ? last : std::max(used_[v], n)) + 1] -= bytes(v);
      }
    }
    way.forward = way.forward_kept = nothing;
    double now = 0;
    for (int n = 0; n <= last; ++n) {
      now += level[n];
      way.forward_kept = std::max(way.forward_kept, now);
      way.forward = std::max(way.forward, now + (block_.in >= 0 && n <= used_[block_.in] ? bytes(block_.in) : 0));
    }
  }

  static bool beats(const BlockWay& a, const BlockWay& b) {
    return a.out == b.out && a.takes == b.takes && a.through == b.through && a.seconds <= b.seconds &&
           a.kept <= b.kept && a.early <= b.early && a.whole <= b.whole && a.before <= b.before && a.after <= b.after &&
           a.forward <= b.forward && a.forward_kept <= b.forward_kept;
  }

  void keep_best(BlockWay way) {
    for (size_t i = 0; i < found_.ways.size(); ++i) {
      if (!beats(found_.ways[i], way)) continue;
      // It is likely to beat the next one as well.
      if (i > 0) std::swap(found_.ways[i], found_.ways[i / 2]);
      return;
    }
    std::erase_if(found_.ways, [&](const BlockWay& other) { return beats(way, other); });
    for (size_t n = 0; n < twice_.size(); ++n) {
      if (twice_[n]) way.again.push_back(static_cast<int>(n));
    }
    found_.ways.push_back(std::move(way));
  }

  const BlockProblem& block_;
  const RecomputeProblem& own_;
  std::vector<int> taken_first_, taken_last_;  // by steps
  std::vector<int> used_;                      // last by nodes
  std::vector<int> needed_, held_;             // again: first, and last while a step runs
  std::vector<char> twice_, free_;             // by node
  std::vector<double> level_, forward_;
  bool goes_on_ = false;  // the next block needs again what goes on
  BlockWays found_;
};

}  // namespace

BlockWays ways_of(const BlockProblem& block) { return BlockSearch(block).run(); }

}  // namespace epl
