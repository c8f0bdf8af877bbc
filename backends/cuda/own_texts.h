// What the verbs themselves compile.
#pragma once

#include <vector>

#include "backends/cuda/kernel.h"

namespace epl::cuda {

// Of reductions those that a step of two ranks has.
const std::vector<Launch>& own_launches();

}  // namespace epl::cuda
