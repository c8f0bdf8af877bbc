// Where everything lives: offsets for storages with known sizes and lifetimes, so that storages that are alive together
// never overlap. Pure arithmetic, no graph.
#pragma once

#include <cstdint>
#include <vector>

namespace epl {

struct Storage {
  int64_t bytes = 0;
  int first = 0, last = 0;  // positions at which it is alive, both included
  int64_t offset = -1;      // the answer
};

inline constexpr int64_t memory_alignment = 64;
constexpr int64_t aligned_bytes(int64_t bytes) {
  return (bytes + memory_alignment - 1) / memory_alignment * memory_alignment;
}

struct MemoryLayout {
  int64_t bytes = 0;         // of the arena
  int64_t largest_live = 0;  // bytes alive together at the fullest position: no layout needs less
  int64_t looks = 0;         // at storages that are laid out already: the work it took
};

// What a layout may take: about two seconds. Layout by best fit in any order looks at pairs of storages.
inline constexpr int64_t max_looks = int64_t{1} << 29;
// What a search may take: about a second.
inline constexpr int64_t max_search_looks = int64_t{1} << 29;
// What a plan that hardly ever needs one may take: some hundredths of a second, where more than a twentieth is lost.
inline constexpr int64_t few_search_looks = int64_t{1} << 23;

// Sets the offsets. Tries several orders of placement (by size, by lifetime, by first use) with best fit and keeps the
// smallest arena; stops early at the lower bound. Where the storages are too many for `most` looks, they are laid out
// in the order of time and of time backwards, for which a list of gaps is enough. Where the arena is then far from the
// lower bound, other orders are searched for with `search` looks, until it is within 5%.
MemoryLayout lay_out(std::vector<Storage>& storages, int64_t most = max_looks, int64_t search = 0);

}  // namespace epl
