// The canonical order of reductions other than matrix products.
//
// A reduction of n values, numbered 0 to n-1 in logical (row-major) order of the reduced dimensions, gives the same
// bits whatever the threads, the vector width, the cut of the dimensions that stay, and the layout in memory:
//   - n is `units` equal runs (1 where the batch is not reduced); every run is reduced alone;
//   - a run is cut, from its start, into segments of `reduce_segment` values, the last perhaps shorter;
//   - a segment has 16 lanes; lane l starts from the identity and takes values l, l + 16, l + 32, ... of the segment;
//     lanes are joined as l and l + 8, then l and l + 4, l + 2, l + 1;
//   - segments, and then runs, are joined by the binary tree over their numbers: (0+1)+(2+3)..., an odd last one
//     passing to the next level as it is.
// An aligned power-of-two run of units, or of segments, is therefore a subtree.
#pragma once

#include <cstdint>

namespace epl::cpu {

inline constexpr int64_t reduce_segment = 1024;
inline constexpr int reduce_lanes = 16;

constexpr int64_t segment_count(int64_t n) { return (n + reduce_segment - 1) / reduce_segment; }

// Joins `count` rows of `width` values by the binary tree, in place; the result is the first row. `stride` separates
// rows.
template <class T, class Join> void join_tree(T* rows, int64_t count, int64_t stride, int64_t width, Join join) {
  for (int64_t step = 1; step < count; step *= 2) {
    for (int64_t i = 0; i + step < count; i += 2 * step) {
      T* a = rows + i * stride;
      const T* b = rows + (i + step) * stride;
      for (int64_t k = 0; k < width; ++k) a[k] = join(a[k], b[k]);
    }
  }
}

}  // namespace epl::cpu
