// What kernels that work row by row share.
#pragma once

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "core/backend/kernel.h"
#include "core/base/thread_pool.h"

namespace epl::cpu {

const KernelTable& kernel_table();  // generated

inline constexpr int64_t task_values = 16384;  // elements worth waking a thread for

inline int64_t row_grain(int64_t width) { return std::max<int64_t>(1, task_values / std::max<int64_t>(width, 1)); }

// Calls f(row) for all rows of `width` elements, on all threads.
template <class F> void for_each_row(ThreadPool& threads, int64_t rows, int64_t width, F&& f) {
  threads.run_ranges(rows, row_grain(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

// A tensor as rows along one axis. Where the axis is not the last, a row's elements lie `inner` apart.
struct AxisRows {
  int64_t rows = 1, n = 1, inner = 1;
  AxisRows(const TensorType& type, int axis) : n(type.shape[axis]) {
    for (int d = 0; d < type.ndim(); ++d) {
      if (d != axis) rows *= type.shape[d];
      if (d > axis) inner *= type.shape[d];
    }
  }
  int64_t offset(int64_t row) const { return row / inner * n * inner + row % inner; }
  // A row of x: in place where it is contiguous, else gathered into `to`.
  const float* read(const float* x, int64_t row, float* to) const {
    const float* from = x + offset(row);
    if (inner == 1) return from;
    for (int64_t i = 0; i < n; ++i) to[i] = from[i * inner];
    return to;
  }
  // Where a row of y may be computed, and how it gets there from `scratch`.
  float* target(float* y, int64_t row, float* scratch) const { return inner == 1 ? y + offset(row) : scratch; }
  void write(float* y, int64_t row, const float* from) const {
    if (inner == 1) return;
    float* to = y + offset(row);
    for (int64_t i = 0; i < n; ++i) to[i * inner] = from[i];
  }
  int64_t scratch_values() const { return inner == 1 ? 0 : (n + 15) / 16 * 16; }  // of one row
};

// Calls f(row, scratch) for all rows, on all threads; `scratch` is room of its thread for `buffers` rows.
template <class F>
void for_each_axis_row(ThreadPool& threads, const AxisRows& rows, int buffers, void* workspace, F&& f) {
  int64_t grain = row_grain(rows.n),
          tasks = std::min<int64_t>((rows.rows + grain - 1) / grain, int64_t{8} * threads.size());
  threads.run(tasks, [&](int64_t task, int thread) {
    float* scratch = static_cast<float*>(workspace) + thread * buffers * rows.scratch_values();
    for (int64_t row = rows.rows * task / tasks; row < rows.rows * (task + 1) / tasks; ++row) f(row, scratch);
  });
}
inline int64_t axis_row_scratch(const AxisRows& rows, int buffers, int threads) {
  return threads * buffers * rows.scratch_values() * static_cast<int64_t>(sizeof(float));
}

inline Status require_vectors() { return require(cpu_level() != CpuLevel::none, "a processor without AVX2"); }

}  // namespace epl::cpu
