#include "core/program/memory.h"

#include <algorithm>
#include <numeric>

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

// Places storages in the given order, each into the tightest gap between those that are alive with it.
int64_t place(const std::vector<Storage>& storages, const std::vector<int>& order, std::vector<int64_t>& offsets) {
  std::vector<int> placed;   // by offset
  offsets.assign(storages.size(), -1);
  int64_t total = 0;
  for (int i : order) {
    const Storage& s = storages[i];
    int64_t size = aligned(s.bytes), best = -1, best_gap = INT64_MAX, end = 0;
    for (int other : placed) {
      const Storage& o = storages[other];
      if (o.last < s.first || s.last < o.first) continue;
      int64_t gap = offsets[other] - end;
      if (gap >= size && gap < best_gap) best = end, best_gap = gap;
      end = std::max(end, offsets[other] + aligned(o.bytes));
    }
    offsets[i] = best >= 0 ? best : end;
    total = std::max(total, offsets[i] + size);
    placed.insert(std::ranges::upper_bound(placed, offsets[i], {}, [&](int p) { return offsets[p]; }), i);
  }
  return total;
}

}  // namespace

MemoryLayout lay_out(std::vector<Storage>& storages) {
  MemoryLayout layout{.bytes = INT64_MAX, .largest_live = fullest(storages)};
  std::vector<int> order(storages.size());
  std::vector<int64_t> offsets, best;
  auto attempt = [&](auto&& before) {
    if (layout.bytes <= layout.largest_live) return;
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, [&](int a, int b) { return before(storages[a], storages[b]); });
    int64_t total = place(storages, order, offsets);
    if (total < layout.bytes) {
      layout.bytes = total;
      best = offsets;
    }
  };
  auto span = [](const Storage& s) { return static_cast<int64_t>(s.last) - s.first; };
  attempt([](const Storage& a, const Storage& b) { return a.bytes > b.bytes; });
  attempt([&](const Storage& a, const Storage& b) { return span(a) > span(b); });
  attempt([&](const Storage& a, const Storage& b) { return static_cast<double>(a.bytes) * span(a) > static_cast<double>(b.bytes) * span(b); });
  attempt([](const Storage& a, const Storage& b) { return a.first < b.first; });
  attempt([](const Storage& a, const Storage& b) { return a.last > b.last; });
  // Long-lived first by class of lifetime, large first inside: a compromise that helps deep residual networks.
  attempt([&](const Storage& a, const Storage& b) {
    int64_t ca = 63 - __builtin_clzll(span(a) + 1), cb = 63 - __builtin_clzll(span(b) + 1);
    return ca != cb ? ca > cb : a.bytes > b.bytes;
  });
  for (size_t i = 0; i < storages.size(); ++i) storages[i].offset = best.empty() ? 0 : best[i];
  if (storages.empty()) layout.bytes = 0;
  return layout;
}

}  // namespace epl
