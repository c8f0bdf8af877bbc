// Packs of strided operands of 16 bits for the product of float32 (gemm.h), which widen them on the way: no operand is
// held in float32.
#pragma once

#include "backends/cpu/kernels/gemm.h"

namespace epl::cpu {

// As StridedOperand (unit_order.h), of bf16 or f16.
struct NarrowOperand {
  const uint16_t* data = nullptr;
  bool half = false;  // f16
  int64_t row = 0, col = 0;
  GemmBatch batch[3];
  bool b = false;  // which of a batch's strides are this operand's
};

namespace v3 {
void pack_narrow(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride);
}
namespace v4 {
void pack_narrow(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride);
}

}  // namespace epl::cpu
