// Positions brought together by the bucket that each names, in their own order within a bucket: a counting sort, so
// that threads may share buckets and each sees the positions of its own.
#pragma once

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "core/base/cache_line.h"

namespace epl::cpu {

// order[first[p]] to order[first[p + 1]] are the positions that name bucket p.
struct SortedPositions {
  int64_t *first, *order;
};

inline int64_t sorted_positions_bytes(int64_t count, int64_t buckets) {
  return line_aligned((buckets + 2 + count) * static_cast<int64_t>(sizeof(int64_t)));
}

// bucket_of(i) for i < count is the bucket of position i, -1 for none.
template <class BucketOf>
SortedPositions sort_positions(void* room, int64_t count, int64_t buckets, const BucketOf& bucket_of) {
  SortedPositions s{static_cast<int64_t*>(room), static_cast<int64_t*>(room) + buckets + 2};
  std::fill_n(s.first, buckets + 2, int64_t{0});
  int64_t* next = s.first + 1;  // shifted by one: filling moves every start to its bucket
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bucket = bucket_of(i);
    if (bucket >= 0) ++next[bucket + 1];
  }
  for (int64_t p = 0; p < buckets; ++p) next[p + 1] += next[p];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t bucket = bucket_of(i);
    if (bucket >= 0) s.order[next[bucket]++] = i;
  }
  return s;
}

}  // namespace epl::cpu
