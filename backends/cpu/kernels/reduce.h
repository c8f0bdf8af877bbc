// Reductions of float32 tensors over any axes, in the canonical order (reduce_order.h).
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/reduce_order.h"
#include "core/base/tensor_type.h"
#include "core/base/thread_pool.h"
#include "core/base/units.h"

namespace epl::cpu {

enum class Reducer : uint8_t { sum, max, min, product };

// Inner loops, per processor level.
struct ReduceLoops {
  // The segments of n contiguous values of a run, in order.
  void (*segments)(const float* x, int64_t n, float* partials);
  // One segment of `rows` rows that begin at x[offsets[r]], column by column: to[k], 0 <= k < width. `scratch` holds
  // 16 rows of `column_block` values.
  void (*columns)(const float* x, const int64_t* offsets, int64_t rows, int64_t width, float* to, float* scratch);
  float (*join)(float a, float b);
  void (*join_rows)(float* a, const float* b, int64_t width);  // a = join(a, b)
};
inline constexpr int64_t column_block = 256;

namespace v3 {
const ReduceLoops& reduce_loops(Reducer op);
}
namespace v4 {
const ReduceLoops& reduce_loops(Reducer op);
}

// How a tensor is reduced: dimensions of size one dropped, neighbours of a kind merged.
class PreparedReduce {
 public:
  PreparedReduce() = default;
  PreparedReduce(const Shape& shape, const std::vector<int64_t>& axes, Units units);
  int64_t reduced() const { return reduced_; }
  int64_t outputs() const { return outer_ * columns_; }
  int64_t workspace_bytes(int threads) const;
  // Writes `outputs()` values in row-major order of the dimensions that stay.
  void run(Reducer op, const float* x, float* y, void* workspace, ThreadPool& threads) const;

 private:
  struct Dim {
    int64_t size, stride;
  };
  void run_values(const ReduceLoops& loops, const float* x, float* y, float* partials, ThreadPool& threads) const;
  void run_columns(const ReduceLoops& loops, const float* x, float* y, float* partials, std::byte* scratch,
                   ThreadPool& threads) const;
  int64_t kept_offset(int64_t index) const;

  void put_units_first(Units units);

  std::vector<Dim> kept_, folded_;  // outermost first; without the columns; the units of `folded_` follow one another
  int64_t units_ = 1, reduced_ = 1;
  int64_t outer_ = 1;    // outputs, or rows of them
  int64_t columns_ = 1;  // neighbouring outputs that are contiguous in the input: 1 where the last dimension is reduced
  int64_t segments_ = 1;  // of one unit
};

}  // namespace epl::cpu
