// Dropout: inner loop, once per processor level.
#pragma once

#include <cstdint>

namespace epl::cpu {

// y[i] = x[i] * scale where element first + i is kept, else 0; mask[i] (if not null) whether it is. An element is kept
// where its 24 random bits (core/base/philox.h) are at least `threshold`. y may be x.
using DropoutLoop = void (*)(uint64_t key, uint64_t first, uint32_t threshold, float scale, const float* x, float* y,
                             uint8_t* mask, int64_t n);

namespace v3 {
extern const DropoutLoop dropout_loop;
}
namespace v4 {
extern const DropoutLoop dropout_loop;
}

}  // namespace epl::cpu
