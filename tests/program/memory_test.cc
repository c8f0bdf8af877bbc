// Offsets for more storages than pairs of them can be looked at.
#include "core/program/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace epl::memory_test {
namespace {

// Two that are alive together and share a byte, or -1.
int first_overlap(const std::vector<Storage>& storages) {
  std::vector<int> starts(storages.size());
  std::iota(starts.begin(), starts.end(), 0);
  std::vector<int> ends = starts;
  std::ranges::sort(starts, {}, [&](int i) { return storages[i].first; });
  std::ranges::sort(ends, {}, [&](int i) { return storages[i].last; });
  std::map<int64_t, int> alive;  // by offset
  size_t over = 0;
  for (int i : starts) {
    const Storage& s = storages[i];
    for (; storages[ends[over]].last < s.first; ++over) alive.erase(storages[ends[over]].offset);
    auto next = alive.lower_bound(s.offset);
    if (next != alive.end() && next->first < s.offset + s.bytes) return i;
    if (next != alive.begin()) {
      const Storage& before = storages[std::prev(next)->second];
      if (before.offset + before.bytes > s.offset) return i;
    }
    alive.emplace(s.offset, i);
  }
  return -1;
}

struct Random {
  uint64_t state = 1;
  int64_t operator()(int64_t most) {
    return static_cast<int64_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % most;
  }
};

TEST(Memory, StoragesOfAHugeGraphArePlacedWithinABound) {
  // A chain of nodes in training: what a forward pass keeps, its backward pass takes in the opposite order.
  constexpr int count = 40000;
  std::vector<Storage> chain, mixed;
  Random random;
  for (int i = 0; i < count; ++i) {
    chain.push_back({64 + 64 * (i % 7), i, 2 * count - i});
    const int first = static_cast<int>(random(count));
    mixed.push_back({1 + random(5000), first, first + static_cast<int>(random(40))});
  }
  const MemoryLayout of_chain = lay_out(chain), of_mixed = lay_out(mixed, 1 << 22);
  EXPECT_LE(of_chain.looks, max_looks);
  EXPECT_LE(of_mixed.looks, 1 << 22);
  EXPECT_EQ(first_overlap(chain), -1);
  EXPECT_EQ(first_overlap(mixed), -1);
  EXPECT_EQ(of_chain.bytes, of_chain.largest_live);
  EXPECT_LE(static_cast<double>(of_mixed.bytes), 1.6 * static_cast<double>(of_mixed.largest_live));
}

TEST(Memory, TheOrderOfTimeIsEnoughWhereNoPairIsLookedAt) {
  Random random;
  for (int round = 0; round < 200; ++round) {
    std::vector<Storage> storages;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random(50));
      storages.push_back({1 + random(3000), first, first + static_cast<int>(random(20))});
    }
    std::vector<Storage> all = storages;
    const MemoryLayout quick = lay_out(storages, 0), best = lay_out(all);
    EXPECT_EQ(quick.looks, 0);
    EXPECT_GE(quick.bytes, best.bytes);
    EXPECT_LE(static_cast<double>(quick.bytes), 1.6 * static_cast<double>(quick.largest_live));
    ASSERT_EQ(first_overlap(storages), -1) << round;
    ASSERT_EQ(first_overlap(all), -1) << round;
  }
}

TEST(Memory, ASearchComesNearerToTheBound) {
  Random random;
  int far = 0, far_after_search = 0;
  for (int round = 0; round < 20; ++round) {
    std::vector<Storage> storages;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random(50));
      storages.push_back({1 + random(3000), first, first + static_cast<int>(random(20))});
    }
    std::vector<Storage> searched = storages, again = storages;
    const MemoryLayout quick = lay_out(storages), found = lay_out(searched, max_looks, 1 << 24);
    EXPECT_LE(found.bytes, quick.bytes);
    EXPECT_EQ(lay_out(again, max_looks, 1 << 24).bytes, found.bytes) << "the same storages have the same offsets";
    ASSERT_EQ(first_overlap(searched), -1) << round;
    far += quick.bytes > quick.largest_live * 21 / 20;
    far_after_search += found.bytes > found.largest_live * 21 / 20;
  }
  EXPECT_GT(far, 0);
  EXPECT_EQ(far_after_search, 0);
}

}  // namespace
}  // namespace epl::memory_test
