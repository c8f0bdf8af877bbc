// Products whose sum runs over a batch that is not the first of the summed dimensions: the units of k are interleaved,
// and packs bring them one behind the other, which is what `gemm` sums.
#pragma once

#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/gemm.h"
#include "core/base/units.h"

namespace epl::cpu {

// A strided matrix as a pack gives it: `row` and `col` as in GemmProblem, for A; for B `row` is the stride of columns.
struct StridedOperand {
  const float* data = nullptr;
  int64_t row = 0, col = 0;
  GemmBatch batch[3];
  bool b = false;  // which of a batch's strides are this operand's
};

inline void pack_strided(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k, int64_t depth,
                         float* to, int64_t stride) {
  const auto& m = *static_cast<const StridedOperand*>(context);
  const float* from = m.data + first * m.row + k * m.col;
  for (int d = 2; d >= 0; --d) {
    from += batch % m.batch[d].count * (m.b ? m.batch[d].b : m.batch[d].a);
    batch /= m.batch[d].count;
  }
  for (int64_t j = 0; j < depth; ++j, from += m.col, to += stride) {
    if (m.row == 1) {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = from[i * m.row];
    }
  }
}

// Another pack, whose n positions of k are asked for unit by unit.
struct UnitOrder {
  GemmPack pack = nullptr;
  const void* context = nullptr;
  int64_t n = 0;
  Units units;
};

inline void pack_in_unit_order(const void* context, int64_t batch, int64_t first, int64_t count, int64_t k,
                               int64_t depth, float* to, int64_t stride) {
  const auto& order = *static_cast<const UnitOrder*>(context);
  const int64_t run = order.units.run(order.n);
  while (depth > 0) {
    const int64_t some = std::min(depth, run - k % run);
    order.pack(order.context, batch, first, count, order.units.position(k, order.n), some, to, stride);
    to += some * stride;
    k += some;
    depth -= some;
  }
}

}  // namespace epl::cpu
