// Dropout with Philox 4x32-10, many counters at once. See dropout.h.
#include "backends/cpu/kernels/dropout.h"

#include "backends/cpu/kernels/philox.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using draws::at_once;
using draws::draw_blocks;
constexpr int tile = 512;  // draws kept at a time
static_assert(tile % at_once == 0);

// y = x scale where the draw is at least the threshold, else 0.
void apply(const uint32_t* words, uint32_t threshold, float scale, const float* x, float* y, int64_t n) {
  constexpr hn::ScalableTag<float> f32;
  constexpr hn::RebindToSigned<decltype(f32)> s32;
  const auto limit = hn::Set(s32, static_cast<int32_t>(threshold) - 1);
  const auto factor = hn::Set(f32, scale);
  constexpr int64_t lanes = hn::MaxLanes(f32);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto draw = hn::BitCast(s32, hn::ShiftRight<8>(hn::LoadU(hn::RebindToUnsigned<decltype(f32)>(), words + i)));
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(f32, hn::Gt(draw, limit)), hn::Mul(hn::LoadU(f32, x + i), factor)),
               f32, y + i);
  }
  for (; i < n; ++i) y[i] = (words[i] >> 8) >= threshold ? x[i] * scale : 0.0f;
}

void dropout(uint64_t key, uint64_t first, uint32_t threshold, float scale, const float* x, float* y, uint8_t* mask,
             int64_t n) {
  alignas(64) uint32_t words[tile];
  for (int64_t done = 0; done < n;) {
    uint64_t element = first + static_cast<uint64_t>(done);
    for (int b = 0; b < tile; b += at_once) draw_blocks(key, element / 4 + static_cast<uint64_t>(b / 4), words + b);
    int64_t skip = static_cast<int64_t>(element % 4), count = n - done < tile - skip ? n - done : tile - skip;
    apply(words + skip, threshold, scale, x + done, y + done, count);
    if (mask) {
      for (int64_t i = 0; i < count; ++i) mask[done + i] = (words[skip + i] >> 8) >= threshold;
    }
    done += count;
  }
}

}  // namespace

const DropoutLoop dropout_loop = dropout;

}  // namespace epl::cpu::EPL_SIMD
