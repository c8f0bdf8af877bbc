#include "core/strategy/batch_axes.h"

#include <algorithm>
#include <map>

#include "core/base/text.h"

namespace epl {
namespace {

// By prime: how often it divides n.
std::map<int64_t, int> prime_factors(int64_t n) {
  std::map<int64_t, int> found;
  for (int64_t p = 2; p * p <= n; ++p) {
    for (; n % p == 0; n /= p) ++found[p];
  }
  if (n > 1) ++found[n];
  return found;
}

// An axis for each set of degrees that share a factor, those that more of them share first.
std::vector<BatchAxes::Axis> shared_factors(const std::set<int64_t>& degrees) {
  std::map<int64_t, std::map<int64_t, int>> exponents;  // by degree and prime
  std::set<int64_t> primes;
  for (int64_t degree : degrees) {
    exponents[degree] = prime_factors(degree);
    for (const auto& [prime, count] : exponents[degree]) primes.insert(prime);
  }
  std::map<std::set<int64_t>, int64_t> sizes;  // by who uses it
  for (int64_t prime : primes) {
    for (int count = 1;; ++count) {
      std::set<int64_t> users;
      for (int64_t degree : degrees) {
        if (exponents[degree][prime] >= count) users.insert(degree);
      }
      if (users.empty()) break;
      sizes.emplace(users, 1).first->second *= prime;
    }
  }
  std::vector<BatchAxes::Axis> axes;
  for (const auto& [users, size] : sizes) axes.push_back({size, users});
  std::ranges::stable_sort(axes, std::ranges::greater(), [](const BatchAxes::Axis& a) { return a.degrees.size(); });
  return axes;
}

}  // namespace

Status Chain::check() const {
  int64_t before = 1;
  for (int64_t degree : degrees_) {
    if (degree % before != 0)
      return invalid("scopes cut the same ranks by ", before, " and by ", degree, ", of which none divides the other");
    before = degree;
  }
  return {};
}

Result<BatchAxes> BatchAxes::find(const std::set<int64_t>& degrees) {
  BatchAxes out;
  Chain chain;
  for (int64_t degree : degrees) chain.add(degree);
  out.chain_ = chain.check().ok();
  if (out.chain_) {
    int64_t before = 1;
    for (int64_t degree : degrees) {
      out.axes_.push_back({degree / before, {degrees.lower_bound(degree), degrees.end()}});
      before = degree;
    }
    return out;
  }
  out.axes_ = shared_factors(degrees);
  if (out.axes_.front().degrees != degrees) out.axes_.insert(out.axes_.begin(), {1, degrees});
  for (int64_t degree : degrees) {
    int gaps = 0;
    bool used = true;
    for (const Axis& axis : out.axes_) {
      gaps += used && !axis.degrees.contains(degree) ? 1 : 0;
      used = axis.degrees.contains(degree);
    }
    if (gaps < 2) continue;
    std::vector<std::string> all;
    for (int64_t d : degrees) all.push_back(cat(d));
    return unsupported("stages have ", join(all, ", "), " copies: the samples of one with ", degree,
                       " would not lie evenly among those of the others; give them numbers that divide one another");
  }
  return out;
}

int64_t BatchAxes::shards() const {
  int64_t shards = 1;
  for (const Axis& axis : axes_) shards *= axis.size;
  return shards;
}

BatchLayout BatchAxes::layout(int64_t degree, const MeshNumbers& numbers, const MicroBatches& in_time) const {
  Cuts cuts = {{}};
  int64_t outer = 1;
  bool used = true;  // the axis before
  const auto take = [&](int axis) {
    if (!used) cuts.push_back({.axes = {}, .outer = outer});
    cuts.back().axes.push_back(axis);
    used = true;
  };
  const bool time_first = in_time.order == BatchOrder::micro_batches;
  if (time_first) {
    take(numbers.time);
    outer = in_time.count;
  }
  for (size_t i = 0; i < axes_.size(); ++i) {
    if (axes_[i].degrees.contains(degree)) {
      take(numbers.ranks[i]);
    } else {
      used = false;
    }
    outer *= axes_[i].size;
  }
  if (!time_first) take(numbers.time);
  take(numbers.unit);
  return BatchLayout(std::move(cuts));
}

bool BatchAxes::keep_the_tree(const MicroBatches& in_time) const {
  if (!chain_) return false;
  std::vector<int64_t> sizes;
  for (const Axis& axis : axes_) sizes.push_back(axis.size);
  sizes.insert(in_time.order == BatchOrder::micro_batches ? sizes.begin() : sizes.end(), in_time.count);
  std::erase(sizes, 1);
  return sizes.empty() || std::all_of(sizes.begin() + 1, sizes.end(), power_of_two);
}

}  // namespace epl
