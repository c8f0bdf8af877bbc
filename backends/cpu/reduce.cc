#include "backends/cpu/reduce.h"

#include "backends/cpu/cpu.h"

namespace epl::cpu {

namespace v3 {
void reduce_ranks(const void* const*, void* const*, int, int64_t, int64_t, DType, Reduction);
}
namespace v4 {
void reduce_ranks(const void* const*, void* const*, int, int64_t, int64_t, DType, Reduction);
}

bool can_reduce(DType dtype) { return is_float(dtype) || dtype == DType::i64; }

void reduce_ranks(const void* const* sources, void* const* targets, int ranks, int64_t begin, int64_t end, DType dtype,
                  Reduction reduction) {
  EPL_CPU_CHOOSE(reduce_ranks)(sources, targets, ranks, begin, end, dtype, reduction);
}

}  // namespace epl::cpu
