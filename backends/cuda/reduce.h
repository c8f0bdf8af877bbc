// Reductions over the ranks of one GPU, in the order of core/backend/communicator.h: the binary tree over ranks.
#pragma once

#include "backends/cuda/gpu.h"
#include "core/base/pack_abi.h"

namespace epl::cuda {

Status reduce_ranks(GpuStream& stream, const epl_pack_reduction& reduction);

}  // namespace epl::cuda
