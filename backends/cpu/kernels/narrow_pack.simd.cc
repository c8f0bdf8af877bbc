// See narrow_pack.h.
#include "backends/cpu/kernels/narrow_pack.h"

#include <bit>

#include "backends/cpu/kernels/gemm_pack.simd.h"
#include "backends/cpu/kernels/narrow_elements.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

template <class Element> HWY_INLINE void widen_run(const uint16_t* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = widened(Element{from[i]});
}

// Neighbours of f16, by vectors that may overlap.
void widen_halves(const uint16_t* from, float* to, int64_t count) {
  const hn::CappedTag<float, 8> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> narrow;
  constexpr int64_t W = hn::MaxLanes(hn::CappedTag<float, 8>());
  if (count < W) return widen_run<Half>(from, to, count);
  const auto widen = [&](int64_t i) HWY_ATTR {
    hn::StoreU(hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from + i))), d, to + i);
  };
  for (int64_t i = 0; i + W < count; i += W) widen(i);
  widen(count - W);
}

// Rows 2k and 2k + 1, of words that have an element of each: bf16 is the upper half of a float.
struct PutBfloats {
  float* to;
  int64_t stride;
  template <class D> HWY_INLINE void operator()(D d, hn::Vec<D> words, int64_t k, int64_t i) const {
    const hn::RebindToUnsigned<D> bits;
    float* const at = to + 2 * k * stride + i;
    const auto both = hn::BitCast(bits, words);
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(both)), d, at);
    hn::StoreU(hn::BitCast(d, hn::And(both, hn::Set(bits, 0xffff0000u))), d, at + stride);
  }
  HWY_INLINE void operator()(float word, int64_t k, int64_t i) const {
    const auto bits = std::bit_cast<uint32_t>(word);
    float* const at = to + 2 * k * stride + i;
    at[0] = std::bit_cast<float>(bits << 16);
    at[stride] = std::bit_cast<float>(bits & 0xffff0000u);
  }
};

// Neighbours of a row, W to 2W of them: two vectors that may overlap.
template <int W>
void copy_bfloats(const uint16_t* from, int64_t step, int64_t count, int64_t depth, float* to, int64_t stride) {
  const hn::CappedTag<uint32_t, W> wide;
  const hn::Rebind<uint16_t, decltype(wide)> narrow;
  const hn::RebindToFloat<decltype(wide)> d;
  const auto widen = [&](int64_t i) HWY_ATTR {
    const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from + i)));
    hn::StoreU(hn::BitCast(d, bits), d, to + i);
  };
  for (int64_t k = 0; k < depth; ++k, from += step, to += stride) {
    __builtin_prefetch(from + 16 * step);
    int64_t i = 0;
    for (; i + W < count; i += W) widen(i);
    widen(count - W);
  }
}

// The same of any count.
void pack_rows_of_bfloats(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t depth, float* to,
                          int64_t stride) {
  constexpr int most = static_cast<int>(hn::MaxLanes(hn::ScalableTag<float>()));
  if (count >= most) return copy_bfloats<most>(from, m.col, count, depth, to, stride);
  if (most > 8 && count >= 8) return copy_bfloats<8>(from, m.col, count, depth, to, stride);
  if (count >= 4) return copy_bfloats<4>(from, m.col, count, depth, to, stride);
  for (int64_t k = 0; k < depth; ++k) widen_run<Bfloat>(from + k * m.col, to + k * stride, count);
}

template <class Element>
void pack_scattered(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t depth, float* to,
                    int64_t stride) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < count; ++i) to[k * stride + i] = widened(Element{from[i * m.row + k * m.col]});
}

void pack_bfloats(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t depth, float* to,
                  int64_t stride) {
  if (m.row == 1) return pack_rows_of_bfloats(m, from, count, depth, to, stride);
  if (m.col != 1) return pack_scattered<Bfloat>(m, from, count, depth, to, stride);
  pack_transposed(from, m.row, count, depth / 2, PutBfloats{to, stride});
  if (depth % 2) pack_scattered<Bfloat>(m, from + depth - 1, count, 1, to + (depth - 1) * stride, stride);
}

// Indices next to each other are widened as they lie. Where k is contiguous, a block is widened first and transposed
// then, as operands of float32 are.
void pack_halves(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t depth, float* to,
                 int64_t stride) {
  constexpr int64_t block_depth = 64, block_count = 32;
  if (m.row == 1) {
    for (int64_t k = 0; k < depth; ++k, from += m.col, to += stride) {
      __builtin_prefetch(from + 16 * m.col);
      widen_halves(from, to, count);
    }
    return;
  }
  if (m.col != 1) return pack_scattered<Half>(m, from, count, depth, to, stride);
  alignas(64) float block[block_count * block_depth];
  for (int64_t i = 0; i < count; i += block_count) {
    const int64_t indices = count - i < block_count ? count - i : block_count;
    for (int64_t k = 0; k < depth; k += block_depth) {
      const int64_t length = depth - k < block_depth ? depth - k : block_depth;
      for (int64_t j = 0; j < indices; ++j) widen_halves(from + (i + j) * m.row + k, block + j * block_depth, length);
      pack_panel(block, block_depth, 1, indices, length, to + k * stride + i, stride);
    }
  }
}

}  // namespace

void pack_narrow(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride) {
  const auto& m = *static_cast<const NarrowOperand*>(context);
  const uint16_t* from = m.at(batch, first, k);
  m.half ? pack_halves(m, from, count, depth, to, stride) : pack_bfloats(m, from, count, depth, to, stride);
}

}  // namespace epl::cpu::EPL_SIMD
