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
constexpr double most_pairs = 4e6;
constexpr double infinite = std::numeric_limits<double>::infinity();

// All blocks up to one.
struct Joined {
  double kept = 0, early = 0, seconds = 0;
  int from = -1, way = -1;  // of the block before, and of this block
};
// By what happens to the result that goes on.
using JoinedLists = std::array<std::vector<Joined>, 3>;
constexpr size_t early_list = static_cast<size_t>(GoesOn::early);

class Joining {
 public:
  Joining(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, const RecomputeLimit& limit)
      : problem_(problem), blocks_(blocks), limit_(limit) {
    size_t ways = 0;
    for (const RecomputeBlock& block : blocks) ways += block.ways->ways.size();
    const double fitting = most_pairs / static_cast<double>(std::max<size_t>(ways, 1));
    most_ = static_cast<size_t>(std::clamp(fitting, 64.0, 8192.0));
  }

  std::optional<JoinedWays> run() {
    if (limit_.bound) find_anything();
    lists_.resize(blocks_.size() + 1);
    lists_[0][0].push_back({});
    for (size_t b = 0; b < blocks_.size(); ++b) {
      join(b);
      if (std::ranges::all_of(lists_[b + 1], &std::vector<Joined>::empty)) return {};
    }
    return best();
  }

 private:
  const std::vector<BlockWay>& ways(size_t b) const {
    const BlockWays& ways = *blocks_[b].ways;
    return limit_.bound && !ways.all ? anything_ : ways.ways;
  }

  // Where a block has not been searched in full, a bound takes it to do whatever helps, at once.
  void find_anything() {
    for (const GoesOn out : {GoesOn::not_needed, GoesOn::kept, GoesOn::early}) {
      for (const bool takes : {false, true}) {
        BlockWay way{.out = out, .takes = takes, .through = takes};
        way.early = way.whole = way.before = way.after = way.forward = way.forward_kept = -infinite;
        anything_.push_back(way);
      }
    }
  }

  void join(size_t b) {
    const RecomputeBlock& block = blocks_[b];
    const double other = limit_.others * (limit_.bound ? limit_.least_kept : limit_.kept);
    const double steps = limit_.bytes - other - (limit_.bound ? block.least_steps : block.steps);
    const double forward = limit_.bytes - other - (limit_.bound ? 0 : block.forward);
    const std::vector<BlockWay>& own = ways(b);
    JoinedLists& next = lists_[b + 1];
    for (size_t list = 0; list < 3; ++list) {
      const bool needed = list != 0, is_early = list == early_list, is_kept = needed && !is_early;
      for (size_t j = 0; j < lists_[b][list].size(); ++j) {
        const Joined& joined = lists_[b][list][j];
        for (size_t w = 0; w < own.size(); ++w) {
          const BlockWay& way = own[w];
          if (way.takes != needed) continue;
          const double room = steps - joined.kept;
          if (is_kept ? way.whole > room : way.before > room) continue;
          if (is_early && joined.early + way.after > room) continue;
          if ((is_kept ? way.forward_kept : way.forward) > forward - joined.kept) continue;
          const double kept = joined.kept + way.kept;
          if (kept > limit_.kept) continue;
          const bool goes_early = way.out == GoesOn::early;
          const double before = way.through && is_early ? joined.early : 0;
          next[static_cast<size_t>(way.out)].push_back({kept, goes_early ? way.early + before : 0,
                                                        joined.seconds + way.seconds, static_cast<int>(j),
                                                        static_cast<int>(w + own.size() * list)});
        }
      }
    }
    for (size_t list = 0; list < 3; ++list) {
      keep_best(next[list]);
      if (list == early_list) {
        thin_early(next[list]);
      } else {
        thin(next[list]);
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

  // Of neighbours the one that takes least time, and of all the one that keeps least.
  void thin(std::vector<Joined>& all) const {
    const size_t most = std::max<size_t>(most_ / 4, 16);
    if (all.size() <= most) return;
    std::vector<Joined> left;
    if (!limit_.bound) left.push_back(all.front());
    const double first = all.front().kept, width = (all.back().kept - first) / static_cast<double>(most);
    for (size_t begin = 0, end; begin < all.size(); begin = end) {
      const double part = std::floor((all[begin].kept - first) / width);
      for (end = begin; end < all.size() && std::floor((all[end].kept - first) / width) == part;) ++end;
      left.push_back(all[end - 1]);
      if (limit_.bound) left.back().kept = all[begin].kept;
    }
    all = std::move(left);
  }

  void thin_early(std::vector<Joined>& all) const {
    const auto most = std::max(std::floor(std::sqrt(static_cast<double>(most_) / 2)), 6.0);
    if (static_cast<double>(all.size()) <= most * most) return;
    double least = infinite, largest = -infinite;
    for (const Joined& one : all) {
      if (!std::isfinite(one.early)) continue;
      least = std::min(least, one.early);
      largest = std::max(largest, one.early);
    }
    const double first = all.front().kept, width = std::max((all.back().kept - first) / most, 1e-300);
    const double height = std::max((largest - least) / most, 1e-300);
    std::map<std::pair<double, double>, Joined> cells;
    for (const Joined& one : all) {
      const double row = std::isfinite(one.early) ? std::floor((one.early - least) / height) : -1;
      const auto [at, fresh] = cells.emplace(std::pair(std::floor((one.kept - first) / width), row), one);
      Joined& cell = at->second;
      if (limit_.bound) {
        cell.kept = std::min(cell.kept, one.kept);
        cell.early = std::min(cell.early, one.early);
        cell.seconds = std::min(cell.seconds, one.seconds);
      } else if (!fresh && one.seconds < cell.seconds) {
        cell = one;
      }
    }
    const auto bytes = [](const Joined& one) { return one.kept + one.early; };
    const Joined smallest = *std::ranges::min_element(all, {}, bytes);
    all.clear();
    if (!limit_.bound) all.push_back(smallest);
    for (const auto& [at, one] : cells) all.push_back(one);
  }

  std::optional<JoinedWays> best() const {
    size_t list = 3, at = 0;
    JoinedWays out{.seconds = infinite};
    for (size_t l = 0; l < 3; ++l) {
      for (size_t j = 0; j < lists_.back()[l].size(); ++j) {
        if (lists_.back()[l][j].seconds >= out.seconds) continue;
        out.seconds = lists_.back()[l][j].seconds;
        list = l, at = j;
      }
    }
    if (limit_.bound) return out;
    out.again.assign(problem_.nodes.size(), false);
    for (size_t b = blocks_.size(); b-- > 0;) {
      const Joined& joined = lists_[b + 1][list][at];
      const size_t own = ways(b).size(), way = static_cast<size_t>(joined.way);
      for (const int n : ways(b)[way % own].again) out.again[static_cast<size_t>(blocks_[b].begin + n)] = true;
      list = way / own;
      at = static_cast<size_t>(joined.from);
    }
    return out;
  }

  const RecomputeProblem& problem_;
  const std::vector<RecomputeBlock>& blocks_;
  const RecomputeLimit limit_;
  size_t most_ = 0;
  std::vector<BlockWay> anything_;
  std::vector<JoinedLists> lists_;  // before the first block, and behind each
};

}  // namespace

std::optional<JoinedWays> join_blocks(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks,
                                      const RecomputeLimit& limit) {
  return Joining(problem, blocks, limit).run();
}

}  // namespace epl
