#include "core/strategy/recompute_join.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

namespace epl {
namespace {

// Pairs of joined ways and ways of the next block, in all: some tenths of a second.
constexpr double most_pairs = 6e6;
// So many joined ways with each way of a block are many, and so much of what a choice may be behind is for one block.
constexpr double many = 400, of_one_block = 8;
constexpr double infinite = std::numeric_limits<double>::infinity();

// All blocks up to one.
struct Joined {
  double kept = 0, early = 0, seconds = 0;
  int from = -1, way = -1;  // of the block before, and of this block
};
// By what happens to the result that goes on.
using JoinedLists = std::array<std::vector<Joined>, 4>;
constexpr size_t early_list = static_cast<size_t>(GoesOn::early), kept_list = static_cast<size_t>(GoesOn::kept);

// Tells early of many joined ways that another one beats, so that these are never sorted. Kept bytes are looked at in
// so many steps: of ways in a lower one, the least seconds.
class LeastSoFar {
 public:
  explicit LeastSoFar(double bytes) : width_(std::max(bytes, 1e-300) / steps) { least_.fill(infinite); }
  // False: another one keeps less and takes no longer.
  bool add(double kept, double seconds) {
    const auto step = static_cast<size_t>(std::clamp(kept / width_, 0.0, steps - 1.0));
    if (step > 0 && least_[step - 1] <= seconds) return false;
    for (size_t s = step; s < steps && least_[s] > seconds; ++s) least_[s] = seconds;
    return true;
  }

 private:
  static constexpr size_t steps = 512;
  double width_;
  std::array<double, steps> least_;
};

class Joining {
 public:
  Joining(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, const RecomputeLimit& limit)
      : problem_(problem), blocks_(blocks), limit_(limit) {
    size_t all = 0, chosen = 0;
    for (const RecomputeBlock& block : blocks) all += block.ways->ways.size();
    thinned_ = static_cast<double>(all) * many > most_pairs;
    for (const RecomputeBlock& block : blocks) chosen += choose_ways(block).size();
    most_ =
        static_cast<size_t>(std::clamp(most_pairs / static_cast<double>(std::max<size_t>(chosen, 1)), 64.0, 8192.0));
  }

  std::optional<JoinedWays> run() {
    lists_.resize(blocks_.size() + 1);
    lists_[0][0].push_back({});
    for (size_t b = 0; b < blocks_.size(); ++b) {
      join(b);
      if (std::ranges::all_of(lists_[b + 1], &std::vector<Joined>::empty)) return {};
    }
    return best();
  }

 private:
  // Where all would be too many, those that are worth about as much as the best one that does as much for its
  // neighbours, and those that keep least.
  const std::vector<const BlockWay*>& choose_ways(const RecomputeBlock& block) {
    std::vector<const BlockWay*>& chosen = ways_.emplace_back();
    const auto worth = [&](const BlockWay& way) { return way.seconds + limit_.price * way.kept; };
    std::map<std::tuple<GoesOn, bool, bool>, std::pair<double, double>> best;  // worth, and bytes
    const auto kind = [](const BlockWay& way) { return std::tuple(way.out, way.takes, way.through); };
    const auto bytes = [](const BlockWay& way) { return way.kept + way.early; };
    for (const BlockWay& way : block.ways->ways) {
      const auto [at, fresh] = best.emplace(kind(way), std::pair(infinite, infinite));
      at->second = {std::min(at->second.first, worth(way)), std::min(at->second.second, bytes(way))};
    }
    for (const BlockWay& way : block.ways->ways) {
      const auto& [least, fewest] = best[kind(way)];
      if (!thinned_ || worth(way) <= least + limit_.slack / of_one_block || bytes(way) <= fewest)
        chosen.push_back(&way);
    }
    return chosen;
  }

  void join(size_t b) {
    const RecomputeBlock& block = blocks_[b];
    const double other = limit_.others * limit_.least_kept;
    const double steps = limit_.bytes - other - block.steps;
    const double forward = limit_.bytes - other - block.forward;
    const std::vector<const BlockWay*>& own = ways_[b];
    JoinedLists& next = lists_[b + 1];
    std::array<LeastSoFar, 4> least = {LeastSoFar(limit_.bytes), LeastSoFar(limit_.bytes), LeastSoFar(limit_.bytes),
                                       LeastSoFar(limit_.bytes)};
    for (size_t list = 0; list < 4; ++list) {
      const bool needed = list >= kept_list, is_early = list == early_list, is_kept = list == kept_list;
      const bool counted = is_kept || list == static_cast<size_t>(GoesOn::stays);
      for (size_t j = 0; j < lists_[b][list].size(); ++j) {
        const Joined& joined = lists_[b][list][j];
        for (size_t w = 0; w < own.size(); ++w) {
          const BlockWay& way = *own[w];
          if (way.takes != needed) continue;
          const double room = steps - joined.kept;
          if (is_kept ? way.whole > room : way.before > room) continue;
          if (is_early && joined.early + way.after > room) continue;
          if ((counted ? way.forward_kept : way.forward) > forward - joined.kept) continue;
          const double kept = joined.kept + way.kept;
          if (kept > limit_.kept) continue;
          const bool goes_early = way.out == GoesOn::early;
          if (!goes_early && !least[static_cast<size_t>(way.out)].add(kept, joined.seconds + way.seconds)) continue;
          const double before = way.through && is_early ? joined.early : 0;
          next[static_cast<size_t>(way.out)].push_back({kept, goes_early ? way.early + before : 0,
                                                        joined.seconds + way.seconds, static_cast<int>(j),
                                                        static_cast<int>(w + own.size() * list)});
        }
      }
    }
    for (size_t list = 0; list < 4; ++list) {
      keep_best(next[list]);
      const auto most = static_cast<double>(most_) / 4;
      if (list == early_list) {
        thin(next[list], std::floor(std::sqrt(most * 2)), std::floor(std::sqrt(most * 2)));
      } else {
        thin(next[list], std::floor(most), 1);
      }
    }
  }

