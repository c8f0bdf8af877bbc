// The pack of pairs of bf16: see narrow_pack.h. Compiled for level v4_bf16 alone.
#include <bit>

#include "backends/cpu/kernels/gemm_pack.simd.h"
#include "backends/cpu/kernels/narrow_pack.h"

namespace epl::cpu::EPL_SIMD {
namespace {

// The instruction takes the upper half first.
HWY_INLINE float pair_of(uint32_t first, uint32_t second) { return std::bit_cast<float>(first << 16 | second); }

// Turns pairs as they lie in memory, where the first is the lower half.
struct PutPairs {
  float* to;
  int64_t stride;
  template <class D> HWY_INLINE void operator()(D d, hn::Vec<D> words, int64_t k, int64_t i) const {
    const hn::RebindToUnsigned<D> bits;
    hn::StoreU(hn::BitCast(d, hn::RotateRight<16>(hn::BitCast(bits, words))), d, to + k * stride + i);
  }
  HWY_INLINE void operator()(float word, int64_t k, int64_t i) const {
    to[k * stride + i] = std::bit_cast<float>(std::rotr(std::bit_cast<uint32_t>(word), 16));
  }
};

// Two rows of neighbours at a time, W or more of them: vectors of W, the last of which may overlap the one before it.
template <int W>
void interleave_rows(const uint16_t* from, int64_t step, int64_t count, int64_t depth, float* to, int64_t stride) {
  const hn::CappedTag<uint32_t, W> wide;
  const hn::Rebind<uint16_t, decltype(wide)> narrow;
  const hn::RebindToFloat<decltype(wide)> d;
  const auto interleave = [&](int64_t i) HWY_ATTR {
    const auto first = hn::PromoteTo(wide, hn::LoadU(narrow, from + i)),
               second = hn::PromoteTo(wide, hn::LoadU(narrow, from + step + i));
    hn::StoreU(hn::BitCast(d, hn::Or(hn::ShiftLeft<16>(first), second)), d, to + i);
  };
  for (int64_t k = 0; k < depth; ++k, from += 2 * step, to += stride) {
    __builtin_prefetch(from + 16 * step);
    __builtin_prefetch(from + 17 * step);
    int64_t i = 0;
    for (; i + W < count; i += W) interleave(i);
    interleave(count - W);
  }
}

void pack_scattered_pairs(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t depth, float* to,
                          int64_t stride) {
  for (int64_t k = 0; k < depth; ++k, from += 2 * m.col)
    for (int64_t i = 0; i < count; ++i) to[k * stride + i] = pair_of(from[i * m.row], from[i * m.row + m.col]);
}

// Elements that follow one another along k.
void pack_run_of_pairs(const NarrowOperand& m, const uint16_t* from, int64_t count, int64_t elements, float* to,
                       int64_t stride) {
  const int64_t depth = elements / 2;
  if (m.row == 1 && count >= 16) {
    interleave_rows<16>(from, m.col, count, depth, to, stride);
  } else if (m.row == 1 && count >= 8) {
    interleave_rows<8>(from, m.col, count, depth, to, stride);
  } else if (m.row == 1 && count >= 4) {
    interleave_rows<4>(from, m.col, count, depth, to, stride);
  } else if (m.col == 1) {
    pack_transposed(from, m.row, count, depth, PutPairs{to, stride});
  } else {
    pack_scattered_pairs(m, from, count, depth, to, stride);
  }
  if (elements % 2 == 0) return;
  from += (elements - 1) * m.col;
  to += depth * stride;
  const uint32_t zero = m.b ? 0x8000 : 0;
  for (int64_t i = 0; i < count; ++i) to[i] = pair_of(from[i * m.row], zero);
}

// Elements of a unit that lies in runs: from number `at` of the unit on, an even one.
void pack_runs_of_pairs(const PairOperand& p, int64_t batch, int64_t first, int64_t count, int64_t unit, int64_t at,
                        int64_t elements, float* to, int64_t stride) {
  const int64_t run = p.units.run(p.n), begin = unit * (p.n / p.units.count);
  while (elements > 0) {
    const int64_t of_run = run - at % run, left = elements < of_run ? elements : of_run,
                  some = left < elements ? left / 2 * 2 : left;
    const uint16_t* const from = p.operand.at(batch, first, p.units.position(begin + at, p.n));
    if (some > 0) {
      pack_run_of_pairs(p.operand, from, count, some, to, stride);
      to += some / 2 * stride;
    } else {  // a pair of the last of a run and the first of the next
      const uint16_t* const next = p.operand.at(batch, first, p.units.position(begin + at + 1, p.n));
      for (int64_t i = 0; i < count; ++i) to[i] = pair_of(from[i * p.operand.row], next[i * p.operand.row]);
      to += stride;
    }
    at += some > 0 ? some : 2;
    elements -= some > 0 ? some : 2;
  }
}

}  // namespace

void pack_pairs(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                int64_t stride) {
  const auto& p = *static_cast<const PairOperand*>(context);
  const int64_t length = p.n / p.units.count, pairs = (length + 1) / 2;
  while (depth > 0) {
    const int64_t unit = k / pairs, at = k % pairs, of_unit = pairs - at, some = depth < of_unit ? depth : of_unit;
    const int64_t of_length = length - 2 * at, elements = 2 * some < of_length ? 2 * some : of_length;
    if (p.units.outer == 1) {
      const uint16_t* const from = p.operand.at(batch, first, unit * length + 2 * at);
      pack_run_of_pairs(p.operand, from, count, elements, to, stride);
    } else {
      pack_runs_of_pairs(p, batch, first, count, unit, 2 * at, elements, to, stride);
    }
    to += some * stride;
    k += some;
    depth -= some;
  }
}

}  // namespace epl::cpu::EPL_SIMD
