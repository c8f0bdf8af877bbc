#include "frontends/onnx/ops/window.h"

#include <algorithm>

namespace epl::onnx {

bool bounded(Import& i, std::initializer_list<const Ints*> lists, int64_t min) {
  for (const Ints* list : lists) {
    for (int64_t n : *list) {
      if (n >= min && n <= int64_t{1} << 31) continue;
      i.fail(cat(n, " is not a size, stride, dilation or pad of a window"));
      return false;
    }
  }
  return true;
}

std::string auto_pad(Import& i) {
  if (i.text("auto_pad", "").empty()) return "NOTSET";
  return i.choice("auto_pad", {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
}

Ints window_pads(Import& i, const Shape& x, const Ints& kernel, const Ints& strides, const Ints& dilations) {
  size_t spatial = kernel.size();
  if (!bounded(i, {&kernel, &strides, &dilations}, 1)) return Ints(2 * spatial, 0);
  std::string automatic = auto_pad(i);
  if (automatic == "NOTSET") return i.ints("pads", Ints(2 * spatial, 0));
  Ints pads(2 * spatial, 0);
  if (automatic == "VALID") return pads;
  for (size_t d = 0; d < spatial; ++d) {
    int64_t size = x[d + 2], out = (size + strides[d] - 1) / strides[d];
    int64_t total = std::max<int64_t>(0, (out - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - size);
    int64_t small = total / 2;
    pads[d] = automatic == "SAME_UPPER" ? small : total - small;
    pads[d + spatial] = total - pads[d];
  }
  return pads;
}

}  // namespace epl::onnx
