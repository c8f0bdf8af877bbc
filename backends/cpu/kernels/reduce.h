// Reductions of float32 tensors over any axes, in the canonical order (reduce_order.h).
#pragma once

#include <cstdint>
#include <vector>

#include "backends/cpu/kernels/reduce_order.h"
#include "core/base/function_ref.h"
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

  // Sums of tensors that are made as they are summed, all of one shape, in the order in which they lie in memory.
  // Elements that follow one another are made at once: `shortest` of them at least, but for the ends of segments.
  int64_t shortest_run() const { return columns_ > 1 ? 1 : folded_.back().size; }
  int64_t made_workspace_bytes(int sums, int threads) const;
  // A thread's share of the work is `task(thread, walk)`, which calls `walk(make)` once; `make(first, count, room)`
  // makes elements [first, first + count) of tensor k at room + k * reduce_segment, for every k. `y[k]` may be null. No
  // reduction of columns, nor of nothing.
  using Make = FunctionRef<void(int64_t first, int64_t count, float* room)>;
  using Walk = FunctionRef<void(Make)>;
  void run_made(int sums, FunctionRef<void(int thread, Walk)> task, void* const* y, void* workspace,
                ThreadPool& threads) const;

 private:
  struct Dim {
    int64_t size, stride;
  };
  void run_values(const ReduceLoops& loops, const float* x, float* y, float* partials, ThreadPool& threads) const;
  void run_columns(const ReduceLoops& loops, const float* x, float* y, float* partials, std::byte* scratch,
                   ThreadPool& threads) const;
  void join_values(const ReduceLoops& loops, float* partials, float* y, ThreadPool& threads) const;
  int64_t kept_offset(int64_t index) const;
  // What is reduced in one piece: a unit of an output. Rows are numbered as they lie in memory.
  struct Row {
    int64_t output, unit;
  };
  Row row(int64_t number) const;
  int64_t rows_at_once() const;
  int64_t partials_bytes() const;

  void put_units_first(Units units);

  std::vector<Dim> kept_, folded_;  // outermost first; without the columns; the units of `folded_` follow one another
  int64_t units_ = 1, reduced_ = 1;
  int64_t outer_ = 1;    // outputs, or rows of them
  int64_t columns_ = 1;  // neighbouring outputs that are contiguous in the input: 1 where the last dimension is reduced
  int64_t segments_ = 1;  // of one unit
};

}  // namespace epl::cpu
