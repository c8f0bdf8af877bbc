#include "core/program/memory.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace epl {
namespace {

int64_t aligned(int64_t bytes) { return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment; }

int64_t fullest(const std::vector<Storage>& storages) {
  int positions = 0;
  for (const Storage& s : storages) positions = std::max(positions, s.last + 2);
  std::vector<int64_t> change(positions + 1, 0);
  for (const Storage& s : storages) {
    change[s.first] += aligned(s.bytes);
    change[s.last + 1] -= aligned(s.bytes);
  }
  int64_t live = 0, most = 0;
  for (int64_t c : change) most = std::max(most, live += c);
  return most;
}

struct Occupied {
  int64_t offset = 0, end = 0;
  int first = 0, last = 0;
};

constexpr int64_t search_round = int64_t{1} << 23;  // looks
constexpr size_t near = 24;                         // positions in an order

enum class Fit : uint8_t { tightest, lowest };

// Lays out storages in the given order, each into the tightest or the lowest gap between those that are alive with it.
// Gives the size of the arena; INT64_MAX when it is over `limit` or `looks` are used up.
int64_t lay_out_in_order(const std::vector<Storage>& storages, const std::vector<int>& order,
                         std::vector<int64_t>& offsets, int64_t& looks, Fit fit = Fit::tightest,
                         int64_t limit = INT64_MAX) {
  std::vector<Occupied> occupied;  // by offset
  occupied.reserve(storages.size());
  offsets.assign(storages.size(), -1);
  int64_t total = 0;
  for (int i : order) {
    looks -= std::ssize(occupied);
    if (looks < 0) return INT64_MAX;
    const Storage& s = storages[i];
    int64_t size = aligned(s.bytes), best = -1, best_gap = INT64_MAX, end = 0;
    for (const Occupied& o : occupied) {
      if (o.last < s.first || s.last < o.first) continue;
      int64_t gap = o.offset - end;
      if (gap >= size && gap < best_gap) best = end, best_gap = fit == Fit::lowest ? size : gap;
      end = std::max(end, o.end);
    }
    offsets[i] = best >= 0 ? best : end;
    total = std::max(total, offsets[i] + size);
    if (total > limit) return INT64_MAX;
    occupied.insert(std::ranges::upper_bound(occupied, offsets[i], {}, &Occupied::offset),
                    {offsets[i], offsets[i] + size, s.first, s.last});
  }
  return total;
}

// The gaps between what is alive now.
class Gaps {
 public:
  // The lowest of the tightest gaps that have room, else the end.
  int64_t take(int64_t size) {
    auto it = by_size_.lower_bound({size, 0});
    if (it == by_size_.end()) {
      end_ += size;
      return end_ - size;
    }
    const auto [gap, offset] = *it;
    remove(by_offset_.find(offset));
    if (gap > size) add(offset + size, gap - size);
    return offset;
  }

  void give_back(int64_t offset, int64_t size) {
    auto next = by_offset_.lower_bound(offset);
    if (next != by_offset_.end() && next->first == offset + size) {
      size += next->second;
      next = remove(next);
    }
    if (next != by_offset_.begin()) {
      auto before = std::prev(next);
      if (before->first + before->second == offset) {
        offset = before->first;
        size += before->second;
        remove(before);
      }
    }
    offset + size == end_ ? static_cast<void>(end_ = offset) : add(offset, size);
  }

 private:
  using ByOffset = std::map<int64_t, int64_t>;
  void add(int64_t offset, int64_t size) {
    by_offset_.emplace(offset, size);
    by_size_.emplace(size, offset);
  }
  ByOffset::iterator remove(ByOffset::iterator it) {
    by_size_.erase({it->second, it->first});
    return by_offset_.erase(it);
  }

  ByOffset by_offset_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t end_ = 0;
};

// Lays out storages in the order of their first position, or, backwards, of their last.
int64_t lay_out_in_time(const std::vector<Storage>& storages, bool backwards, std::vector<int64_t>& offsets) {
  auto begin = [&](int i) { return backwards ? -storages[i].last : storages[i].first; };
  auto end = [&](int i) { return backwards ? -storages[i].first : storages[i].last; };
  std::vector<int> order(storages.size()), ends;
  std::iota(order.begin(), order.end(), 0);
  ends = order;
  std::ranges::stable_sort(order, {}, begin);
  std::ranges::stable_sort(ends, {}, end);
  offsets.assign(storages.size(), 0);
  Gaps gaps;
  int64_t total = 0;
  size_t over = 0;
  for (int i : order) {
    for (; end(ends[over]) < begin(i); ++over) {
      const int64_t size = aligned(storages[ends[over]].bytes);
      if (size > 0) gaps.give_back(offsets[ends[over]], size);
    }
    const int64_t size = aligned(storages[i].bytes);
    if (size > 0) offsets[i] = gaps.take(size);
    total = std::max(total, offsets[i] + size);
  }
  return total;
}

// Looks for a better order of placement, beginning with a good one: what reaches the end of the arena, or something
// that is alive with it, is put a little earlier, much earlier or anywhere, and what is not worse is kept.
class Search {
 public:
  Search(const std::vector<Storage>& storages, std::vector<int> order, std::vector<int64_t> offsets, int64_t bytes,
         int64_t largest_live, uint32_t seed, bool nearby)
      : storages_(storages),
        nearby_(nearby),
        largest_live_(largest_live),
        order_(std::move(order)),
        now_(cost(bytes, offsets)),
        random_(seed) {
    offsets_ = std::move(offsets);
  }

  int64_t bytes() const { return now_.first; }
  const std::vector<int64_t>& offsets() const { return offsets_; }
  const std::vector<int>& order() const { return order_; }

