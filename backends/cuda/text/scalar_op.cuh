// The names of the scalar operations, as in core/ir/scalar.h.
#pragma once

#include "backends/cuda/text/machine.cuh"

namespace epl {

enum class ScalarOp : uint8_t {
#define EPL_SCALAR_OP(name, arity, family, real, integer) name,
#include "core/ir/scalar_ops.inc"
#undef EPL_SCALAR_OP
};

}  // namespace epl
