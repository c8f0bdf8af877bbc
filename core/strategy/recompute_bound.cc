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
constexpr int most_rounds = 60, rounds_without_gain = 5;
// A bound that is so near to a choice is not improved.
constexpr double near_enough = 0.995;

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
        bound = {std::max(at_left, at_right), std::exp(at_left < at_right ? right : left), fits};
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

// All blocks at once, in their steps and while their nodes run. Of early results that go through several blocks, the
// bytes of the last one count alone, and of those before at least what they leave.
class AllSteps {
 public:
  AllSteps(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes)
      : blocks_(blocks), others_(problem.in_flight - 1), bytes_(bytes - problem.always) {
    double least = 0;
    for (const RecomputeBlock& block : blocks) {
      least_early_.push_back(least);
      double own = 0;
      for (const BlockWay& way : block.ways->ways) own = std::min(own, way.early);
      least += own;
    }
  }

  double run(const PricedBound& one, double choice) {
    std::vector<double> prices(2 * blocks_.size(), 0);
    prices[one.block] = one.price;
    best_prices_ = prices;
    double best = 0, length = 1;
    for (int round = 0, gained = 0; round < most_rounds && best < near_enough * choice; ++round) {
      const double bound = at(prices);
      if (!std::isfinite(bound)) return best;
      if (bound > best * (1 + 1e-4)) gained = round;
      if (bound > best) {
        best = bound;
        best_prices_ = prices;
      }
      if (round - gained >= rounds_without_gain) {
        length /= 2;
        gained = round;
        prices = best_prices_;
        at(prices);
      }
      double square = 0;
      for (const double above : above_) square += above * above;
      if (square <= 0) break;
      const double step = length * std::max(choice - bound, 0.0) / square;
      for (size_t at = 0; at < prices.size(); ++at) prices[at] = std::max(0.0, prices[at] + step * above_[at]);
    }
    return best;
  }

 private:
  struct Chosen {
    const BlockWay* way = nullptr;
    size_t from = 0;
    double cost = no_bound;
  };
  static constexpr size_t states = 4;  // GoesOn of the block before
  static constexpr size_t kept_state = static_cast<size_t>(GoesOn::kept),
                          early_state = static_cast<size_t>(GoesOn::early);

  // Bytes of its own in a block's steps, beside an early result of the block before.
  static double own_bytes(const BlockWay& way, size_t state) {
    return state == kept_state ? way.whole : state == early_state ? way.after : way.before;
  }
  // While its nodes run.
  static double forward_bytes(const BlockWay& way, size_t state) {
    return state == kept_state || state == static_cast<size_t>(GoesOn::stays) ? way.forward_kept : way.forward;
  }
  // That its early result has in the steps of the next block, at least.
  double early_bytes(size_t b, const BlockWay& way) const {
    return way.out != GoesOn::early ? 0 : way.early + (way.through ? least_early_[b] : 0);
  }

  // The least of seconds and what bytes above the limit cost. Sets by how many bytes each block is above it.
  double at(const std::vector<double>& prices) {
    double all = 0;
    for (const double price : prices) all += price;
    std::vector<std::array<Chosen, states>> chosen(blocks_.size());
    std::array<double, states> now = {0, no_bound, no_bound, no_bound};
    double behind = all;
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const double forward = prices[blocks_.size() + b];
      behind -= prices[b] + forward;  // of the blocks behind this one
      const double room = bytes_ - blocks_[b].least_steps;
      const double next = b + 1 < blocks_.size() ? prices[b + 1] : 0;
      for (const BlockWay& way : blocks_[b].ways->ways) {
        const double results = way.kept * (std::max(behind, 0.0) + others_ * all) + next * early_bytes(b, way);
        for (size_t state = 0; state < states; ++state) {
          if (now[state] == no_bound || way.takes != (state >= kept_state)) continue;
          const double own = own_bytes(way, state);
          if (own > room && state != early_state) continue;
          const double nodes = forward_bytes(way, state);
          if (nodes > bytes_) continue;
          const double above = std::isfinite(own) ? prices[b] * (own - room) : 0;
          const double above_forward = std::isfinite(nodes) ? forward * (nodes - bytes_) : 0;
          const double cost = now[state] + way.seconds + results + above + above_forward;
          Chosen& best = chosen[b][static_cast<size_t>(way.out)];
          if (cost < best.cost) best = {&way, state, cost};
        }
      }
      for (size_t state = 0; state < states; ++state) now[state] = chosen[b][state].cost;
    }
    const auto last = static_cast<size_t>(std::ranges::min_element(now) - now.begin());
    if (now[last] == no_bound) return no_bound;
    find_above(chosen, last);
    return now[last];
  }

  void find_above(const std::vector<std::array<Chosen, states>>& chosen, size_t state) {
    const size_t count = blocks_.size();
    above_.assign(2 * count, -no_bound);
    std::vector<double> kept(count, 0);
    double all = 0;
    for (size_t b = count; b-- > 0;) {
      const Chosen& one = chosen[b][state];
      above_[b] = own_bytes(*one.way, one.from) - (bytes_ - blocks_[b].least_steps);
      above_[count + b] = forward_bytes(*one.way, one.from) - bytes_;
      if (one.from == early_state) above_[b] += early_bytes(b - 1, *chosen[b - 1][one.from].way);
      all += kept[b] = one.way->kept;
      state = one.from;
    }
    double before = others_ * all;
    for (size_t b = 0; b < count; ++b) {
      for (double* above : {&above_[b], &above_[count + b]}) *above = std::isfinite(*above) ? *above + before : 0;
      before += kept[b];
    }
  }

  const std::vector<RecomputeBlock>& blocks_;
  const double others_, bytes_;
  std::vector<double> least_early_;          // by block: of results of all blocks before, none or below it
  std::vector<double> above_, best_prices_;  // by block in its steps, then by block while its nodes run
};

}  // namespace

double bound_by_all_steps(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes,
                          const PricedBound& one, double choice) {
  const bool searched = std::ranges::all_of(blocks, [](const RecomputeBlock& block) { return block.ways->all; });
  return searched && one.price > 0 && choice > 0 ? AllSteps(problem, blocks, bytes).run(one, choice) : 0;
}

PricedBound priced_bound(const RecomputeProblem& problem, const std::vector<RecomputeBlock>& blocks, double bytes) {
  return Pricing(problem, blocks, bytes).run();
}

}  // namespace epl
