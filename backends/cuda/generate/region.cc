#include "backends/cuda/generate/region.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "backends/cuda/generate/program.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

enum class Class : uint8_t { real, integer };

struct Value {
  Class type = Class::real;
  bool truth = false;  // a real that is 0 or 1
  bool constant = false;
  double number = 0;
  std::string name{};
};

bool any_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (std::string_view n : names)
    if (n == name) return true;
  return false;
}
bool is_logic(std::string_view op) { return any_of(op, {"logical_and", "logical_or", "logical_xor", "logical_not"}); }
bool is_bits(std::string_view op) {
  return any_of(op, {"bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right"});
}
bool is_comparison(std::string_view op) { return any_of(op, {"eq", "ne", "lt", "le", "gt", "ge"}); }
bool gives_truth(std::string_view op) { return is_comparison(op) || is_logic(op) || any_of(op, {"is_nan", "is_inf"}); }
// What integers have a form for; backends/cpu/kernels/tile_operations.simd.h.
bool has_integers(std::string_view op) {
  return is_bits(op) || is_comparison(op) ||
         any_of(op, {"add", "sub", "mul", "div", "fma", "max", "min", "pow", "mod", "fmod", "neg", "abs", "sign",
                     "floor", "ceil", "round", "select"});
}

class Writer {
 public:
  Writer(const Body& body, const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs)
      : body_(body), inputs_(inputs), outputs_(outputs) {
    for (const TensorType& type : inputs) wide_ |= type.dtype == DType::f64;
    for (const TensorType& type : outputs) wide_ |= type.dtype == DType::f64;
    for (const Scalar& x : body.code) wide_ |= x.op == "cast" && x.type == DType::f64;
  }

  Result<Region> write() {
    EPL_TRY(require(!outputs_.empty() && outputs_.size() == body_.outputs.size(), "outputs do not fit"));
    const Shape& shape = outputs_[0].shape;
    for (const TensorType& type : outputs_) {
      EPL_TRY(require(type.dtype != DType::u64, "a result of type u64"));
      EPL_TRY(require(type.shape == shape, "outputs of different shapes"));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      EPL_TRY(require(inputs_[i].dtype != DType::u64, "an operand of type u64"));
      EPL_TRY(require(inputs_[i].shape.size() <= shape.size(), "an operand that does not broadcast to the output"));
      region_.functions += walk_function(cat("at", i), walks_of(inputs_[i].shape, shape));
    }
    for (const Scalar& x : body_.code) {
      EPL_TRY(require(x.op != "cast" || x.type != DType::u64, "a cast to u64"));
      made_.push_back(value_of(x));
    }
    for (size_t o = 0; o < outputs_.size(); ++o)
      region_.results.push_back(stored(made_[static_cast<size_t>(body_.outputs[o])], outputs_[o].dtype));
    return std::move(region_);
  }

 private:
  static Walks walks_of(const Shape& input, const Shape& output) {
    const Shape own = row_major_strides(input);
    const size_t shift = output.size() - input.size();
    Walks walks;
    for (size_t d = 0; d < output.size(); ++d)
      walks.push_back({output[d], d < shift || input[d - shift] == 1 ? 0 : own[d - shift]});
    return walks;
  }

  std::string_view real() const { return wide_ ? "double" : "float"; }
  std::string_view type_of(Class c) const { return c == Class::integer ? "int64_t" : real(); }
  bool is_own(DType type) const { return type == (wide_ ? DType::f64 : DType::f32); }

  Value add(Value value, std::string_view expression) {
    value.name = cat("v", count_++);
    region_.loads += cat("  const ", type_of(value.type), " ", value.name, " = ", expression, ";\n");
    return value;
  }

  static std::string literal(double number, std::string_view type) {
    if (std::isnan(number)) return cat("(", type, ")__builtin_nanf(\"\")");
    if (std::isinf(number)) return cat("(", type, ")", number < 0 ? "-infinity" : "infinity");
    char text[64];
    std::snprintf(text, sizeof text, "%a", type == "float" ? static_cast<double>(static_cast<float>(number)) : number);
    // A number beyond float's range rounds to infinity.
    if (type == "float" && std::isinf(static_cast<float>(number))) return literal(number * HUGE_VAL, type);
    return cat("(", type, ")", text);
  }
  static std::string integer_literal(double number) {
    if (number >= 9223372036854775807.0) return "INT64_MAX";
    if (number <= -9223372036854775808.0) return "INT64_MIN";
    return cat("(int64_t)", static_cast<int64_t>(number), "LL");
  }
  Value constant(double number, Class type) const {
    return {.type = type,
            .constant = true,
            .number = number,
            .name = type == Class::integer ? integer_literal(number) : literal(number, real())};
  }

  Value as_real(const Value& v) {
    if (v.constant) return constant(v.number, Class::real);
    if (v.type == Class::real) return v;
    return add({}, cat("(", real(), ")", v.name));
  }
  Value as_integer(const Value& v) {
    if (v.type == Class::integer) return v;
    if (v.constant) return constant(std::trunc(v.number), Class::integer);
    return add({.type = Class::integer}, cat("ToInteger::apply(", v.name, ")"));
  }
  Value as_truth(const Value& v) {
    if (v.constant) return truth_of(constant(v.number != 0, Class::real));
    if (v.truth) return v;
    return add({.truth = true}, cat("(", real(), ")(", v.name, " != 0)"));
  }
  static Value truth_of(Value v) { return v; }

