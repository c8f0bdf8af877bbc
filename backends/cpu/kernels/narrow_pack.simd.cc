// See narrow_pack.h.
#include "backends/cpu/kernels/narrow_pack.h"

#include <algorithm>

#include "backends/cpu/kernels/gemm_pack.simd.h"
#include "backends/cpu/kernels/narrow_elements.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

template <class Element> HWY_INLINE void widen_run(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = widened(Element{from[i]});
}

// Indices next to each other are widened as they lie. Where k is contiguous, a block is widened first and transposed
// then, as operands of float32 are.
template <class Element>
void pack(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t depth, float* to, int64_t stride) {
  constexpr int64_t block_depth = 64, block_count = 32;
  if (m.row == 1) {
    for (int64_t k = 0; k < depth; ++k, from += m.col, to += stride) {
      __builtin_prefetch(from + 16 * m.col);
      widen_run<Element>(from, to, count);
    }
    return;
  }
  if (m.col != 1) {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < count; ++i) to[k * stride + i] = widened(Element{from[i * m.row + k * m.col]});
    return;
  }
  alignas(64) float block[block_count * block_depth];
  for (int64_t i = 0; i < count; i += block_count) {
    const int64_t indices = std::min(block_count, count - i);
    for (int64_t k = 0; k < depth; k += block_depth) {
      const int64_t length = std::min(block_depth, depth - k);
      for (int64_t j = 0; j < indices; ++j)
        widen_run<Element>(from + (i + j) * m.row + k, block + j * block_depth, length);
      pack_panel(block, block_depth, 1, indices, length, to + k * stride + i, stride);
    }
  }
}

}  // namespace

void pack_narrow(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride) {
  const auto& m = *static_cast<const NarrowOperand*>(context);
  const uint16_t* from = m.data + first * m.row + k * m.col;
  for (int d = 2; d >= 0; --d) {
    from += batch % m.batch[d].count * (m.b ? m.batch[d].b : m.batch[d].a);
    batch /= m.batch[d].count;
  }
  m.half ? pack<Half>(m, from, count, depth, to, stride) : pack<Bfloat>(m, from, count, depth, to, stride);
}

}  // namespace epl::cpu::EPL_SIMD
