// Reductions over the ranks of one GPU, in the order of core/backend/communicator.h: the binary tree over ranks.
#pragma once

#include "backends/cuda/gpu.h"
#include "core/base/pack_abi.h"

namespace epl::cuda {

struct ReductionShape {
  int ranks = 1, targets = 1;
  int64_t count = 0;
  int32_t dtype = 0, reduction = 0;  // of epl_pack_reduction
};
// Its parameters: each source, each target, the count.
Result<Launch> reduction_launch(const ReductionShape& shape);

Status reduce_ranks(GpuStream& stream, const epl_pack_reduction& reduction);

}  // namespace epl::cuda