  // What memory of a type holds of a value, as an expression; and the value of what it holds.
  std::string memory(const Value& v, DType type) const {
    switch (type) {
      case DType::f16:
        return cat("half_of(", v.name, ")");
      case DType::bf16:
        return cat("bfloat_of(", v.name, ")");
      case DType::boolean:
        return cat("(uint8_t)(", v.name, " != 0)");
      default:
        return cat("(", memory_type(type), ")", v.name);
    }
  }
  std::string loaded(std::string_view memory, DType type) const {
    if (type == DType::f16) return cat("(", real(), ")widened_half(", memory, ")");
    if (type == DType::bf16) return cat("(", real(), ")bfloat_to_float(", memory, ")");
    if (type == DType::boolean) return cat("(", real(), ")(", memory, " != 0)");
    return cat("(", is_integer(type) ? "int64_t" : real(), ")", memory);
  }
  Value through(DType type, const Value& v) { return add({.type = v.type}, loaded(memory(v, type), type)); }

  std::string stored(const Value& v, DType type) {
    if (type == DType::boolean) return memory(as_truth(v), type);
    return memory(is_integer(type) ? as_integer(v) : as_real(v), type);
  }

  Value value_of(const Scalar& x) {
    if (x.op == "input") {
      const DType type = inputs_[static_cast<size_t>(x.a)].dtype;
      return add({.type = is_integer(type) ? Class::integer : Class::real, .truth = type == DType::boolean},
                 loaded(cat("x", x.a, "[at", x.a, "(e)]"), type));
    }
    if (x.op == "constant") return constant(x.value, Class::real);
    if (x.op == "cast") return cast(at(x.a), x.type);
    return operation(x);
  }
  Value at(int i) const { return made_[static_cast<size_t>(i)]; }

  Value cast(const Value& v, DType type) {
    if (type == DType::boolean) return as_truth(v);
    if (is_float(type)) return is_own(type) ? as_real(v) : through(type, as_real(v));
    const bool was_integer = v.type == Class::integer;
    const Value w = as_integer(v);
    if (type == DType::i64) return w;
    if (was_integer) return through(type, w);  // wraps, as storing does
    const int bits = static_cast<int>(8 * dtype_bytes(type));
    const bool is_signed = type == DType::i8 || type == DType::i16 || type == DType::i32;
    const double low = is_signed ? -std::ldexp(1.0, bits - 1) : 0,
                 high = is_signed ? std::ldexp(1.0, bits - 1) - 1 : std::ldexp(1.0, bits) - 1;
    return integers("min", {integers("max", {w, constant(low, Class::integer)}), constant(high, Class::integer)});
  }

  static bool is_integral_constant(const Value& v) { return v.constant && std::trunc(v.number) == v.number; }

  // Whether an operation on these operands is one of integers.
  static bool runs_on_integers(std::string_view op, const std::vector<Value>& arguments) {
    if (is_bits(op)) return true;
    if (!has_integers(op)) return false;
    bool any = false;
    for (const Value& v : arguments) {
      const bool integer = v.type == Class::integer;
      any |= integer && !v.constant;
      if (!integer && !v.truth && !is_integral_constant(v)) return false;
    }
    return any;
  }

  static std::string list_of(const std::vector<Value>& arguments) {
    std::string list;
    for (const Value& v : arguments) list += cat(list.empty() ? "" : ", ", v.name);
    return list;
  }
  Value reals(std::string_view op, const std::vector<Value>& arguments, bool truth = false) {
    if (op == "mod" || op == "fmod")
      return add({}, cat(op == "mod" ? "RealMod" : "RealFmod", "::apply(", list_of(arguments), ")"));
    return add({.truth = truth}, cat("Real<ScalarOp::", op, ">::apply(", list_of(arguments), ")"));
  }
  Value integers(std::string_view op, const std::vector<Value>& arguments) {
    if (is_comparison(op))
      return add({.truth = true}, cat("(", real(), ")Compare<ScalarOp::", op, ">::apply(", list_of(arguments), ")"));
    return add({.type = Class::integer}, cat("Integer<ScalarOp::", op, ">::apply(", list_of(arguments), ")"));
  }

  Value operation(const Scalar& x) {
    std::vector<Value> arguments;
    for (int a : {x.a, x.b, x.c})
      if (a >= 0) arguments.push_back(at(a));
    if (x.op == "select") {
      const Value a = as_truth(arguments[0]), &b = arguments[1], &c = arguments[2];
      if (runs_on_integers(x.op, {b, c})) return integers(x.op, {as_integer(a), as_integer(b), as_integer(c)});
      const bool truth = b.truth && c.truth;
      return reals(x.op, {a, as_real(b), as_real(c)}, truth);
    }
    const bool integer = runs_on_integers(x.op, arguments);
    if (x.op == "pow" && arguments[1].constant && !integer) {
      const double p = arguments[1].number;
      const Value a = as_real(arguments[0]);
      if (p == 1) return a;
      if (p == 2) return reals("mul", {a, a});
      if (p == 3) return reals("mul", {reals("mul", {a, a}), a});
      if (p == 0.5) return reals("sqrt", {a});
      if (p == -0.5) return reals("reciprocal", {reals("sqrt", {a})});
      if (p == -1) return reals("reciprocal", {a});
    }
    for (Value& v : arguments) v = integer ? as_integer(v) : is_logic(x.op) ? as_truth(v) : as_real(v);
    return integer ? integers(x.op, arguments) : reals(x.op, arguments, gives_truth(x.op));
  }

  const Body& body_;
  const std::vector<TensorType>&inputs_, &outputs_;
  bool wide_ = false;  // reals are computed in float64
  int count_ = 0;
  std::vector<Value> made_;
  Region region_;
};

}  // namespace

Result<Region> make_region(const Body& body, const std::vector<TensorType>& inputs,
                           const std::vector<TensorType>& outputs) {
  return Writer(body, inputs, outputs).write();
}

}  // namespace epl::cuda
