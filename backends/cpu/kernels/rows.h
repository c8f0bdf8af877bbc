// What kernels that work row by row share.
#pragma once

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "core/backend/kernel.h"

namespace epl::cpu {

inline constexpr int64_t task_values = 16384;  // elements worth waking a thread for

// Calls f(row) for all rows of `width` elements, on all threads.
template <class F>
void for_each_row(ThreadPool& threads, int64_t rows, int64_t width, F&& f) {
  threads.run_ranges(rows, std::max<int64_t>(1, task_values / std::max<int64_t>(width, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

inline bool requires_vectors(const KernelQuery& q) {
  return q.require(cpu_level() != CpuLevel::none, "a processor without AVX2");
}
// The elements along `axis` lie next to each other: no dimension after it has more than one.
inline bool requires_inner_axis(const KernelQuery& q, int axis) {
  int64_t after = 1;
  for (int d = axis + 1; d < q.in(0).ndim(); ++d) after *= q.in(0).shape[d];
  return q.require(after == 1, "an axis that is not the last") && requires_vectors(q);
}

}  // namespace epl::cpu
