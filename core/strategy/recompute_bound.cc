#include "core/strategy/recompute_bound.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace epl {
namespace {

constexpr double no_bound = std::numeric_limits<double>::infinity();
constexpr int price_tries = 30;
constexpr size_t last_blocks = 6, other_blocks = 6;

// As GoesOn, but that an early result is in memory in the steps of the block that has to fit, or is not.
enum PricedState : size_t { priced_not_needed, priced_stays, priced_kept, priced_early, priced_early_there };
constexpr size_t priced_states = 5;

class Pricing {
 public:
  Pricing(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes)
      : blocks_(blocks), others_(problem.in_flight - 1), bytes_(bytes - problem.always) {
    double seconds = 0, all = 0;
    for (const RecomputeProblem::Node& node : problem.nodes) seconds += node.seconds;
    for (const double one : problem.bytes) all += one;
    usual_price_ = all > 0 ? seconds / all : 0;
  }

  PricedBound run() const {
    const bool searched = std::ranges::all_of(blocks_, [](const RecomputeBlock& block) { return block.ways->all; });
    if (!searched || usual_price_ <= 0) return {.seconds = 0, .price = usual_price_};
    std::vector<size_t> with_steps;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const std::vector<BlockWay>& ways = blocks_[b].ways->ways;
      if (std::ranges::any_of(ways, [](const BlockWay& way) { return std::isfinite(way.whole); }))
        with_steps.push_back(b);
    }
    PricedBound bound{.seconds = 0, .price = usual_price_};
    for (size_t i = 0; i < with_steps.size(); ++i) {
      const bool last = i + last_blocks >= with_steps.size();
      if (last || i % (with_steps.size() / other_blocks + 1) == 0) improve(with_steps[i], bound);
    }
    return bound;
  }

 private:
  // The bound is a concave function of the price.
  void improve(size_t fits, PricedBound& bound) const {
    double low = std::log(usual_price_ * 1e-4), high = std::log(usual_price_ * 1e4);
    for (int i = 0; i < price_tries; ++i) {
      const double left = low + (high - low) * 0.45, right = low + (high - low) * 0.55;
      const double at_left = at_price(fits, std::exp(left)), at_right = at_price(fits, std::exp(right));
      if (std::max(at_left, at_right) > bound.seconds)
        bound = {std::max(at_left, at_right), std::exp(at_left < at_right ? right : left)};
      (at_left < at_right ? low : high) = at_left < at_right ? left : right;
    }
  }

  double at_price(size_t fits, double price) const {
    std::array<double, priced_states> now;
    now.fill(no_bound);
    now[priced_not_needed] = 0;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      std::array<double, priced_states> next;
      next.fill(no_bound);
      for (const BlockWay& way : blocks_[b].ways->ways) {
        const double kept = way.kept * (others_ + (b < fits ? 1 : 0));
        for (size_t state = 0; state < priced_states; ++state) {
          if (now[state] == no_bound || way.takes != (state >= priced_kept)) continue;
          const double steps = state == priced_kept ? way.whole : state < priced_kept ? way.before : way.after;
          const double room = bytes_ - blocks_[b].least_steps;
          if (state < priced_early && steps > room) continue;
          double cost = now[state] + way.seconds + price * kept;
          if (b == fits) cost += price * (steps - room);
          const bool goes_on = state == priced_early_there && b < fits;
          if (way.out != GoesOn::early) {
            if (!goes_on) lower(next[static_cast<size_t>(way.out)], cost);
            continue;
          }
          // What is there goes on to be there, through every block in between.
          if (!goes_on && b + 1 != fits) lower(next[priced_early], cost);
          if (b < fits && (goes_on ? way.through : !(way.through && state == priced_early)))
            lower(next[priced_early_there], cost + price * way.early);
        }
      }
      now = next;
    }
    const double least = std::ranges::min(now);
    return std::isfinite(least) ? least : least > 0 ? no_bound : 0;
  }

  static void lower(double& least, double cost) { least = std::min(least, cost); }

  const std::vector<RecomputeBlock>& blocks_;
  const double others_, bytes_;
  double usual_price_ = 0;
};

}  // namespace

PricedBound priced_bound(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes) {
  return Pricing(problem, blocks, bytes).run();
}

}  // namespace epl
