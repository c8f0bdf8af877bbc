// Operators whose operands may have different types are computed in a type that holds the numbers of all of them; the
// result then becomes what the standard says. A cast the other way would lose numbers without an error: a fraction
// becomes an integer, a large number of 32 bits an infinity of 16.
#pragma once

#include <algorithm>

#include "core/ir/builder.h"

namespace epl::onnx {

// The real type in which numbers of both types have their range, and integers of up to 53 bits their digits.
inline DType real_type(DType a, DType b) {
  const auto real = [](DType t) {
    if (is_float(t) || t == DType::boolean) return t;
    return dtype_bytes(t) <= 2 ? DType::f32 : DType::f64;
  };
  a = real(a);
  b = real(b);
  if (a == b || b == DType::boolean) return a == DType::boolean ? DType::f32 : a;
  if (a == DType::boolean) return b;
  return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;  // f16 and bf16 meet in f32
}

// At least 32 bits: what a runtime computes numbers of 16 bits in, where intermediate ones may be larger.
inline DType at_least_f32(DType t) { return real_type(t, DType::f32); }

}  // namespace epl::onnx
