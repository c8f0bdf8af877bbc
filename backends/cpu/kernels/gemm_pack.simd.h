// Packing of strided operands: a panel holds neighbouring rows of A or columns of B, one k after the other, so that the
// micro-kernel reads memory in order.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace epl::cpu::EPL_SIMD {
namespace hn = hwy::HWY_NAMESPACE;

// Copies a few floats: overlapping vectors rather than a tail of single ones.
HWY_INLINE void copy_run(const float* from, float* to, int64_t count) {
  const hn::CappedTag<float, 8> d;
  constexpr int64_t W = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<float, 8>()));
  const hn::FixedTag<float, 4> quarter;
  if (count >= W) {
    for (int64_t i = 0; i + W < count; i += W) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    hn::StoreU(hn::LoadU(d, from + count - W), d, to + count - W);
  } else if (count >= 4) {
    const auto low = hn::LoadU(quarter, from), high = hn::LoadU(quarter, from + count - 4);
    hn::StoreU(low, quarter, to);
    hn::StoreU(high, quarter, to + count - 4);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

// Turns W runs of four floats, `from_step` apart, into four rows of W. W is 4 or 8.
template <int W>
HWY_INLINE void load_transposed(const float* from, int64_t from_step, hn::Vec<hn::CappedTag<float, W>> (&rows)[4]) {
  const hn::FixedTag<float, 4> quarter;
  const hn::CappedTag<float, W> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  // Runs i and i + 4 share a vector; all that follows stays within blocks of four.
  auto load = [&](int i) {
    if constexpr (W == 8) {
      return hn::Combine(d, hn::LoadU(quarter, from + (i + 4) * from_step), hn::LoadU(quarter, from + i * from_step));
    } else {
      return hn::LoadU(d, from + i * from_step);
    }
  };
  const auto a = load(0), b = load(1), c = load(2), e = load(3);
  const auto ab01 = hn::BitCast(pairs, hn::InterleaveLower(d, a, b)),
             ab23 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
  const auto ce01 = hn::BitCast(pairs, hn::InterleaveLower(d, c, e)),
             ce23 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
  rows[0] = hn::BitCast(d, hn::InterleaveLower(pairs, ab01, ce01));
  rows[1] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab01, ce01));
  rows[2] = hn::BitCast(d, hn::InterleaveLower(pairs, ab23, ce23));
  rows[3] = hn::BitCast(d, hn::InterleaveUpper(pairs, ab23, ce23));
}

template <int W>
inline void pack_transposed_group(const float* from, int64_t index_step, int64_t depth, float* to, int64_t stride) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    if (k % 16 == 0)  // the next group reads the runs behind these: memory is slower than a transposition
      for (int i = 0; i < W; ++i) __builtin_prefetch(from + (i + W) * index_step + k);
    hn::Vec<hn::CappedTag<float, W>> rows[4];
    load_transposed<W>(from + k, index_step, rows);
    for (int j = 0; j < 4; ++j) hn::StoreU(rows[j], hn::CappedTag<float, W>(), to + (k + j) * stride);
  }
  for (; k < depth; ++k)
    for (int i = 0; i < W; ++i) to[k * stride + i] = from[i * index_step + k];
}

// k is contiguous: groups of runs are transposed; the last group overlaps its neighbour where they do not divide.
inline void pack_transposed(const float* from, int64_t index_step, int64_t count, int64_t depth, float* to,
                            int64_t stride) {
  constexpr int W = hn::MaxLanes(hn::ScalableTag<float>()) >= 8 ? 8 : 4;
  int64_t i = 0;
  for (; i + W <= count; i += W) pack_transposed_group<W>(from + i * index_step, index_step, depth, to + i, stride);
  if (i < count && count >= W) {
    pack_transposed_group<W>(from + (count - W) * index_step, index_step, depth, to + count - W, stride);
  } else if (count >= 4) {
    for (; i + 4 <= count; i += 4) pack_transposed_group<4>(from + i * index_step, index_step, depth, to + i, stride);
    if (i < count) pack_transposed_group<4>(from + (count - 4) * index_step, index_step, depth, to + count - 4, stride);
  } else {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < count; ++j) to[k * stride + j] = from[j * index_step + k];
  }
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
  constexpr int max_lanes = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  if (index_step == 1) {
    // Wide panels go by parts of max_lanes.
    for (; count > 2 * max_lanes; count -= max_lanes, from += max_lanes, to += max_lanes)
      pack_copied<max_lanes>(from, k_step, max_lanes, depth, to, stride);
    if (count >= max_lanes) return pack_copied<max_lanes>(from, k_step, count, depth, to, stride);
    if (max_lanes > 8 && count >= 8) return pack_copied<8>(from, k_step, count, depth, to, stride);
    if (count >= 4) return pack_copied<4>(from, k_step, count, depth, to, stride);
  } else if (k_step == 1) {
    return pack_transposed(from, index_step, count, depth, to, stride);
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < count; ++i) to[k * stride + i] = from[i * index_step + k * k_step];
}

}  // namespace epl::cpu::EPL_SIMD
