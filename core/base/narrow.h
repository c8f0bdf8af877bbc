// Which element types have 16 bits: what is added up of them, or multiplied, is computed in float32.
#pragma once

#include "core/base/dtype.h"

namespace epl {

constexpr bool has_16_bits(DType type) { return type == DType::f16 || type == DType::bf16; }

}  // namespace epl
