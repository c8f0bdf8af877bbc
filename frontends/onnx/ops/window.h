// What convolutions and pooling share: how a file describes a window.
#pragma once

#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {

// Arithmetic on what a file says of a window stays far from overflow; no tensor comes near the bound. Fails, naming the
// number, where one is below `min` or beyond it.
bool bounded(Import& i, std::initializer_list<const Ints*> lists, int64_t min);

// The attribute auto_pad, "NOTSET" where it is missing or empty.
std::string auto_pad(Import& i);

// Pads of a window as begin..., end...; auto_pad is worked out from the sizes.
Ints window_pads(Import& i, const Shape& x, const Ints& kernel, const Ints& strides, const Ints& dilations);

}  // namespace epl::onnx
