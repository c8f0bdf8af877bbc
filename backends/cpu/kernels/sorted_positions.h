// Positions brought together by the place that each names, in their own order within a place: a counting sort, so that
// threads may share places and each sees the positions of its own.
#pragma once

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "core/base/cache_line.h"

namespace epl::cpu {

// order[first[p]] to order[first[p + 1]] are the positions that name place p.
struct SortedPositions {
  int64_t *first, *order;
};

inline int64_t sorted_positions_bytes(int64_t count, int64_t places) {
  return line_aligned((places + 2 + count) * static_cast<int64_t>(sizeof(int64_t)));
}

// place_of(i) for i < count is the place of position i, -1 for none.
template <class PlaceOf>
SortedPositions sort_positions(void* room, int64_t count, int64_t places, const PlaceOf& place_of) {
  SortedPositions s{static_cast<int64_t*>(room), static_cast<int64_t*>(room) + places + 2};
  std::fill_n(s.first, places + 2, int64_t{0});
  int64_t* next = s.first + 1;  // shifted by one: filling moves every start to its place
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = place_of(i);
    if (place >= 0) ++next[place + 1];
  }
  for (int64_t p = 0; p < places; ++p) next[p + 1] += next[p];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = place_of(i);
    if (place >= 0) s.order[next[place]++] = i;
  }
  return s;
}

}  // namespace epl::cpu
