// The type in which numbers are added up. Every op that squares, sums or averages on the way to something else asks
// here, so that norms, means and losses of numbers of 16 bits have a range that their results do not.
#pragma once

#include "core/base/narrow.h"
#include "core/ir/builder.h"

namespace epl {

// Numbers of 16 bits take 32: the square of 300 is past float16, and so is the sum of 22 numbers of 3000, though the
// norm or the mean is not.
constexpr DType type_of_sums(DType type) { return has_16_bits(type) ? DType::f32 : type; }

// f(x), computed in the type that sums of such numbers need, and of x's type again.
template <class F> Var in_type_of_sums(Builder& b, const Var& x, F&& f) {
  return b.cast(f(b.cast(x, type_of_sums(x.dtype()))), x.dtype());
}

}  // namespace epl
