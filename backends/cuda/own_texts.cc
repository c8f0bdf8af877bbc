#include "backends/cuda/own_texts.h"

#include "backends/cuda/foreign.h"
#include "backends/cuda/reduce.h"

namespace epl::cuda {

const std::vector<Launch>& own_launches() {
  static const std::vector<Launch> all = [] {
    std::vector<Launch> made = copy_rows_launches();
    made.push_back(step_launch());
    made.push_back(placed_launch(1));
    for (const int32_t dtype : {EPL_PACK_F32, EPL_PACK_F64, EPL_PACK_F16, EPL_PACK_BF16, EPL_PACK_I64})
      made.push_back(reduction_launch({.ranks = 2, .targets = 2, .count = 1, .dtype = dtype, .reduction = 0}).value());
    return made;
  }();
  return all;
}

}  // namespace epl::cuda
