// Scalar expressions: the meaning of elementwise ops, written once.
//
// What a single operation means is a row of core/ir/scalar_ops.inc. A ScalarExpr is a short straight-line program over
// scalars. It is the only source of an elementwise primitive's reference (evaluated in double or int64), of its vector
// loops on the CPU (interpreted over tiles) and of its text for a GPU; the attribute of a `fused` op is one of these as
// text.
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

enum class ScalarOp : uint8_t {
#define EPL_SCALAR_OP(name, arity, family, real, integer) name,
#include "core/ir/scalar_ops.inc"
#undef EPL_SCALAR_OP
};
inline constexpr int scalar_op_count = static_cast<int>(ScalarOp::cast) + 1;  // cast is the last row

// Results of the last three are truth values.
enum class ScalarFamily : uint8_t { leaf, number, bits, comparison, logic, test };

struct ScalarOpInfo {
  std::string_view name;
  int arity;
  ScalarFamily family;
  constexpr bool truth() const { return family >= ScalarFamily::comparison; }
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
  // `values` is room for a result of every instruction.
  void evaluate(const double* in, double* out, double* values) const;
  void evaluate(const int64_t* in, int64_t* out, int64_t* values) const;
  void evaluate(const uint64_t* in, uint64_t* out,
                uint64_t* values) const;  // where all of them are u64 or truth values
  friend bool operator==(const ScalarExpr&, const ScalarExpr&) = default;
};

// The meaning of one instruction; references and tests use these, vector lanes must agree with the double form.
double evaluate_scalar(ScalarOp op, double a, double b, double c);
int64_t evaluate_scalar(ScalarOp op, int64_t a, int64_t b, int64_t c);
uint64_t evaluate_unsigned(ScalarOp op, uint64_t a, uint64_t b, uint64_t c);  // the same of u64, which has no sign

}  // namespace epl
