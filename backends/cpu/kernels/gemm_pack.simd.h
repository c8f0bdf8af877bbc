// Packing of strided operands: a panel holds neighbouring rows of A or columns of B, one k after the other, so that the
// micro-kernel reads memory in order.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace epl::cpu::EPL_SIMD {
namespace hn = hwy::HWY_NAMESPACE;

// Turns four runs of four floats, `from_step` apart, into four rows of four, `to_step` apart.
HWY_INLINE void transpose4(const float* from, int64_t from_step, float* to, int64_t to_step) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + from_step);
  const auto c = hn::LoadU(d, from + 2 * from_step), e = hn::LoadU(d, from + 3 * from_step);
  const auto ab01 = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)), ab23 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce01 = hn::BitCast(pairs, hn::InterleaveLower(d, c, e)), ce23 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab01, ce01)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab01, ce01)), d, to + to_step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab23, ce23)), d, to + 2 * to_step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab23, ce23)), d, to + 3 * to_step);
}

// k is contiguous: transposes groups of four indices; the last group overlaps its neighbour where four do not divide.
inline void pack_transposed(const float* from, int64_t index_step, int64_t count, int64_t depth, float* to, int64_t stride) {
  const int64_t blocks = count < 4 ? 0 : depth / 4;
  for (int64_t block = 0; block < blocks; ++block) {
    const float* at = from + 4 * block;
    float* row = to + 4 * block * stride;
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) transpose4(at + i * index_step, index_step, row + i, stride);
    if (i < count) transpose4(at + (count - 4) * index_step, index_step, row + count - 4, stride);
  }
  for (int64_t k = 4 * blocks; k < depth; ++k)
    for (int64_t i = 0; i < count; ++i) to[k * stride + i] = from[i * index_step + k];
}

// The indices are contiguous, W to 2W of them: two vectors that may overlap.
template <int W>
inline void pack_copied(const float* from, int64_t k_step, int64_t count, int64_t depth, float* to, int64_t stride) {
  const hn::CappedTag<float, W> d;
  static_assert(hn::MaxLanes(hn::CappedTag<float, W>()) == W);
  for (int64_t k = 0; k < depth; ++k, from += k_step, to += stride) {
    __builtin_prefetch(from + 16 * k_step);
    const auto low = hn::LoadU(d, from), high = hn::LoadU(d, from + count - W);
    hn::StoreU(low, d, to);
    hn::StoreU(high, d, to + count - W);
  }
}

// The panel of `count` indices and `depth` k's that starts at `from`; as GemmPack.
inline void pack_panel(const float* from, int64_t index_step, int64_t k_step, int64_t count, int64_t depth, float* to,
                       int64_t stride) {
  constexpr int widest = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  if (index_step == 1) {
    // Wide panels go by their widest pieces.
    for (; count > 2 * widest; count -= widest, from += widest, to += widest) pack_copied<widest>(from, k_step, widest, depth, to, stride);
    if (count >= widest) return pack_copied<widest>(from, k_step, count, depth, to, stride);
    if (widest > 8 && count >= 8) return pack_copied<8>(from, k_step, count, depth, to, stride);
    if (count >= 4) return pack_copied<4>(from, k_step, count, depth, to, stride);
  } else if (k_step == 1) {
    return pack_transposed(from, index_step, count, depth, to, stride);
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < count; ++i) to[k * stride + i] = from[i * index_step + k * k_step];
}

}  // namespace epl::cpu::EPL_SIMD
