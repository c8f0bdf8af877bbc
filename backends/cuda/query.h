// A query of libepl.so as rows read it.
#pragma once

#include "backends/cuda/kernel.h"
#include "core/base/pack_abi.h"

namespace epl::cuda {

Result<Query> query_of(const epl_pack_query& given);

}  // namespace epl::cuda
