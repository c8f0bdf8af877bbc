#include "backends/cuda/kernels/rows.h"

#include <utility>

namespace epl::cuda {

Rows fused_rows();
Rows picked_linear_rows();
Rows pool_rows();
Rows scatter_rows();
Rows reduce_rows();
Rows softmax_rows();
Rows along_axis_rows();
Rows attention_rows();
Rows conv_rows();
Rows copy_rows();
Rows dropout_rows();
Rows gather_rows();
Rows norm_rows();
Rows not_finite_rows();
Rows optimizer_bf16_rows();
Rows matmul_rows();
Rows conv_rows_by_meaning();
Rows rows_between_casts();
Rows rows_by_meaning();

Rows all_rows() {
  Rows all;
  for (Rows (*rows)() :
       {fused_rows, reduce_rows, softmax_rows, norm_rows, matmul_rows, copy_rows, gather_rows, dropout_rows,
        optimizer_bf16_rows, attention_rows, not_finite_rows, conv_rows, pool_rows, along_axis_rows, scatter_rows,
        picked_linear_rows, rows_between_casts, rows_by_meaning, conv_rows_by_meaning}) {
    const Rows family = rows();
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

}  // namespace epl::cuda
