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

// Elements that lie next to each other are taken by words of 32 bits: a float, or two numbers of 16 bits.
template <class T> inline constexpr int64_t per_word = 4 / static_cast<int64_t>(sizeof(T));
template <class T> HWY_INLINE const float* words_at(const T* from) { return reinterpret_cast<const float*>(from); }
template <class T> HWY_INLINE float word_at(const T* from) {
  float word;
  __builtin_memcpy(&word, from, sizeof word);  // of any alignment
  return word;
}

// Writes words to row k, from index i on, as they are.
struct PutWords {
  float* to;
  int64_t stride;
  template <class D> HWY_INLINE void operator()(D d, hn::Vec<D> words, int64_t k, int64_t i) const {
    hn::StoreU(words, d, to + k * stride + i);
  }
  HWY_INLINE void operator()(float word, int64_t k, int64_t i) const { to[k * stride + i] = word; }
};

// Turns W runs of four words, `from_step` elements apart, into four rows of W. W is 4 or 8.
template <int W, class T>
HWY_INLINE void load_transposed(const T* from, int64_t from_step, hn::Vec<hn::CappedTag<float, W>> (&rows)[4]) {
  const hn::FixedTag<float, 4> quarter;
  const hn::CappedTag<float, W> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  // Runs i and i + 4 share a vector; all that follows stays within blocks of four.
  auto load = [&](int i) {
    const auto low = hn::LoadU(quarter, words_at(from + i * from_step));
    if constexpr (W == 8) {
      return hn::Combine(d, hn::LoadU(quarter, words_at(from + (i + 4) * from_step)), low);
    } else {
      return low;
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

// W runs of `depth` words, from index i on.
template <int W, class T, class Put>
inline void pack_transposed_group(const T* from, int64_t index_step, int64_t depth, int64_t i, const Put& put) {
  int64_t k = 0;
  for (; k + 4 <= depth; k += 4) {
    if (k % 16 == 0)  // the next group reads the runs behind these: memory is slower than a transposition
      for (int j = 0; j < W; ++j) __builtin_prefetch(from + (j + W) * index_step + k * per_word<T>);
    hn::Vec<hn::CappedTag<float, W>> rows[4];
    load_transposed<W>(from + k * per_word<T>, index_step, rows);
    for (int j = 0; j < 4; ++j) put(hn::CappedTag<float, W>(), rows[j], k + j, i);
  }
  for (; k < depth; ++k)
    for (int j = 0; j < W; ++j) put(word_at(from + j * index_step + k * per_word<T>), k, i + j);
}

// k is contiguous: groups of runs are transposed; the last group overlaps its neighbour where they do not divide.
template <class T, class Put>
inline void pack_transposed(const T* from, int64_t index_step, int64_t count, int64_t depth, const Put& put) {
  constexpr int W = hn::MaxLanes(hn::ScalableTag<float>()) >= 8 ? 8 : 4;
  int64_t i = 0;
  const auto group = [&]<int lanes>(int64_t first) {
    pack_transposed_group<lanes>(from + first * index_step, index_step, depth, first, put);
  };
  for (; i + W <= count; i += W) group.template operator()<W>(i);
  if (i < count && count >= W) {
    group.template operator()<W>(count - W);
  } else if (count >= 4) {
    for (; i + 4 <= count; i += 4) group.template operator()<4>(i);
    if (i < count) group.template operator()<4>(count - 4);
  } else {
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t j = 0; j < count; ++j) put(word_at(from + j * index_step + k * per_word<T>), k, j);
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
    return pack_transposed(from, index_step, count, depth, PutWords{to, stride});
  }
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t i = 0; i < count; ++i) to[k * stride + i] = from[i * index_step + k * k_step];
}

}  // namespace epl::cpu::EPL_SIMD
