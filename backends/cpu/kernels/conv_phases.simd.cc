// Putting phases together, once per processor level. See conv_phases.h.
#include "backends/cpu/kernels/conv_phases.h"

#include <hwy/highway.h>

namespace epl::cpu::EPL_SIMD {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Every second pixel from one row, the others from another; no row: 0.
void join_two(const float* even, const float* odd, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  int64_t i = 0;
  for (; i + 2 * lanes <= count; i += 2 * lanes)
    hn::StoreInterleaved2(even ? hn::LoadU(d, even + i / 2) : hn::Zero(d),
                          odd ? hn::LoadU(d, odd + i / 2) : hn::Zero(d), d, to + i);
  for (; i < count; ++i) {
    const float* row = i % 2 ? odd : even;
    to[i] = row ? row[i / 2] : 0;
  }
}

}  // namespace

void join_phases(const ConvPhases& p, const float* from, int64_t image, int64_t channel, float* to) {
  const int64_t stride = p.strides[2], count = p.sizes[2];
  for (int64_t z = 0; z < p.sizes[0]; ++z) {
    for (int64_t y = 0; y < p.sizes[1]; ++y, to += count) {
      const int64_t first = (z % p.strides[0] * p.strides[1] + y % p.strides[1]) * stride;
      auto row_of = [&](int64_t x) -> const float* {
        const ConvPhases::Phase& own = p.phases[first + x];
        if (own.at < 0) return nullptr;
        const int64_t line = z / p.strides[0] * own.positions[1] + y / p.strides[1];
        return from + own.at + (channel * p.images + image) * own.pixels() + line * own.positions[2];
      };
      if (stride == 2) {
        join_two(row_of(0), row_of(1), count, to);
        continue;
      }
      for (int64_t x = 0; x < stride; ++x) {
        const float* row = row_of(x);
        for (int64_t i = x; i < count; i += stride) to[i] = row ? row[i / stride] : 0;
      }
    }
  }
}

}  // namespace epl::cpu::EPL_SIMD
