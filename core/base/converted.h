// Tensors computed from others chunk by chunk as they are read, so that nothing is held twice.
#pragma once

#include <functional>

#include "core/base/tensor.h"

namespace epl {

// Converted to another element type; the tensor itself if it has that type.
Tensor converted(const Tensor& value, DType dtype);
// Each element is f(index, element).
Tensor mapped(const Tensor& value, std::function<double(int64_t, double)> f);

}  // namespace epl
