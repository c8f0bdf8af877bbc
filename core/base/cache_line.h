// Lines of the processor's caches.
#pragma once

#include <cstdint>

namespace epl {

inline constexpr int64_t line_bytes = 64;  // that two threads write to one at the same time is slow
// Bytes of all lines that so many bytes begin.
constexpr int64_t line_aligned(int64_t bytes) { return (bytes + line_bytes - 1) / line_bytes * line_bytes; }

}  // namespace epl
