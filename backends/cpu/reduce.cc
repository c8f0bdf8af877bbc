#include "backends/cpu/reduce.h"

#include "backends/cpu/cpu.h"

namespace epl::cpu {

namespace v3 {
void reduce_ranks(std::span<const void* const>, std::span<void* const>, int64_t, int64_t, DType, Reduction);
}
namespace v4 {
void reduce_ranks(std::span<const void* const>, std::span<void* const>, int64_t, int64_t, DType, Reduction);
}

bool can_reduce(DType dtype) { return is_float(dtype) || dtype == DType::i64; }

void reduce_ranks(std::span<const void* const> sources, std::span<void* const> targets, int64_t begin, int64_t end,
                  DType dtype, Reduction reduction) {
  EPL_CPU_CHOOSE(reduce_ranks)(sources, targets, begin, end, dtype, reduction);
}

}  // namespace epl::cpu
