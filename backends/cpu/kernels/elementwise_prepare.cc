// From a scalar expression to the steps of the elementwise engine. See elementwise.h.
#include <algorithm>
#include <cmath>
#include <optional>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/elementwise.h"

namespace epl::cpu {
namespace {

// An output of so many bytes has left the first two caches before anybody reads it.
constexpr int64_t far_bytes = int64_t{4} << 20;

bool is_integer_class(ElementClass c) { return c == ElementClass::integer; }

// The class that computes with elements of a type; `real` is that of the region's reals. Nothing computes with u64.
std::optional<ElementClass> class_of(DType type, ElementClass real) {
  if (type == DType::u64) return std::nullopt;
  return is_integer(type) ? ElementClass::integer : real;
}
// Whether memory holds what loops of the class read.
bool is_class_itself(DType type, ElementClass c) {
  return type == (c == ElementClass::real32 ? DType::f32 : c == ElementClass::real64 ? DType::f64 : DType::i64);
}

// The class of a region's reals: the wider wherever a float64 is read, made on the way or written.
ElementClass real_class(const ScalarExpr& expression, const std::vector<TensorType>& inputs,
                        const std::vector<TensorType>& outputs) {
  bool wide = false;
  for (const TensorType& type : inputs) wide |= type.dtype == DType::f64;
  for (const TensorType& type : outputs) wide |= type.dtype == DType::f64;
  for (const auto& x : expression.code) wide |= x.op == ScalarOp::cast && x.type == DType::f64;
  return wide ? ElementClass::real64 : ElementClass::real32;
}

struct Range {
  double low, high;
};
Range range_of(DType type) {
  int bits = static_cast<int>(8 * dtype_bytes(type));
  bool is_signed = type == DType::i8 || type == DType::i16 || type == DType::i32;
  return is_signed ? Range{-std::ldexp(1.0, bits - 1), std::ldexp(1.0, bits - 1) - 1}
                   : Range{0, std::ldexp(1.0, bits) - 1};
}

// Merges the output's dimensions wherever the input walks them as one.
PreparedElementwise::Layout layout_of(const Shape& input, const Shape& output) {
  PreparedElementwise::Layout layout;
  Shape strides(output.size(), 0), own = row_major_strides(input);
  size_t shift = output.size() - input.size();
  for (size_t d = 0; d < input.size(); ++d) strides[d + shift] = input[d] == 1 ? 0 : own[d];
  for (size_t d = 0; d < output.size(); ++d) {
    if (output[d] == 1) continue;
    if (!layout.sizes.empty() && layout.strides.back() == strides[d] * output[d]) {
      layout.sizes.back() *= output[d];
      layout.strides.back() = strides[d];
    } else {
      layout.sizes.push_back(output[d]);
      layout.strides.push_back(strides[d]);
    }
  }
  if (layout.sizes.empty()) layout = {.full = true, .sizes = {1}, .strides = {1}};
  layout.full = layout.sizes.size() == 1 && layout.strides[0] == 1;
  return layout;
}

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.size() > to.size()) return false;
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != 1 && from[d] != to[to.size() - from.size() + d]) return false;
  }
  return true;
}

bool is_of(ScalarOp op, ScalarFamily family) { return scalar_op_info(op).family == family; }

}  // namespace

class PlanBuilder {
 public:
  PlanBuilder(const ScalarExpr& expression, const std::vector<TensorType>& inputs,
              const std::vector<TensorType>& outputs, PreparedElementwise::Tiles tiles)
      : expression_(expression),
        input_types_(inputs),
        output_types_(outputs),
        tiles_(tiles),
        loops_(EPL_CPU_CHOOSE(tile_loop_table)()) {}

  std::unique_ptr<PreparedElementwise> build(std::string* reason) {
    made_ = std::make_unique<PreparedElementwise>();
    bool ok = set_up() && translate() && store_outputs();
    if (!ok) {
      *reason = reason_;
      return nullptr;
    }
    pair_steps();
    measure_lives();
    assign_slots();
    choose_tile();
    return std::move(made_);
  }

