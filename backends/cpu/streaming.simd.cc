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

void take_lines(std::byte* from, std::byte* to, int64_t lines) {
  const hn::ScalableTag<uint8_t> d;
  constexpr int64_t line = 64;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t at = 0; at < lines * line; at += line) {
    auto* x = reinterpret_cast<uint8_t*>(from + at);
    auto* y = reinterpret_cast<uint8_t*>(to + at);
    for (int64_t i = 0; i < line; i += lanes) hn::StoreU(hn::LoadU(d, x + i), d, y + i);
    *static_cast<volatile uint8_t*>(x) = *y;  // volatile: a store of what lies there is left out otherwise
  }
}

void finish_streaming() { hwy::FlushStream(); }

}  // namespace epl::cpu::EPL_SIMD
