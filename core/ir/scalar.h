// Scalar expressions: the meaning of elementwise ops, written once.
//
// A ScalarExpr is a short straight-line program over scalars. It is the only source of an elementwise primitive's
// reference (evaluated in double or int64), of its vector lanes on the CPU (interpreted over tiles) and of its text for
// a GPU; the attribute of a `fused` op is one of these as text.
//
// Text form: instructions separated by `;`, which define %0, %1, ... in order: an input x0, x1, ..., a number, or
// `name(%i,...)` of earlier results; the last clause `-> %3, %5` names the outputs. A cast rounds to a type:
// cast(%2,bf16).
//   x0; x1; mul(%0,%1); exp(%2); 1; add(%3,%4) -> %5
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace epl {

// name, number of arguments, result is a truth value
// clang-format off
#define EPL_SCALAR_OPS(X)                                                                                     \
  X(input, 0, false) X(constant, 0, false)                                                                    \
  X(add, 2, false) X(sub, 2, false) X(mul, 2, false) X(div, 2, false) X(fma, 3, false)                        \
  X(max, 2, false) X(min, 2, false) X(pow, 2, false) X(mod, 2, false) X(fmod, 2, false) X(atan2, 2, false)    \
  X(neg, 1, false) X(abs, 1, false) X(sign, 1, false) X(sqrt, 1, false) X(reciprocal, 1, false)               \
  X(exp, 1, false) X(expm1, 1, false) X(log, 1, false) X(log1p, 1, false) X(erf, 1, false)                    \
  X(sin, 1, false) X(cos, 1, false) X(tan, 1, false) X(asin, 1, false) X(acos, 1, false) X(atan, 1, false)    \
  X(sinh, 1, false) X(cosh, 1, false) X(tanh, 1, false) X(asinh, 1, false) X(acosh, 1, false) X(atanh, 1, false) \
  X(sigmoid, 1, false)                                                                                        \
  X(floor, 1, false) X(ceil, 1, false) X(round, 1, false)                                                     \
  X(eq, 2, true) X(ne, 2, true) X(lt, 2, true) X(le, 2, true) X(gt, 2, true) X(ge, 2, true)                   \
  X(logical_and, 2, true) X(logical_or, 2, true) X(logical_xor, 2, true) X(logical_not, 1, true)              \
  X(is_nan, 1, true) X(is_inf, 1, true)                                                                       \
  X(bit_and, 2, false) X(bit_or, 2, false) X(bit_xor, 2, false) X(bit_not, 1, false)                          \
  X(shift_left, 2, false) X(shift_right, 2, false)                                                            \
  X(select, 3, false) X(cast, 1, false)
// clang-format on

enum class ScalarOp : uint8_t {
#define EPL_X(name, arity, truth) name,
  EPL_SCALAR_OPS(EPL_X)
#undef EPL_X
};

struct ScalarOpInfo {
  std::string_view name;
  int arity;
  bool truth;
};
const ScalarOpInfo& scalar_op_info(ScalarOp op);
const ScalarOp* find_scalar_op(std::string_view name);

struct ScalarExpr {
  struct Instruction {
    ScalarOp op;
    int a = -1, b = -1, c = -1;  // earlier instructions; for `input`, a is the input's index
    double value = 0;            // of a constant
    DType type = DType::f32;     // target of a cast
    friend bool operator==(const Instruction&, const Instruction&) = default;
  };
  int inputs = 0;
  std::vector<Instruction> code;
  std::vector<int> outputs;

  // Building: each returns the index of the new instruction. Equal instructions are shared.
  int input(int index);
  int constant(double value);
  int emit(ScalarOp op, int a, int b = -1, int c = -1);
  int cast(int a, DType type);

  std::string text() const;
  static Result<ScalarExpr> parse(std::string_view text);
  // Evaluates one element. `int64` evaluation is used where all operands are integers or truth values.
  void evaluate(const double* in, double* out) const;
  void evaluate(const int64_t* in, int64_t* out) const;
  friend bool operator==(const ScalarExpr&, const ScalarExpr&) = default;
};

// The meaning of one instruction; references and tests use these, vector lanes must agree with the double form.
double evaluate_scalar(ScalarOp op, double a, double b, double c);
int64_t evaluate_scalar(ScalarOp op, int64_t a, int64_t b, int64_t c);

}  // namespace epl
