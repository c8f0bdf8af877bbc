// Packs of strided operands of 16 bits for the product of float32 or of pairs of bf16 (gemm.h): no operand is held in
// float32.
#pragma once

#include "backends/cpu/kernels/gemm.h"
#include "core/base/units.h"

namespace epl::cpu {

// As StridedOperand (unit_order.h), of bf16 or f16.
struct NarrowOperand {
  const uint16_t* data = nullptr;
  bool half = false;  // f16
  int64_t row = 0, col = 0;
  GemmBatch batch[3];
  bool b = false;  // which of a batch's strides are this operand's

  const uint16_t* at(int64_t product, int64_t first, int64_t k) const {
    const uint16_t* from = data + first * row + k * col;
    for (int d = 2; d >= 0; --d) {
      from += product % batch[d].count * (b ? batch[d].b : batch[d].a);
      product /= batch[d].count;
    }
    return from;
  }
};

// For pairs the pack knows how units lie: none of its pairs belongs to two units.
struct PairOperand {
  NarrowOperand operand;
  int64_t n = 0;  // of k, in elements
  Units units;
};
// Pairs that a sum over n elements takes.
inline int64_t pairs_of(int64_t n, const Units& units) { return units.count * ((n / units.count + 1) / 2); }

namespace v3 {
void pack_narrow(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride);
}
namespace v4 {
void pack_narrow(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride);
}
namespace v4_bf16 {
// The context is a PairOperand.
void pack_pairs(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                int64_t stride);
}  // namespace v4_bf16

}  // namespace epl::cpu