  // Those that no other beats, by the bytes that they keep.
  static void keep_best(std::vector<Joined>& all) {
    std::ranges::sort(all, [](const Joined& a, const Joined& b) {
      return std::tie(a.kept, a.early, a.seconds) < std::tie(b.kept, b.early, b.seconds);
    });
    std::map<double, double> seconds;  // by early bytes, each less than for fewer
    std::erase_if(all, [&](const Joined& one) {
      auto above = seconds.upper_bound(one.early);
      if (above != seconds.begin() && std::prev(above)->second <= one.seconds) return true;
      while (above != seconds.end() && above->second >= one.seconds) above = seconds.erase(above);
      seconds[one.early] = one.seconds;
      return false;
    });
  }

  double worth(const Joined& one) const { return one.seconds + limit_.price * one.kept; }

  // Of neighbours the one that is worth most: of all, and of those that are worth about as much as the best one.
  void thin(std::vector<Joined>& all, double columns, double rows) {
    if (static_cast<double>(all.size()) <= columns * rows) return;
    thinned_ = true;
    std::vector<Joined> left = {
        *std::ranges::min_element(all, {}, [](const Joined& one) { return one.kept + one.early; })};
    const auto by_worth = [&](const Joined& one) { return worth(one); };
    add_neighbours(all, columns / 2, rows, left);
    const double behind = worth(*std::ranges::min_element(all, {}, by_worth)) + limit_.slack;
    std::erase_if(all, [&](const Joined& one) { return worth(one) > behind; });
    add_neighbours(all, columns / 2, rows, left);
    all = std::move(left);
  }

  void add_neighbours(const std::vector<Joined>& all, double columns, double rows, std::vector<Joined>& left) const {
    const auto [least, largest] = std::ranges::minmax(all, {}, &Joined::early);
    const double first = all.front().kept, width = std::max((all.back().kept - first) / columns, 1e-300);
    const double height = std::max((largest.early - least.early) / rows, 1e-300), lowest = least.early;
    std::map<std::pair<double, double>, Joined> cells;
    for (const Joined& one : all) {
      const std::pair at(std::floor((one.kept - first) / width), std::floor((one.early - lowest) / height));
      const auto [cell, fresh] = cells.emplace(at, one);
      if (!fresh && worth(one) < worth(cell->second)) cell->second = one;
    }
    for (const auto& [at, one] : cells) left.push_back(one);
  }

  std::optional<JoinedWays> best() const {
    size_t list = 0, at = 0;
    JoinedWays out{.seconds = infinite};
    for (size_t l = 0; l < 4; ++l) {
      for (size_t j = 0; j < lists_.back()[l].size(); ++j) {
        if (lists_.back()[l][j].seconds >= out.seconds) continue;
        out.seconds = lists_.back()[l][j].seconds;
        list = l, at = j;
      }
    }
    out.least = !thinned_ && std::ranges::all_of(blocks_, [](const RecomputeBlock& block) {
      return block.ways->all && block.steps == block.least_steps && block.forward == 0;
    });
    out.again.assign(problem_.nodes.size(), false);
    for (size_t b = blocks_.size(); b-- > 0;) {
      const Joined& joined = lists_[b + 1][list][at];
      const size_t own = ways_[b].size(), way = static_cast<size_t>(joined.way);
      for (const int n : ways_[b][way % own]->again) out.again[static_cast<size_t>(blocks_[b].begin + n)] = true;
      list = way / own;
      at = static_cast<size_t>(joined.from);
    }
    return out;
  }

  const RecomputeProblem& problem_;
  const std::vector<RecomputeBlock>& blocks_;
  const RecomputeLimit limit_;
  size_t most_ = 0;
  bool thinned_ = false;
  std::vector<std::vector<const BlockWay*>> ways_;  // by block
  std::vector<JoinedLists> lists_;                  // before the first block, and behind each
};

}  // namespace

std::optional<JoinedWays> join_blocks(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks,
                                      const RecomputeLimit& limit) {
  return Joining(problem, blocks, limit).run();
}

}  // namespace epl
