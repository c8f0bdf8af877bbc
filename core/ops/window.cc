#include "core/ops/window.h"

#include <algorithm>

namespace epl::ops {

namespace {
// No tensor comes near either; below them, positions and counts of taps stay far from overflow.
constexpr int64_t max_number = int64_t{1} << 31, max_taps = int64_t{1} << 46;
}  // namespace

Window window_of(const Attributes& attributes, std::span<const int64_t> kernel) {
  Window w;
  const size_t n = kernel.size();
  const auto list = [&](std::string_view name) {
    const Ints& given = attributes.ints(name);
    return given.empty() ? Dims(n, 1) : Dims(given);
  };
  w.kernel = Dims(kernel);
  w.strides = list("strides");
  w.dilations = list("dilations");
  const std::span<const int64_t> pads = attributes.ints("pads");
  if (pads.empty()) w.begin = w.end = Dims(n);
  if (!pads.empty() && pads.size() == 2 * n) {
    w.begin = Dims(pads.first(n));
    w.end = Dims(pads.subspan(n));
  }
  return w;
}

Result<Window> window_of(const OpQuery& query, std::span<const int64_t> kernel) {
  Window w = window_of(query.attributes(), kernel);
  const size_t n = kernel.size();
  if (w.strides.size() != n || w.dilations.size() != n || w.begin.size() != n)
    return misfit(query, "strides, dilations and pads need 1, 1 and 2 numbers for each of ", n, " dimensions");
  int64_t taps = 1;
  for (size_t d = 0; d < n; ++d) {
    if (w.kernel[d] < 1 || w.strides[d] < 1 || w.dilations[d] < 1 || w.begin[d] < 0 || w.end[d] < 0)
      return misfit(query, "kernel, strides and dilations must be positive and pads not negative");
    for (int64_t number : {w.kernel[d], w.strides[d], w.dilations[d], w.begin[d], w.end[d]})
      if (number > max_number)
        return misfit(query, number, " in the window along spatial dimension ", d, " is more than ", max_number);
    if (__builtin_mul_overflow(taps, w.kernel[d], &taps) || taps > max_taps)
      return misfit(query, "a kernel of ", Ints(kernel.begin(), kernel.end()), " has too many elements");
  }
  return w;
}

int64_t window_output(const Window& w, size_t d, int64_t size, bool ceil) {
  const int64_t room = size + w.begin[d] + w.end[d] - (w.dilations[d] * (w.kernel[d] - 1) + 1);
  if (room < 0) return 0;
  if (!ceil) return room / w.strides[d] + 1;
  int64_t count = (room + w.strides[d] - 1) / w.strides[d] + 1;
  if ((count - 1) * w.strides[d] >= size + w.begin[d]) --count;
  return count;
}

namespace {
int64_t extent(const Window& w, size_t d) { return (w.kernel[d] - 1) * w.dilations[d] + 1; }
int64_t floor_division(int64_t a, int64_t b) { return a / b - (a % b < 0); }
}  // namespace

std::optional<Halo> elements_of_windows(const Window& w, size_t d, int64_t size, int64_t windows, int64_t shards,
                                        bool ceil) {
  const int64_t own = size / shards, each = windows / shards, stride = w.strides[d];
  Halo halo{.first = -w.begin[d], .step = each * stride, .size = (each - 1) * stride + extent(w, d)};
  // Where the last window needs nothing beyond the shard, what it leaves over may stay: it makes no further window.
  const int64_t left = own - halo.first - halo.size;
  if (!ceil && halo.step == own && left > 0 && left < stride) halo.size += left;
  return halo;
}

std::optional<Halo> windows_of_elements(const Window& w, size_t d, int64_t size, int64_t shards, bool ceil) {
  const int64_t own = size / shards, stride = w.strides[d], reach = extent(w, d);
  if (own % stride != 0) return std::nullopt;
  // The first window that reaches the first element, but for one that would begin behind it.
  const int64_t first = std::min(-floor_division(reach - 1 - w.begin[d], stride), floor_division(w.begin[d], stride));
  Halo halo{.first = first, .step = own / stride, .begin = w.begin[d] - first * stride};
  halo.size = (own - 1 + halo.begin) / stride + 1;
  const int64_t over = (halo.size - 1) * stride + reach - own - halo.begin;
  if (ceil && over < 0) return std::nullopt;  // what is left over would make another window
  halo.end = std::max<int64_t>(over, 0);
  return halo;
}

}  // namespace epl::ops
