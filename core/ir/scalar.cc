#include "core/ir/scalar.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/base/check.h"
#include "core/base/math.h"
#include "core/base/shown.h"
#include "core/base/text.h"

namespace epl {
namespace {

constexpr std::array infos = {
#define EPL_SCALAR_OP(name, arity, family, real, integer) ScalarOpInfo{#name, arity, ScalarFamily::family},
#include "core/ir/scalar_ops.inc"
#undef EPL_SCALAR_OP
};
static_assert(infos.size() == scalar_op_count);

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double round_to(DType type, double value) {
  alignas(8) char element[8];
  store_double(type, element, 0, value);
  return load_double(type, element, 0);
}

int64_t wrap_to(DType type, int64_t value) {
  alignas(8) char element[8];
  store_int(type, element, 0, value);
  return load_int(type, element, 0);
}

double modulo(double a, double b) {  // sign of the divisor, as ONNX Mod and Python
  double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

int64_t modulo(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double half_to_even(double a) {  // in every rounding mode
  return std::isfinite(a) ? a - std::remainder(a, 1.0) : a;
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, b = static_cast<uint64_t>(base);
  for (uint64_t e = static_cast<uint64_t>(exponent); e; e >>= 1, b *= b) {
    if (e & 1) result *= b;
  }
  return static_cast<int64_t>(result);
}

}  // namespace

const ScalarOpInfo& scalar_op_info(ScalarOp op) { return infos[static_cast<size_t>(op)]; }

const ScalarOp* find_scalar_op(std::string_view name) {
  static const auto ops = [] {
    std::array<ScalarOp, infos.size()> all;
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<ScalarOp>(i);
    return all;
  }();
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i].name == name) return &ops[i];
  }
  return nullptr;
}

double evaluate_scalar(ScalarOp op, double a, double b, double c) {
  const auto by_integer = [&](ScalarOp same) {
    return static_cast<double>(
        evaluate_scalar(same, static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c)));
  };
  switch (op) {
#define EPL_SCALAR_OP(name, arity, family, real, integer) \
  case ScalarOp::name:                                    \
    return real;
#include "core/ir/scalar_ops.inc"
#undef EPL_SCALAR_OP
  }
  return 0;
}

int64_t evaluate_scalar(ScalarOp op, int64_t a, int64_t b, int64_t c) {
  const auto wrap = [](uint64_t v) { return static_cast<int64_t>(v); };
  const auto by_real = [&](ScalarOp same) {
    return static_cast<int64_t>(
        evaluate_scalar(same, static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)));
  };
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (op) {
#define EPL_SCALAR_OP(name, arity, family, real, integer) \
  case ScalarOp::name:                                    \
    return integer;
#include "core/ir/scalar_ops.inc"
#undef EPL_SCALAR_OP
  }
  return 0;
}

uint64_t evaluate_unsigned(ScalarOp op, uint64_t a, uint64_t b, uint64_t c) {
  switch (op) {
    case ScalarOp::div:
      return b == 0 ? 0 : a / b;
    case ScalarOp::mod:
    case ScalarOp::fmod:
      return b == 0 ? 0 : a % b;
    case ScalarOp::max:
      return std::max(a, b);
    case ScalarOp::min:
      return std::min(a, b);
    case ScalarOp::pow: {
      uint64_t result = 1;
      for (; b != 0; b >>= 1, a *= a) result *= (b & 1) != 0 ? a : 1;
      return result;
    }
    case ScalarOp::abs:
      return a;
    case ScalarOp::sign:
      return a != 0;
    case ScalarOp::lt:
      return a < b;
    case ScalarOp::le:
      return a <= b;
    case ScalarOp::gt:
      return a > b;
    case ScalarOp::ge:
      return a >= b;
    case ScalarOp::shift_left:
      return b > 63 ? 0 : a << b;
    case ScalarOp::shift_right:
      return b > 63 ? 0 : a >> b;
    default:  // the same bits with a sign and without one
      return static_cast<uint64_t>(
          evaluate_scalar(op, static_cast<int64_t>(a), static_cast<int64_t>(b), static_cast<int64_t>(c)));
  }
}

int ScalarExpr::emit(ScalarOp op, int a, int b, int c) {
  Instruction next{.op = op, .a = a, .b = b, .c = c};
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == next) return static_cast<int>(i);
  }
  code.push_back(next);
  return static_cast<int>(code.size()) - 1;
}

int ScalarExpr::input(int index) {
  inputs = std::max(inputs, index + 1);
  return emit(ScalarOp::input, index);
}

int ScalarExpr::constant(double value) {
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i].op == ScalarOp::constant && std::bit_cast<uint64_t>(code[i].value) == std::bit_cast<uint64_t>(value)) {
      return static_cast<int>(i);
    }
  }
  code.push_back({.op = ScalarOp::constant, .value = value});
  return static_cast<int>(code.size()) - 1;
}

int ScalarExpr::cast(int a, DType type) {
  Instruction next{.op = ScalarOp::cast, .a = a, .type = type};
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == next) return static_cast<int>(i);
  }
  code.push_back(next);
  return static_cast<int>(code.size()) - 1;
}

