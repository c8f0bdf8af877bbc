// Which bits a training run has.
#pragma once

#include <cstdint>

namespace epl {

// Raised when the bits of a training run must change; checkpoints and plan files tell with which they were made.
inline constexpr uint32_t numerics_version = 6;

}  // namespace epl
