// Windows of pools. P gives the geometry; P::x(d) is that of spatial dimension d. Elements are read from what has an
// operator [], as numbers of type Wide.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl::cuda {

// The taps of one window along one dimension that lie in [low, high): first position and how many.
struct Taps {
  int64_t first, count;
};
template <class P> inline Taps taps(int d, int64_t position, int64_t low, int64_t high) {
  const int64_t start = position * P::strides(d) - P::begin(d), step = P::dilations(d);
  const int64_t skipped = start >= low ? 0 : (low - start + step - 1) / step, first = start + skipped * step;
  const int64_t fit = first >= high ? 0 : (high - 1 - first) / step + 1;
  const int64_t left = P::kernel(d) - skipped < fit ? P::kernel(d) - skipped : fit;
  return {first, left > 0 ? left : 0};
}

// What an average divides by: the elements inside x, or also the padding asked for, but never what hangs over.
template <class P> inline float divisor(int64_t a, int64_t b, int64_t c) {
  int64_t n = 1;
  for (int d = 0; d < 3; ++d) {
    const int64_t at = d == 0 ? a : d == 1 ? b : c;
    n *= P::include_pad ? taps<P>(d, at, -P::begin(d), P::in(d) + P::end(d)).count : taps<P>(d, at, 0, P::in(d)).count;
  }
  return float(n);
}

// Calls f(offset within the plane) for every element of window number `at`.
template <class P, class F> inline void each_tap(int64_t at, const F& f) {
  const int64_t c = at % P::out(2), b = at / P::out(2) % P::out(1), a = at / P::out(2) / P::out(1);
  const Taps x = taps<P>(0, a, 0, P::in(0)), y = taps<P>(1, b, 0, P::in(1)), z = taps<P>(2, c, 0, P::in(2));
  for (int64_t i = 0; i < x.count; ++i)
    for (int64_t j = 0; j < y.count; ++j)
      for (int64_t k = 0; k < z.count; ++k)
        f(((x.first + i * P::dilations(0)) * P::in(1) + y.first + j * P::dilations(1)) * P::in(2) + z.first +
          k * P::dilations(2));
}
template <class P> inline float divisor_at(int64_t at) {
  return divisor<P>(at / P::out(2) / P::out(1), at / P::out(2) % P::out(1), at % P::out(2));
}

template <class Wide> struct LargestOfWindow {
  Wide value;
  int index;
};
template <class P, class Wide, class Data> inline LargestOfWindow<Wide> max_window(Data x, int64_t at) {
  Wide best = -__builtin_inff();
  int64_t best_at = -1;
  each_tap<P>(at, [&](int64_t i) {
    const Wide v = x[i];
    if (v > best || best_at < 0 || (v != v && best == best)) best = v, best_at = i;
  });
  return {best, int(best_at < 0 ? 0 : best_at)};
}

template <class P, class Wide, class Data> inline Wide mean_window(Data x, int64_t at) {
  Wide sum = 0;
  each_tap<P>(at, [&](int64_t i) { sum = sum + x[i]; });
  return sum / divisor_at<P>(at);
}

// Calls f(number of the window) for every window that has element `at`, in their order.
template <class P, class F> inline void each_window_of(int64_t at, const F& f) {
  const int64_t element[3] = {at / P::in(2) / P::in(1), at / P::in(2) % P::in(1), at % P::in(2)};
  int64_t first[3], last[3];
  for (int d = 0; d < 3; ++d) {
    const int64_t reach = element[d] + P::begin(d) - (P::kernel(d) - 1) * P::dilations(d);
    first[d] = reach <= 0 ? 0 : (reach + P::strides(d) - 1) / P::strides(d);
    last[d] = (element[d] + P::begin(d)) / P::strides(d);
    if (last[d] >= P::out(d)) last[d] = P::out(d) - 1;
  }
  for (int64_t a = first[0]; a <= last[0]; ++a)
    for (int64_t b = first[1]; b <= last[1]; ++b)
      for (int64_t c = first[2]; c <= last[2]; ++c) {
        const int64_t window[3] = {a, b, c};
        bool has = true;
        for (int d = 0; d < 3; ++d)
          has = has && (element[d] + P::begin(d) - window[d] * P::strides(d)) % P::dilations(d) == 0;
        if (has) f((a * P::out(1) + b) * P::out(2) + c);
      }
}

template <class P, class Wide, class Data> inline Wide shares(Data dy, int64_t at) {
  Wide sum = 0;
  each_window_of<P>(at, [&](int64_t window) { sum = sum + dy[window] / divisor_at<P>(window); });
  return sum;
}

// Of a max pool: windows near the element, or all of them.
template <class P, class Wide, class Data> inline Wide chosen_near(Data dy, const int* indices, int64_t at) {
  Wide sum = 0;
  each_window_of<P>(at, [&](int64_t window) {
    if (indices[window] == at) sum = sum + dy[window];
  });
  return sum;
}
template <class Wide, class Data>
inline Wide chosen(Data dy, const int* indices, int64_t at, int64_t windows) {
  Wide sum = 0;
  for (int64_t i = 0; i < windows; ++i)
    if (indices[i] == at) sum = sum + dy[i];
  return sum;
}

}  // namespace epl::cuda
