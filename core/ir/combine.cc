#include "core/ir/combine.h"

namespace epl {

void combine_element(ScalarOp op, DType type, void* to, int64_t i, const void* from, int64_t j) {
  if (is_float(type))
    return store_double(type, to, i, evaluate_scalar(op, load_double(type, to, i), load_double(type, from, j), 0.0));
  const int64_t old = load_int(type, to, i), other = load_int(type, from, j);
  const auto bits = [](int64_t v) { return static_cast<uint64_t>(v); };
  store_int(type, to, i,
            type == DType::u64 ? static_cast<int64_t>(evaluate_unsigned(op, bits(old), bits(other), 0))
                               : evaluate_scalar(op, old, other, int64_t{0}));
}

}  // namespace epl
