// Sliding windows: the attributes and arithmetic that convolutions and pools share.
// `pads` are all beginnings, then all ends; empty lists stand for ones (strides, dilations) and zeros (pads).
#pragma once

#include "core/ir/partition_rule.h"
#include "core/ops/common.h"

namespace epl::ops {

struct Window {
  Dims kernel, strides, dilations, begin, end;
  size_t dims() const { return kernel.size(); }
  // Position in the input of tap k of the window at position o; may lie in the padding.
  int64_t at(size_t d, int64_t o, int64_t k) const { return o * strides[d] - begin[d] + k * dilations[d]; }
};

// Reads the attributes for a window of `kernel` sizes and checks them.
Result<Window> window_of(const OpQuery& query, std::span<const int64_t> kernel);
// The same for attributes known to be right.
Window window_of(const Attributes& attributes, std::span<const int64_t> kernel);
// Output size along d; with `ceil` a last window may hang over the end but must start inside the input or its left
// padding.
int64_t window_output(const Window& window, size_t d, int64_t size, bool ceil);

// Calls f(input_index, tap) for every tap of the window at `position` that lies inside `size` (spatial sizes only);
// input_index and tap are row-major indices within the spatial sizes and within the kernel.
template <class F> void for_each_tap(const Window& w, std::span<const int64_t> size, const Dims& position, F f) {
  for_each_index(w.kernel, [&](int64_t tap, const Dims& k) {
    int64_t linear = 0;
    for (size_t d = 0; d < w.dims(); ++d) {
      const int64_t at = w.at(d, position[d], k[d]);
      if (at < 0 || at >= size[d]) return;
      linear = linear * size[d] + at;
    }
    f(linear, tap);
  });
}

// What the p-th of `shards` equal shards of the windows along d reads of the elements, of which there are `size` in as
// many shards; and of the elements what it reads of the windows, for gradients with respect to elements. None: shards
// would differ in more than where they begin, as where a stride does not divide a shard of the elements. With `ceil`
// the last window may hang over.
std::optional<Halo> elements_of_windows(const Window& window, size_t d, int64_t size, int64_t windows, int64_t shards,
                                        bool ceil);
std::optional<Halo> windows_of_elements(const Window& window, size_t d, int64_t size, int64_t shards, bool ceil);

inline std::span<const int64_t> spatial(const Shape& shape) { return std::span(shape).subspan(2); }

}  // namespace epl::ops