 private:
  using Made = PreparedElementwise;
  using Kind = Made::Kind;

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool set_up() {
    if (cpu_level() == CpuLevel::none) return refuse("a processor without AVX2");
    if (output_types_.size() > Made::max_results) return refuse(cat("more than ", Made::max_results, " outputs"));
    if (output_types_.empty() || expression_.outputs.size() != output_types_.size())
      return refuse("outputs do not fit");
    if (expression_.inputs > static_cast<int>(input_types_.size())) return refuse("too few inputs");
    const Shape& shape = output_types_[0].shape;
    made_->elements_ = output_types_[0].elements();
    for (const TensorType& type : output_types_) {
      if (type.shape != shape) return refuse("outputs of different shapes");
    }
    real_ = real_class(expression_, input_types_, output_types_);
    for (const TensorType& type : input_types_) {
      const auto own = class_of(type.dtype, real_);
      if (!own) return refuse(cat("an operand of type ", dtype_name(type.dtype)));
      if (!broadcasts_to(type.shape, shape)) return refuse("an operand that does not broadcast to the output");
      Made::Input input{.layout = layout_of(type.shape, shape), .bytes = static_cast<int>(dtype_bytes(type.dtype))};
      input.in_place = is_class_itself(type.dtype, *own);
      made_->inputs_.push_back(std::move(input));
    }
    return true;
  }

  int add_value(Made::Value value) {
    made_->values_.push_back(value);
    return static_cast<int>(made_->values_.size()) - 1;
  }
  Made::Value& value(int v) { return made_->values_[v]; }

  int add_step(Kind kind, int row, std::initializer_list<int> arguments, Made::Value result) {
    Made::Step step{.kind = kind, .row = row};
    result.uniform = true;
    std::ranges::copy(arguments, step.arguments);
    for (int a : arguments) result.uniform &= value(a).uniform;
    step.result = add_value(result);
    (result.uniform ? made_->uniform_steps_ : made_->steps_).push_back(step);
    return step.result;
  }
  int real_step(ScalarOp op, std::initializer_list<int> arguments, bool truth = false) {
    return add_step(Kind::real, real_row(real_, op), arguments, {.type = real_, .truth = truth});
  }
  int integer_step(ScalarOp op, std::initializer_list<int> arguments) {
    return add_step(Kind::integer, integer_row(real_, op), arguments, {.type = ElementClass::integer});
  }
  // As memory of a type would hold it, and back.
  int through(DType type, int v) {
    const ElementClass own = value(v).type;
    const int stored = add_step(Kind::convert, store_row(own, type), {v}, {.type = own});
    return add_step(Kind::convert, load_row(type, own), {stored}, {.type = own});
  }
  int constant(double number, ElementClass type) {
    return add_value({.type = type, .uniform = true, .constant = true, .number = number});
  }

  int as_real(int v) {
    if (value(v).constant) return constant(value(v).number, real_);
    if (value(v).type == real_) return v;
    return add_step(Kind::convert, convert_row(ElementClass::integer, real_), {v}, {.type = real_});
  }
  int as_integer(int v) {
    if (value(v).type == ElementClass::integer) return v;
    if (value(v).constant) return constant(std::trunc(value(v).number), ElementClass::integer);
    return add_step(Kind::convert, convert_row(real_, ElementClass::integer), {v}, {.type = ElementClass::integer});
  }
  int as_truth(int v) {
    if (value(v).constant) return constant(value(v).number != 0, real_);
    if (value(v).truth) return v;
    if (value(v).type == real_) return real_step(ScalarOp::ne, {v, constant(0, real_)}, true);
    return add_step(Kind::convert, truth_row(real_), {v}, {.type = real_, .truth = true});
  }

