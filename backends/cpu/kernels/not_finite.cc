// Looks for a NaN or an infinity: elements whose exponent has all bits set.
#include <atomic>
#include <cstring>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

constexpr int64_t run_elements = 65536;  // of one task

template <class Bits> bool any_at(const void* data, int64_t begin, int64_t end, Bits exponent) {
  const Bits* bits = static_cast<const Bits*>(data);
  // An exponent of all ones carries into the sign when its lowest bit is added. Compilers turn this into full vectors.
  constexpr int64_t width = 64 / sizeof(Bits);
  const Bits lowest = static_cast<Bits>(exponent & (~exponent + 1)),
             sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  Bits carries[width] = {};
  int64_t i = begin;
  for (; i + width <= end; i += width)
    for (int64_t k = 0; k < width; ++k)
      carries[k] = static_cast<Bits>(carries[k] | static_cast<Bits>((bits[i + k] & exponent) + lowest));
  for (; i < end; ++i) carries[0] = static_cast<Bits>(carries[0] | static_cast<Bits>((bits[i] & exponent) + lowest));
  Bits all = 0;
  for (Bits carry : carries) all = static_cast<Bits>(all | carry);
  return (all & sign) != 0;
}

bool any_not_finite(DType type, const void* data, int64_t begin, int64_t end) {
  switch (type) {
    case DType::f64:
      return any_at(data, begin, end, uint64_t{0x7ff0000000000000});
    case DType::f16:
      return any_at(data, begin, end, uint16_t{0x7c00});
    case DType::bf16:
      return any_at(data, begin, end, uint16_t{0x7f80});
    default:
      return any_at(data, begin, end, uint32_t{0x7f800000});
  }
}

void first_not_finite(const KernelCall& call) {
  const KernelQuery& q = call.query;
  std::atomic<int64_t> first{q.inputs()};
  // An operand of one run does not wake the other threads.
  for (int i = 0; i < q.inputs() && first.load(std::memory_order_relaxed) == q.inputs(); ++i) {
    if (!call.inputs[i]) continue;
    call.threads().run_ranges(q.in(i).elements(), run_elements, [&](int64_t begin, int64_t end) {
      if (any_not_finite(q.in(i).dtype, call.inputs[i], begin, end)) first.store(i, std::memory_order_relaxed);
    });
  }
  const int64_t found = first.load();
  *call.out<int64_t>(0) = found == q.inputs() ? -1 : found;
}

}  // namespace

EPL_KERNELS(cpu, not_finite) {
  table.add({.op = "first_not_finite", .name = "first_not_finite_bits", .launch = first_not_finite});
}

}  // namespace epl::cpu
