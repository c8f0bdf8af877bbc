// Max pooling, a vector of windows at once. See pool.h.
#include "backends/cpu/kernels/pool.h"

#include "backends/cpu/simd_math.h"

namespace epl::cpu::EPL_SIMD {
namespace {

// Whether a vector of taps whose columns are `stride` apart, `first` and on, is read as full vectors of the row: a
// gather takes many times as long.
bool lies_together(int32_t first, int32_t stride, int32_t width) {
  return stride <= 2 && first >= stride - 1 && first + (lanes - 1) * stride < width;
}
HWY_INLINE V load_columns(const float* first, int32_t stride) {
  if (stride == 1) return hn::LoadU(f32, first);
  return hn::ConcatOdd(f32, hn::LoadU(f32, first - 1 + lanes), hn::LoadU(f32, first - 1));
}

void max_row(const PoolRow& row, float* y, int32_t* indices, int64_t outputs) {
  const VI last = hn::Set(s32, row.width - 1);
  for (int64_t next = 0; next < outputs; next += lanes) {
    const int64_t c = outputs < lanes || next + lanes <= outputs ? next : outputs - lanes;
    // Columns may lie outside the row: such a tap reads a clamped column and is left out.
    VI start =
        hn::Add(hn::Mul(hn::Iota(s32, static_cast<int32_t>(c)), hn::Set(s32, row.stride)), hn::Set(s32, -row.begin));
    V best = set(-infinity);
    VI best_at = hn::Set(s32, -1);
    for (int r = 0; r < row.row_count; ++r) {
      for (int32_t k = 0; k < row.kernel; ++k) {
        VI column = hn::Add(start, hn::Set(s32, k * row.dilation));
        VI clamped = hn::Min(hn::Max(column, hn::Zero(s32)), last);
        VI at = hn::Add(clamped, hn::Set(s32, row.rows[r]));
        const int32_t first_column = static_cast<int32_t>(c) * row.stride - row.begin + k * row.dilation;
        V v = lies_together(first_column, row.stride, row.width)
                  ? load_columns(row.plane + row.rows[r] + first_column, row.stride)
                  : hn::GatherIndex(f32, row.plane, at);
        auto inside = hn::RebindMask(f32, hn::Eq(column, clamped));
        auto first = hn::RebindMask(f32, hn::Lt(best_at, hn::Zero(s32)));
        auto new_nan = hn::And(is_nan(v), hn::Eq(best, best));
        auto better = hn::And(inside, hn::Or(hn::Or(hn::Gt(v, best), first), new_nan));
        best = hn::IfThenElse(better, v, best);
        best_at = hn::IfThenElse(hn::RebindMask(s32, better), at, best_at);
      }
    }
    auto mask = hn::FirstN(f32, static_cast<size_t>(outputs - c < lanes ? outputs - c : lanes));
    if (y) hn::BlendedStore(best, mask, f32, y + c);
    if (indices) hn::BlendedStore(hn::Max(best_at, hn::Zero(s32)), hn::RebindMask(s32, mask), s32, indices + c);
  }
}

}  // namespace

const MaxPoolRow max_pool_row = max_row;

}  // namespace epl::cpu::EPL_SIMD