std::string ScalarExpr::text() const {
  std::string out;
  for (size_t i = 0; i < code.size(); ++i) {
    const Instruction& in = code[i];
    if (i) out += "; ";
    if (in.op == ScalarOp::input) {
      out += cat("x", in.a);
    } else if (in.op == ScalarOp::constant) {
      out += number_text(in.value);
    } else if (in.op == ScalarOp::cast) {
      out += cat("cast(%", in.a, ",", dtype_name(in.type), ")");
    } else {
      const ScalarOpInfo& info = scalar_op_info(in.op);
      out += info.name;
      const int arguments[] = {in.a, in.b, in.c};
      for (int k = 0; k < info.arity; ++k) out += cat(k ? ",%" : "(%", arguments[k]);
      out += ")";
    }
  }
  out += " ->";
  for (size_t i = 0; i < outputs.size(); ++i) out += cat(i ? ", %" : " %", outputs[i]);
  return out;
}

Result<ScalarExpr> ScalarExpr::parse(std::string_view text) {
  const std::string_view source = text;
  auto bad = [&](std::string_view what) { return invalid("scalar expression ", shown(source, 200), ": ", what); };
  auto skip = [&] {
    while (!text.empty() && text[0] == ' ') text.remove_prefix(1);
  };
  auto take = [&](std::string_view token) {
    skip();
    if (!text.starts_with(token)) return false;
    text.remove_prefix(token.size());
    return true;
  };
  auto integer = [&](int& out) {
    auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (failure != std::errc{}) return false;
    text.remove_prefix(end - text.data());
    return true;
  };
  ScalarExpr expr;
  auto result = [&](int& out) {
    return take("%") && integer(out) && out >= 0 && out < static_cast<int>(expr.code.size());
  };
  for (bool first = true; !take("->"); first = false) {
    if (!first && !take(";")) return bad("expected ; or ->");
    skip();
    Instruction next{.op = ScalarOp::input};
    if (text.size() > 1 && text[0] == 'x' && text[1] >= '0' && text[1] <= '9') {
      text.remove_prefix(1);
      if (!integer(next.a) || next.a < 0 || next.a > 100000) return bad("a wrong input");
      expr.inputs = std::max(expr.inputs, next.a + 1);
    } else if (size_t open = text.find_first_of("(;"); open != std::string_view::npos && text[open] == '(') {
      const ScalarOp* op = find_scalar_op(text.substr(0, open));
      if (!op) return bad(cat("unknown operation ", text.substr(0, open)));
      text.remove_prefix(open + 1);
      next.op = *op;
      int* arguments[] = {&next.a, &next.b, &next.c};
      for (int k = 0; k < scalar_op_info(*op).arity; ++k) {
        if (k && !take(",")) return bad("expected ,");
        if (!result(*arguments[k])) return bad("expected an earlier result");
      }
      if (*op == ScalarOp::cast) {
        if (!take(",")) return bad("a cast names its type");
        const size_t close = text.find(')');
        if (close == std::string_view::npos) return bad("expected )");
        auto type = parse_dtype(text.substr(0, close));
        if (!type) return bad("a cast to an unknown type");
        next.type = *type;
        text.remove_prefix(close);
      }
      if (!take(")")) return bad("expected )");
    } else {
      next.op = ScalarOp::constant;
      auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), next.value);
      if (failure != std::errc{}) return bad("expected an instruction");
      text.remove_prefix(end - text.data());
    }
    expr.code.push_back(next);
  }
  do {
    int output;
    if (!result(output)) return bad("expected an output");
    expr.outputs.push_back(output);
  } while (take(","));
  skip();
  if (!text.empty()) return bad("text after the outputs");
  return expr;
}

namespace {

template <class T> void run(const ScalarExpr& expr, const T* in, T* out, T* values) {
  for (size_t i = 0; i < expr.code.size(); ++i) {
    const ScalarExpr::Instruction& x = expr.code[i];
    if (x.op == ScalarOp::input) {
      values[i] = in[x.a];
    } else if (x.op == ScalarOp::constant) {
      if constexpr (std::is_same_v<T, uint64_t>) {
        values[i] = x.value < 0 ? static_cast<T>(static_cast<int64_t>(x.value)) : static_cast<T>(x.value);
      } else {
        values[i] = static_cast<T>(x.value);
      }
    } else if (x.op == ScalarOp::cast) {
      if constexpr (std::is_same_v<T, double>) {
        const double value = values[x.a];  // any number but zero is true
        values[i] = round_to(x.type, is_float(x.type)           ? value
                                     : x.type == DType::boolean ? value != 0
                                                                : std::trunc(value));
      } else {
        values[i] = is_float(x.type) ? values[x.a] : static_cast<T>(wrap_to(x.type, static_cast<int64_t>(values[x.a])));
      }
    } else {
      auto argument = [&](int k) { return k < 0 ? T{} : values[k]; };
      if constexpr (std::is_same_v<T, uint64_t>) {
        values[i] = evaluate_unsigned(x.op, argument(x.a), argument(x.b), argument(x.c));
      } else {
        values[i] = evaluate_scalar(x.op, argument(x.a), argument(x.b), argument(x.c));
      }
    }
  }
  for (size_t i = 0; i < expr.outputs.size(); ++i) out[i] = values[expr.outputs[i]];
}

}  // namespace

void ScalarExpr::evaluate(const double* in, double* out, double* values) const { run(*this, in, out, values); }
void ScalarExpr::evaluate(const int64_t* in, int64_t* out, int64_t* values) const { run(*this, in, out, values); }
void ScalarExpr::evaluate(const uint64_t* in, uint64_t* out, uint64_t* values) const { run(*this, in, out, values); }

}  // namespace epl