  void run(int64_t wanted, int64_t looks) {
    std::vector<int64_t> offsets;
    while (looks >= 0 && bytes() > wanted) {
      std::vector<int> order = order_;
      move(order);
      const Fit fit = pick(5) > 0 ? fit_ : fit_ == Fit::lowest ? Fit::tightest : Fit::lowest;
      const int64_t total = lay_out_in_order(storages_, order, offsets, looks, fit, bytes());
      if (total > bytes() || cost(total, offsets) > now_) continue;
      now_ = cost(total, offsets);
      fit_ = fit;
      order_ = std::move(order);
      offsets_ = offsets;
    }
  }

 private:
  // The size of the arena, then how much stands out of the bound.
  using Cost = std::pair<int64_t, int64_t>;
  Cost cost(int64_t bytes, const std::vector<int64_t>& offsets) const {
    Cost cost{bytes, 0};
    for (size_t i = 0; i < storages_.size(); ++i)
      cost.second += std::max<int64_t>(0, offsets[i] + aligned(storages_[i].bytes) - largest_live_);
    return cost;
  }

  size_t pick(size_t count) { return static_cast<size_t>(random_()) % count; }
  const Storage& at(int i) const { return storages_[i]; }

  int pick_storage() {
    std::vector<int> last, beside;
    for (int i : order_) {
      if (offsets_[i] + aligned(at(i).bytes) == bytes()) last.push_back(i);
    }
    const int found = last[pick(last.size())];
    if (pick(2) == 0) return found;
    for (int i : order_) {
      if (at(i).first <= at(found).last && at(found).first <= at(i).last) beside.push_back(i);
    }
    return beside[pick(beside.size())];
  }

  void move(std::vector<int>& order) {
    const int moved = pick_storage();
    const auto from = std::ranges::find(order, moved);
    const auto before = static_cast<size_t>(from - order.begin());
    order.erase(from);
    const bool anywhere = pick(3) == 0, nearby = !anywhere && nearby_ && pick(2) == 0;
    const size_t to = anywhere ? pick(storages_.size())
                      : nearby ? before - std::min(before, pick(near))
                               : pick(before + 1);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(to), moved);
  }

  const std::vector<Storage>& storages_;
  const bool nearby_;  // it also moves storages a little
  int64_t largest_live_;
  std::vector<int> order_;
  std::vector<int64_t> offsets_;
  Cost now_;
  Fit fit_ = Fit::tightest;
  std::mt19937 random_;  // the standard says what it gives
};

}  // namespace

MemoryLayout lay_out(std::vector<Storage>& storages, int64_t most, int64_t search) {
  MemoryLayout layout{.bytes = INT64_MAX, .largest_live = fullest(storages)};
  std::vector<int> order(storages.size()), best_order;
  std::vector<int64_t> offsets, best;
  int64_t looks = most;
  auto keep = [&](int64_t total) {
    if (total >= layout.bytes) return;
    layout.bytes = total;
    best = offsets;
    best_order = order;
  };
  auto attempt = [&](auto&& before) {
    if (layout.bytes <= layout.largest_live || looks < 0) return;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int a, int b) { return before(storages[a], storages[b]); });
    keep(lay_out_in_order(storages, order, offsets, looks));
  };
  auto span = [](const Storage& s) { return static_cast<int64_t>(s.last) - s.first; };
  attempt([](const Storage& a, const Storage& b) { return a.bytes > b.bytes; });
  attempt([&](const Storage& a, const Storage& b) { return span(a) > span(b); });
  attempt([&](const Storage& a, const Storage& b) {
    return static_cast<double>(a.bytes) * span(a) > static_cast<double>(b.bytes) * span(b);
  });
  attempt([](const Storage& a, const Storage& b) { return a.first < b.first; });
  attempt([](const Storage& a, const Storage& b) { return a.last > b.last; });
  // Long-lived first by class of lifetime, large first inside: a compromise that helps deep residual networks.
  attempt([&](const Storage& a, const Storage& b) {
    int64_t ca = 63 - __builtin_clzll(span(a) + 1), cb = 63 - __builtin_clzll(span(b) + 1);
    return ca != cb ? ca > cb : a.bytes > b.bytes;
  });
  // What is not found soon is found sooner by another beginning, and then by going on from the best by smaller steps.
  const int64_t beginnings = search / search_round / 2;
  const int64_t fiftieth = layout.largest_live / 50, twentieth = layout.largest_live / 20;
  const std::vector<int> start = best_order;
  const std::vector<int64_t> start_offsets = best;
  const int64_t start_bytes = layout.bytes;
  for (uint32_t seed = 0; search > 0 && looks >= 0 && !best.empty(); ++seed, search -= search_round) {
    const int64_t wanted = layout.largest_live + (seed == 0 && beginnings > 0 ? fiftieth : twentieth);
    if (layout.bytes <= wanted) break;
    const bool goes_on = seed >= beginnings;
    Search found(storages, goes_on ? best_order : start, goes_on ? best : start_offsets,
                 goes_on ? layout.bytes : start_bytes, layout.largest_live, seed, goes_on);
    found.run(wanted, std::min(search, search_round));
    offsets = found.offsets();
    order = found.order();
    keep(found.bytes());
  }
  if (looks < 0) {
    for (bool backwards : {false, true}) keep(lay_out_in_time(storages, backwards, offsets));
  }
  layout.looks = most - std::max<int64_t>(looks, 0);
  for (size_t i = 0; i < storages.size(); ++i) storages[i].offset = best.empty() ? 0 : best[i];
  if (storages.empty()) layout.bytes = 0;
  return layout;
}

}  // namespace epl
