// Windows of convolutions, for kernels that follow the op's meaning. P gives the geometry along spatial dimension d:
// in(d), out(d), kernel(d), strides(d), dilations(d) and pads(d).
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl::cuda {

// Where tap `tap` of window `at` lies in x; -1: outside.
template <class P> inline int64_t pixel_of_tap(int64_t at, int64_t tap) {
  int64_t pixel = 0, scale = 1;
  for (int d = 2; d >= 0; --d) {
    const int64_t i = at % P::out(d) * P::strides(d) - P::pads(d) + tap % P::kernel(d) * P::dilations(d);
    if (i < 0 || i >= P::in(d)) return -1;
    pixel += i * scale;
    scale *= P::in(d);
    at /= P::out(d);
    tap /= P::kernel(d);
  }
  return pixel;
}

// Which tap of the window at `position` lies on an element, along dimension d; -1: none does.
template <class P> inline int64_t tap_along(int d, int64_t position, int64_t element) {
  const int64_t distance = element + P::pads(d) - position * P::strides(d);
  if (distance < 0 || distance % P::dilations(d) != 0 || distance / P::dilations(d) >= P::kernel(d)) return -1;
  return distance / P::dilations(d);
}

// Windows along dimension d that can reach an element: [first, last].
template <class P> inline int64_t first_window(int d, int64_t element) {
  const int64_t reach = element + P::pads(d) - (P::kernel(d) - 1) * P::dilations(d);
  return reach <= 0 ? 0 : (reach + P::strides(d) - 1) / P::strides(d);
}
template <class P> inline int64_t last_window(int d, int64_t element) {
  const int64_t last = (element + P::pads(d)) / P::strides(d);
  return last < P::out(d) ? last : P::out(d) - 1;
}

// Calls f(window, tap) for every window that has pixel `at` of x, in the order of windows.
template <class P, class F> inline void each_window_at(int64_t at, const F& f) {
  const int64_t z = at % P::in(2), y = at / P::in(2) % P::in(1), x = at / P::in(2) / P::in(1);
  for (int64_t a = first_window<P>(0, x); a <= last_window<P>(0, x); ++a)
    for (int64_t b = first_window<P>(1, y); b <= last_window<P>(1, y); ++b)
      for (int64_t c = first_window<P>(2, z); c <= last_window<P>(2, z); ++c) {
        const int64_t i = tap_along<P>(0, a, x), j = tap_along<P>(1, b, y), k = tap_along<P>(2, c, z);
        if (i < 0 || j < 0 || k < 0) continue;
        f((a * P::out(1) + b) * P::out(2) + c, (i * P::kernel(1) + j) * P::kernel(2) + k);
      }
}

}  // namespace epl::cuda
