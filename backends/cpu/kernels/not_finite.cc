// Looks for a NaN or an infinity: elements whose exponent has all bits set.
#include <atomic>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {

namespace v3 {
bool any_not_finite(DType type, const void* data, int64_t begin, int64_t end);
}
namespace v4 {
bool any_not_finite(DType type, const void* data, int64_t begin, int64_t end);
}

namespace {

constexpr int64_t run_elements = 65536;  // of one task

void first_not_finite(const KernelCall& call) {
  const KernelQuery& q = call.query;
  const auto any = EPL_CPU_CHOOSE(any_not_finite);
  const bool counted = call.attributes().flag("counted");
  const int checked = q.inputs() - (counted ? 1 : 0);
  if (counted && call.inputs[checked] && load_double(q.in(checked).dtype, call.inputs[checked], 0) == 0) {
    *call.out<int64_t>(0) = 0;
    return;
  }
  std::atomic<int64_t> first{checked};
  // An operand of one run does not wake the other threads.
  for (int i = 0; i < checked && first.load(std::memory_order_relaxed) == checked; ++i) {
    if (!call.inputs[i]) continue;
    call.threads().run_ranges(q.in(i).elements(), run_elements, [&](int64_t begin, int64_t end) {
      if (any(q.in(i).dtype, call.inputs[i], begin, end)) first.store(i, std::memory_order_relaxed);
    });
  }
  const int64_t found = first.load();
  *call.out<int64_t>(0) = found == checked ? -1 : found;
}

}  // namespace

EPL_KERNELS(cpu, not_finite) {
  table.add({.op = "first_not_finite", .name = "first_not_finite_bits", .launch = first_not_finite});
}

}  // namespace epl::cpu