  int load(int input) {
    const TensorType& type = input_types_[input];
    const ElementClass own = *class_of(type.dtype, real_);
    Made::Step step{.kind = Kind::load, .row = load_row(type.dtype, own), .arguments = {input, -1, -1}};
    bool uniform = type.elements() == 1 && made_->elements_ != 1;
    step.result = add_value({.type = own, .truth = type.dtype == DType::boolean, .uniform = uniform});
    (uniform ? made_->uniform_steps_ : made_->steps_).push_back(step);
    return step.result;
  }

  bool translate() {
    for (size_t i = 0; i < expression_.code.size(); ++i) {
      const ScalarExpr::Instruction& x = expression_.code[i];
      int v = -1;
      if (x.op == ScalarOp::input) {
        v = load(x.a);
      } else if (x.op == ScalarOp::constant) {
        v = constant(x.value, real_);
      } else if (x.op == ScalarOp::cast) {
        v = cast(value_of_[x.a], x.type);
      } else {
        v = operation(x);
      }
      if (v < 0) return false;
      value_of_.push_back(v);
    }
    return true;
  }

  int cast(int v, DType type) {
    if (type == DType::boolean) return as_truth(v);
    const auto to = class_of(type, real_);
    if (!to) return refuse(cat("a cast to ", dtype_name(type))), -1;
    if (is_float(type)) return is_class_itself(type, real_) ? as_real(v) : through(type, as_real(v));
    const bool was_integer = is_integer_class(value(v).type);
    const int w = as_integer(v);
    if (type == DType::i64) return w;
    if (was_integer) return through(type, w);  // wraps, as storing does
    Range range = range_of(type);
    const int low = integer_step(ScalarOp::max, {w, constant(range.low, ElementClass::integer)});
    return integer_step(ScalarOp::min, {low, constant(range.high, ElementClass::integer)});
  }

  bool is_integral_constant(int v) { return value(v).constant && std::trunc(value(v).number) == value(v).number; }

  // Whether an operation on these operands is one of integers.
  bool runs_on_integers(ScalarOp op, std::initializer_list<int> arguments) {
    if (is_of(op, ScalarFamily::bits)) return true;
    if (is_of(op, ScalarFamily::logic) || !loops_.loops[integer_row(real_, op)][0]) return false;
    bool any = false;
    for (int a : arguments) {
      const bool integer = is_integer_class(value(a).type);
      any |= integer && !value(a).constant;
      if (!integer && !value(a).truth && !is_integral_constant(a)) return false;
    }
    return any;
  }

  int operation(const ScalarExpr::Instruction& x) {
    int arity = scalar_op_info(x.op).arity;
    int a = value_of_[x.a], b = arity > 1 ? value_of_[x.b] : -1, c = arity > 2 ? value_of_[x.c] : -1;
    if (x.op == ScalarOp::select) {
      a = as_truth(a);
      if (runs_on_integers(x.op, {b, c})) return integer_step(x.op, {as_integer(a), as_integer(b), as_integer(c)});
      const bool truth = value(b).truth && value(c).truth;
      return real_step(x.op, {a, as_real(b), as_real(c)}, truth);
    }
    if (x.op == ScalarOp::pow && value(b).constant && !runs_on_integers(x.op, {a, b})) {
      if (int y = small_power(as_real(a), value(b).number); y >= 0) return y;
    }
    const bool integer = arity == 1   ? runs_on_integers(x.op, {a})
                         : arity == 2 ? runs_on_integers(x.op, {a, b})
                                      : runs_on_integers(x.op, {a, b, c});
    const int row = integer ? integer_row(real_, x.op) : real_row(real_, x.op);
    if (!loops_.loops[row][0]) return refuse(cat("the operation ", scalar_op_info(x.op).name)), -1;
    auto bring = [&](int v) {
      return integer ? as_integer(v) : is_of(x.op, ScalarFamily::logic) ? as_truth(v) : as_real(v);
    };
    const bool stays = integer && !is_of(x.op, ScalarFamily::comparison);
    Made::Value result{.type = stays ? ElementClass::integer : real_, .truth = scalar_op_info(x.op).truth()};
    Kind kind = integer ? Kind::integer : Kind::real;
    if (arity == 1) return add_step(kind, row, {bring(a)}, result);
    if (arity == 2) return add_step(kind, row, {bring(a), bring(b)}, result);
    return add_step(kind, row, {bring(a), bring(b), bring(c)}, result);
  }

