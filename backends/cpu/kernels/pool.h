// Max pooling of one row of outputs, once per processor level.
#pragma once

#include <cstdint>

namespace epl::cpu {

inline constexpr int max_pool_rows = 64;

// The windows of neighbouring outputs along the innermost dimension.
struct PoolRow {
  const float* plane;
  const int32_t* rows;  // offsets in the plane of the input rows that the windows take part in, in order
  int row_count;
  int32_t width;                            // of an input row
  int32_t kernel, stride, dilation, begin;  // along the innermost dimension
};

// y[c], if not null, is the largest element of window c, and indices[c], if not null, its position in the plane: the
// first of equals; the first NaN if there is one; -infinity and 0 for a window of nothing.
using MaxPoolRow = void (*)(const PoolRow& row, float* y, int32_t* indices, int64_t outputs);

namespace v3 {
extern const MaxPoolRow max_pool_row;
}
namespace v4 {
extern const MaxPoolRow max_pool_row;
}

}  // namespace epl::cpu
