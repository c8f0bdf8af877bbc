// A tensor seen as another element type: converted piece by piece as it is read, so that nothing is held twice.
#pragma once

#include "core/base/tensor.h"

namespace epl {

// The tensor itself where it has the type.
Tensor converted(const Tensor& value, DType dtype);

}  // namespace epl