  // x^p by products and square roots; -1 where p is not one of these.
  int small_power(int x, double p) {
    if (p == 1) return x;
    if (p == 2) return real_step(ScalarOp::mul, {x, x});
    if (p == 3) return real_step(ScalarOp::mul, {real_step(ScalarOp::mul, {x, x}), x});
    if (p == 0.5) return real_step(ScalarOp::sqrt, {x});
    if (p == -0.5) return real_step(ScalarOp::reciprocal, {real_step(ScalarOp::sqrt, {x})});
    if (p == -1) return real_step(ScalarOp::reciprocal, {x});
    return -1;
  }

  bool store_outputs() {
    for (size_t o = 0; o < output_types_.size(); ++o) {
      const DType type = output_types_[o].dtype;
      const auto own = class_of(type, real_);
      if (!own) return refuse(cat("a result of type ", dtype_name(type)));
      int v = value_of_[expression_.outputs[o]];
      v = type == DType::boolean ? as_truth(v) : is_integer_class(*own) ? as_integer(v) : as_real(v);
      bool computed = std::ranges::any_of(made_->steps_,
                                          [&](const Made::Step& s) { return s.result == v && s.kind != Kind::load; });
      if (is_class_itself(type, *own) && computed && value(v).output < 0) value(v).output = static_cast<int>(o);
      const bool streams = type == DType::f32 && real_ == ElementClass::real32 && output_types_[o].bytes() >= far_bytes;
      made_->outputs_.push_back(
          {.value = v, .bytes = static_cast<int>(dtype_bytes(type)), .row = store_row(*own, type), .streams = streams});
    }
    return true;
  }

  // Replaces a product (or sum) that feeds one other step by one loop that does both.
  void pair_steps() {
    std::vector<int> uses(made_->values_.size(), 0);
    for (const Made::Step& s : made_->steps_) {
      if (s.kind == Kind::load) continue;
      for (int a : s.arguments) uses[std::max(a, 0)] += a >= 0;
    }
    for (const Made::Output& o : made_->outputs_) ++uses[o.value];
    std::vector<int> maker(made_->values_.size(), -1);
    std::vector<bool> gone(made_->steps_.size(), false);
    for (size_t i = 0; i < made_->steps_.size(); ++i) {
      Made::Step& s = made_->steps_[i];
      maker[s.result] = static_cast<int>(i);
      if (s.kind != Kind::real) continue;
      for (int k = 0; k < 2; ++k) {
        int v = s.arguments[k];
        if (v < 0 || uses[v] != 1 || maker[v] < 0) continue;
        const Made::Step& inner = made_->steps_[maker[v]];
        auto pair = inner.kind == Kind::real ? pair_of(op_of(inner), op_of(s), k) : std::nullopt;
        if (!pair) continue;
        gone[maker[v]] = true;
        s = {.kind = Kind::pair,
             .row = pair_row(real_, *pair),
             .arguments = {inner.arguments[0], inner.arguments[1], s.arguments[1 - k]},
             .result = s.result};
        break;
      }
    }
    size_t kept = 0;
    for (size_t i = 0; i < made_->steps_.size(); ++i) {
      if (!gone[i]) made_->steps_[kept++] = made_->steps_[i];
    }
    made_->steps_.resize(kept);
  }

  ScalarOp op_of(const Made::Step& s) const { return static_cast<ScalarOp>(s.row - real_row(real_, ScalarOp{})); }

  // The pair for outer(inner(a, b), c) if operand is 0, outer(c, inner(a, b)) if it is 1.
  static std::optional<Pair> pair_of(ScalarOp inner, ScalarOp outer, int operand) {
    if (inner == ScalarOp::mul && outer == ScalarOp::add) return Pair::mul_add;
    if (inner == ScalarOp::mul && outer == ScalarOp::sub) return operand == 0 ? Pair::mul_sub : Pair::mul_rsub;
    if (outer != ScalarOp::mul) return std::nullopt;
    if (inner == ScalarOp::add) return Pair::add_mul;
    if (inner == ScalarOp::sub) return Pair::sub_mul;
    if (inner == ScalarOp::mul) return Pair::mul_mul;
    return std::nullopt;
  }

