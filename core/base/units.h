// How the positions of a sum over the batch are divided into units.
#pragma once

#include <cstdint>

namespace epl {

// n positions, in logical order, are `outer` times `count` runs of n / (outer * count): run u of each belongs to unit
// u. `outer` is 1 where the batch is the first of the dimensions summed over; else it is the product of those before
// it, as for the steps of a sequence that has time before samples. A unit is summed in the order of its positions,
// whatever lies between them.
struct Units {
  int64_t count = 1, outer = 1;

  constexpr Units(int64_t count = 1, int64_t outer = 1) : count(count), outer(outer) {}
  friend bool operator==(const Units&, const Units&) = default;

  bool divide(int64_t n) const { return n % (count * outer) == 0; }
  int64_t run(int64_t n) const { return n / (count * outer); }
  // The unit of position i.
  int64_t of(int64_t i, int64_t n) const { return i / run(n) % count; }
  // Position number i when units follow one another: the first n / count are unit 0, and so on.
  int64_t position(int64_t i, int64_t n) const {
    if (outer == 1) return i;
    const int64_t length = run(n), unit = i / (length * outer), at = i % (length * outer);
    return (at / length * count + unit) * length + at % length;
  }
};

// Where the elements of a shard stand in the logical tensor: runs of `run` elements, `stride` apart, the first of which
// begins at `first`.
struct LogicalElements {
  int64_t first = 0, run = 0, stride = 0;  // a run of 0: all of them follow one another

  constexpr LogicalElements(int64_t first = 0, int64_t run = 0, int64_t stride = 0)
      : first(first), run(run), stride(stride) {}
  int64_t of(int64_t i) const { return run == 0 ? first + i : first + i / run * stride + i % run; }
};

}  // namespace epl
