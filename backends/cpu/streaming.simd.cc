// Compiled once per processor level. See streaming.h.
#include "backends/cpu/streaming.h"

#include <hwy/cache_control.h>

#include "hwy/highway.h"

namespace epl::cpu::EPL_SIMD {

namespace hn = hwy::HWY_NAMESPACE;

void stream_floats(const float* x, float* y, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(d, x + i), d, y + i);
  for (; i < n; ++i) y[i] = x[i];
}

void finish_streaming() { hwy::FlushStream(); }

}  // namespace epl::cpu::EPL_SIMD