  void measure_lives() {
    int end = static_cast<int>(made_->steps_.size());
    for (int i = 0; i < end; ++i) {
      const Made::Step& s = made_->steps_[i];
      value(s.result).defined = i;
      if (s.kind == Kind::load) continue;
      for (int a : s.arguments) {
        if (a >= 0) value(a).last_use = i;
      }
    }
    for (const Made::Output& o : made_->outputs_) value(o.value).last_use = end;
    for (const Made::Step& s : made_->steps_) {
      if (s.kind == Kind::load) {
        int& last = made_->inputs_[s.arguments[0]].last_use;
        last = std::max(last, value(s.result).last_use);
      }
    }
  }

  void assign_slots() {
    std::vector<int> free;
    std::vector<std::vector<int>> dying(made_->steps_.size() + 1);
    for (size_t i = 0; i < made_->steps_.size(); ++i) {
      const Made::Step& s = made_->steps_[i];
      Made::Value& v = value(s.result);
      bool none =
          s.kind == Kind::load && made_->inputs_[s.arguments[0]].in_place && made_->inputs_[s.arguments[0]].layout.full;
      // A loop may write over its operands, if elements are of one size: then a slot that dies here serves again.
      bool same_size = s.kind == Kind::real || s.kind == Kind::pair;
      if (same_size) free.insert(free.end(), dying[i].begin(), dying[i].end());
      if (!none) {
        if (free.empty()) free.push_back(made_->slots_++);
        v.slot = free.back();
        free.pop_back();
        if (v.last_use >= 0) dying[v.last_use].push_back(v.slot);
      }
      if (!same_size) free.insert(free.end(), dying[i].begin(), dying[i].end());
    }
    for (const Made::Value& v : made_->values_) {
      made_->element_bytes_ = std::max(made_->element_bytes_, class_bytes(v.type));
    }
  }

  // Tiles that divide the rows of broadcast operands let those be read where they are. Scratch, this tile's operands
  // and the next one's, which the processor fetches ahead, stay within 24 KiB of the first-level cache.
  void choose_tile() {
    int64_t max_tile = 1024;
    int64_t streams =
        std::ranges::count_if(made_->inputs_, [](const Made::Input& in) { return in.in_place && in.layout.full; });
    while (max_tile > 256 &&
           max_tile * (made_->element_bytes_ * made_->slots_ + 2 * class_bytes(real_) * streams) > 24576)
      max_tile /= 2;
    made_->tile_ = max_tile;
    if (tiles_ == Made::Tiles::of_powers) return;
    for (const Made::Input& input : made_->inputs_) {
      int64_t row = input.layout.sizes.back();
      if (input.layout.full || row < 256) continue;
      for (int64_t tile = max_tile; tile >= max_tile / 2; tile -= 16) {
        if (row % tile == 0) {
          made_->tile_ = tile;
          return;
        }
      }
    }
  }

  const ScalarExpr& expression_;
  const std::vector<TensorType>& input_types_;
  const std::vector<TensorType>& output_types_;
  const Made::Tiles tiles_;
  const TileLoopTable& loops_;
  std::unique_ptr<Made> made_;
  ElementClass real_ = ElementClass::real32;
  std::vector<int> value_of_;  // of each instruction
  std::string reason_;
};

std::unique_ptr<const PreparedElementwise> PreparedElementwise::make(const ScalarExpr& expression,
                                                                     const std::vector<TensorType>& inputs,
                                                                     const std::vector<TensorType>& outputs,
                                                                     std::string* reason, Tiles tiles) {
  return PlanBuilder(expression, inputs, outputs, tiles).build(reason);
}

}  // namespace epl::cpu
