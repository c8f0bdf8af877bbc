// What the records of indexing ops share.
//
// Indices may be negative and then count from the end; an index out of range reads NaN (0 for integers), which the
// step's check for finite values reports, and adds nothing.
#pragma once

#include <string>

#include "core/base/shown.h"
#include "core/ir/combine.h"
#include "core/ops/common.h"

namespace epl::ops {

inline Status integer_operand(const OpQuery& q, int i) {
  if (!is_integer(q.in(i).dtype)) return misfit(q, "indices must be integers");
  return {};
}

// Whether element a of x is less than element b. A NaN is not, nor is anything less than it.
inline bool less(const TensorView& x, int64_t a, int64_t b) {
  if (x.dtype() == DType::u64) return static_cast<uint64_t>(x.get_int(a)) < static_cast<uint64_t>(x.get_int(b));
  return x.dtype() == DType::i64 ? x.get_int(a) < x.get_int(b) : x.get(a) < x.get(b);
}

// Element `to` of `out` combined with element `from` of `updates`, or replaced by it.
inline void combine(const std::string& reduction, const TensorView& out, int64_t to, const TensorView& updates,
                    int64_t from) {
  if (reduction == "none") return copy_element(updates, from, out, to);
  const ScalarOp op = reduction == "add"   ? ScalarOp::add
                      : reduction == "mul" ? ScalarOp::mul
                      : reduction == "max" ? ScalarOp::max
                                           : ScalarOp::min;
  combine_element(op, out.dtype(), out.data(), to, updates.data(), from);
}
inline Status check_reduction(const OpQuery& q) {
  const std::string& reduction = q.attributes().text("reduction");
  for (const char* known : {"none", "add", "mul", "max", "min"})
    if (reduction == known) return {};
  return misfit(q, "reduction ", shown(reduction, 200), " is not one of none, add, mul, max, min");
}
// Zeros that follow every cut of x, whatever x holds: nothing is less than itself.
inline Var zeros_like(Builder& b, const Var& x) { return b.select(x < x, x, b.like(x, 0)); }
// Only overwriting and adding have gradients; says so otherwise.
inline bool linear_reduction(Grad& g) {
  const std::string& reduction = g.attributes().text("reduction");
  if (reduction == "none" || reduction == "add") return true;
  g.b.fail(unsupported(g.node().op->name, " with reduction ", shown(reduction, 200), " has no gradient"));
  return false;
}

}  // namespace epl::ops
