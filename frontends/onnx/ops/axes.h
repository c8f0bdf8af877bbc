// Dimensions of a tensor, in order.
#pragma once

#include <algorithm>
#include <numeric>

#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {

// [first, ndim).
inline Ints axes_from(int first, int ndim) {
  Ints axes(static_cast<size_t>(std::max(ndim - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}
inline Ints all_axes(int ndim) { return axes_from(0, ndim); }
// Those behind samples and channels.
inline Ints spatial_axes(int ndim) { return axes_from(2, ndim); }

}  // namespace epl::onnx
