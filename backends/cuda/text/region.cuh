// What elementwise regions are made of: the CPU's scalar operations, and elements as memory holds them.
#pragma once

#include "backends/cuda/text/half.cuh"
#include "backends/cuda/text/scalar_op.cuh"
// Behind what it needs.
#include "backends/cpu/kernels/tile_operations.simd.h"
#include "core/base/angles.cc"
#include "core/base/math.cc"

namespace epl::cuda {
using namespace epl::cpu::gpu;
using epl::bfloat_to_float;
using epl::ScalarOp;
}  // namespace epl::cuda
