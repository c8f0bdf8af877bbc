// Compiled once per level of processor: plain loops that the compiler turns into vectors.
#include <cstdint>

#include "core/base/dtype.h"

namespace epl::cpu::EPL_SIMD {
namespace {

template <class Bits> bool any_at(const void* data, int64_t begin, int64_t end, Bits exponent) {
  const Bits* bits = static_cast<const Bits*>(data);
  // An exponent of all ones carries into the sign when its lowest bit is added. Compilers turn this into full vectors.
  constexpr int64_t width = 128 / sizeof(Bits);
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

}  // namespace

// Whether one of the elements [begin, end) is a NaN or an infinity.
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

}  // namespace epl::cpu::EPL_SIMD
