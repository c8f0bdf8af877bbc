// Tensors made of others piece by piece as they are read, so that nothing is held twice.
#pragma once

#include <functional>

#include "core/base/tensor.h"

namespace epl {

// Seen as another element type; the tensor itself where it has the type.
Tensor converted(const Tensor& value, DType dtype);
// With f(index, element) for each element.
Tensor mapped(const Tensor& value, std::function<double(int64_t, double)> f);

}  // namespace epl
