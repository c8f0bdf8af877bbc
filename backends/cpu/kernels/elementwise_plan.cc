// From a scalar expression to the steps of the elementwise engine. See elementwise.h.
#include <algorithm>
#include <cmath>
#include <optional>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/elementwise.h"

namespace epl::cpu {
namespace {

// Which conversion brings elements of memory into a value, and back.
struct Storage {
  bool whole;
  Conversion load, store;
};
std::optional<Storage> storage_of(DType type) {
  using enum Conversion;
  switch (type) {
    case DType::f32:
      return Storage{false, copy_real, copy_real};
    case DType::boolean:
      return Storage{false, truth_to_real, real_to_truth};
    case DType::i64:
      return Storage{true, copy_whole, copy_whole};
    case DType::i8:
      return Storage{true, i8_to_whole, whole_to_i8};
    case DType::i16:
      return Storage{true, i16_to_whole, whole_to_i16};
    case DType::i32:
      return Storage{true, i32_to_whole, whole_to_i32};
    case DType::u8:
      return Storage{true, u8_to_whole, whole_to_u8};
    case DType::u16:
      return Storage{true, u16_to_whole, whole_to_u16};
    case DType::u32:
      return Storage{true, u32_to_whole, whole_to_u32};
    default:
      return std::nullopt;
  }
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
ElementwisePlan::Layout layout_of(const Shape& input, const Shape& output) {
  ElementwisePlan::Layout layout;
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

bool is_comparison(ScalarOp op) { return op >= ScalarOp::eq && op <= ScalarOp::ge; }
bool is_logical(ScalarOp op) { return op >= ScalarOp::logical_and && op <= ScalarOp::logical_not; }
bool is_bitwise(ScalarOp op) { return op >= ScalarOp::bit_and && op <= ScalarOp::shift_right; }

}  // namespace

class PlanBuilder {
 public:
  PlanBuilder(const ScalarExpr& expression, const std::vector<TensorType>& inputs,
              const std::vector<TensorType>& outputs)
      : expression_(expression), input_types_(inputs), output_types_(outputs), lanes_(EPL_CPU_CHOOSE(lane_table)()) {}

  std::unique_ptr<ElementwisePlan> build(std::string* reason) {
    plan_ = std::make_unique<ElementwisePlan>();
    bool ok = set_up() && translate() && store_outputs();
    if (!ok) {
      *reason = reason_;
      return nullptr;
    }
    pair_steps();
    measure_lives();
    assign_slots();
    choose_tile();
    return std::move(plan_);
  }

 private:
  using Plan = ElementwisePlan;
  using Kind = Plan::Kind;

  bool refuse(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }

  bool set_up() {
    if (cpu_level() == CpuLevel::none) return refuse("a processor without AVX2");
    if (output_types_.size() > 64) return refuse("more than 64 outputs");
    if (output_types_.empty() || expression_.outputs.size() != output_types_.size())
      return refuse("outputs do not fit");
    if (expression_.inputs > static_cast<int>(input_types_.size())) return refuse("too few inputs");
    const Shape& shape = output_types_[0].shape;
    plan_->elements_ = output_types_[0].elements();
    for (const TensorType& type : output_types_) {
      if (type.shape != shape) return refuse("outputs of different shapes");
    }
    for (const TensorType& type : input_types_) {
      auto storage = storage_of(type.dtype);
      if (!storage) return refuse(cat("an operand of type ", dtype_name(type.dtype)));
      if (!broadcasts_to(type.shape, shape)) return refuse("an operand that does not broadcast to the output");
      Plan::Input input{.layout = layout_of(type.shape, shape), .bytes = static_cast<int>(dtype_bytes(type.dtype))};
      input.in_place = storage->load == Conversion::copy_real || storage->load == Conversion::copy_whole;
      plan_->inputs_.push_back(std::move(input));
    }
    return true;
  }

  int add_value(Plan::Value value) {
    plan_->values_.push_back(value);
    return static_cast<int>(plan_->values_.size()) - 1;
  }
  Plan::Value& value(int v) { return plan_->values_[v]; }

  int add_step(Kind kind, int index, std::initializer_list<int> arguments, Plan::Value result) {
    Plan::Step step{.kind = kind, .index = index};
    result.uniform = true;
    std::ranges::copy(arguments, step.arguments);
    for (int a : arguments) result.uniform &= value(a).uniform;
    step.result = add_value(result);
    (result.uniform ? plan_->uniform_steps_ : plan_->steps_).push_back(step);
    return step.result;
  }
  int convert(Conversion conversion, int v, Plan::Value result) {
    return add_step(Kind::convert, static_cast<int>(conversion), {v}, result);
  }
  int constant(double number, bool whole) {
    return add_value({.whole = whole, .uniform = true, .constant = true, .number = number});
  }

  int as_real(int v) {
    if (value(v).constant) return value(v).whole ? constant(value(v).number, false) : v;
    return value(v).whole ? convert(Conversion::whole_to_real, v, {}) : v;
  }
  int as_whole(int v) {
    if (value(v).constant) return value(v).whole ? v : constant(std::trunc(value(v).number), true);
    return value(v).whole ? v : convert(Conversion::real_to_whole, v, {.whole = true});
  }
  int as_truth(int v) {
    if (value(v).constant) return constant(value(v).number != 0, false);
    if (value(v).truth) return v;
    if (value(v).whole) return convert(Conversion::whole_to_truth_real, v, {.truth = true});
    return add_step(Kind::real, static_cast<int>(ScalarOp::ne), {v, constant(0, false)}, {.truth = true});
  }

  int load(int input) {
    const TensorType& type = input_types_[input];
    Storage storage = *storage_of(type.dtype);
    Plan::Step step{.kind = Kind::load, .index = static_cast<int>(storage.load), .arguments = {input, -1, -1}};
    bool uniform = type.elements() == 1 && plan_->elements_ != 1;
    step.result = add_value({.whole = storage.whole, .truth = type.dtype == DType::boolean, .uniform = uniform});
    (uniform ? plan_->uniform_steps_ : plan_->steps_).push_back(step);
    return step.result;
  }

  bool translate() {
    for (size_t i = 0; i < expression_.code.size(); ++i) {
      const ScalarExpr::Instruction& x = expression_.code[i];
      int v = -1;
      if (x.op == ScalarOp::input) {
        v = load(x.a);
      } else if (x.op == ScalarOp::constant) {
        v = constant(x.value, false);
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
    if (type == DType::f32) return as_real(v);
    if (type == DType::boolean) return as_truth(v);
    auto storage = storage_of(type);
    if (!storage) return refuse(cat("a cast to ", dtype_name(type))), -1;
    bool was_whole = value(v).whole;
    int w = as_whole(v);
    if (type == DType::i64) return w;
    if (was_whole) {  // wraps, as storing does
      int narrow = convert(storage->store, w, {.whole = true});
      return convert(storage->load, narrow, {.whole = true});
    }
    Range range = range_of(type);
    int low = add_step(Kind::whole, static_cast<int>(ScalarOp::max), {w, constant(range.low, true)}, {.whole = true});
    return add_step(Kind::whole, static_cast<int>(ScalarOp::min), {low, constant(range.high, true)}, {.whole = true});
  }

  bool is_integral_constant(int v) { return value(v).constant && std::trunc(value(v).number) == value(v).number; }

  // Whether an operation on these operands is one of integers.
  bool runs_whole(ScalarOp op, std::initializer_list<int> arguments) {
    if (is_bitwise(op)) return true;
    if (is_logical(op) || !lanes_.whole[static_cast<int>(op)][0]) return false;
    bool any = false;
    for (int a : arguments) {
      any |= value(a).whole && !value(a).constant;
      if (!value(a).whole && !value(a).truth && !is_integral_constant(a)) return false;
    }
    return any;
  }

  int operation(const ScalarExpr::Instruction& x) {
    int arity = scalar_op_info(x.op).arity;
    int index = static_cast<int>(x.op);
    int a = value_of_[x.a], b = arity > 1 ? value_of_[x.b] : -1, c = arity > 2 ? value_of_[x.c] : -1;
    if (x.op == ScalarOp::select) {
      a = as_truth(a);
      if (runs_whole(x.op, {b, c}))
        return add_step(Kind::whole, index, {as_whole(a), as_whole(b), as_whole(c)}, {.whole = true});
      bool truth = value(b).truth && value(c).truth;
      return add_step(Kind::real, index, {a, as_real(b), as_real(c)}, {.truth = truth});
    }
    if (x.op == ScalarOp::pow && value(b).constant) {
      if (int y = small_power(as_real(a), value(b).number); y >= 0) return y;
    }
    bool truth = scalar_op_info(x.op).truth;
    bool whole = arity == 1   ? runs_whole(x.op, {a})
                 : arity == 2 ? runs_whole(x.op, {a, b})
                              : runs_whole(x.op, {a, b, c});
    if (!whole && !lanes_.real[index][0]) return refuse(cat("the operation ", scalar_op_info(x.op).name)), -1;
    auto bring = [&](int v) { return whole ? as_whole(v) : is_logical(x.op) ? as_truth(v) : as_real(v); };
    Plan::Value result{.whole = whole && !is_comparison(x.op), .truth = truth};
    Kind kind = whole ? Kind::whole : Kind::real;
    if (arity == 1) return add_step(kind, index, {bring(a)}, result);
    if (arity == 2) return add_step(kind, index, {bring(a), bring(b)}, result);
    return add_step(kind, index, {bring(a), bring(b), bring(c)}, result);
  }

  // x^p by products and square roots; -1 where p is not one of these.
  int small_power(int x, double p) {
    auto real = [&](ScalarOp op, std::initializer_list<int> arguments) {
      return add_step(Kind::real, static_cast<int>(op), arguments, {});
    };
    if (p == 1) return x;
    if (p == 2) return real(ScalarOp::mul, {x, x});
    if (p == 3) return real(ScalarOp::mul, {real(ScalarOp::mul, {x, x}), x});
    if (p == 0.5) return real(ScalarOp::sqrt, {x});
    if (p == -0.5) return real(ScalarOp::reciprocal, {real(ScalarOp::sqrt, {x})});
    if (p == -1) return real(ScalarOp::reciprocal, {x});
    return -1;
  }

  bool store_outputs() {
    for (size_t o = 0; o < output_types_.size(); ++o) {
      auto storage = storage_of(output_types_[o].dtype);
      if (!storage) return refuse(cat("a result of type ", dtype_name(output_types_[o].dtype)));
      int v = value_of_[expression_.outputs[o]];
      v = storage->whole ? as_whole(v) : output_types_[o].dtype == DType::boolean ? as_truth(v) : as_real(v);
      Plan::Output output{.value = v,
                          .bytes = static_cast<int>(dtype_bytes(output_types_[o].dtype)),
                          .conversion = static_cast<int>(storage->store)};
      bool copies = storage->store == Conversion::copy_real || storage->store == Conversion::copy_whole;
      bool computed = std::ranges::any_of(plan_->steps_,
                                          [&](const Plan::Step& s) { return s.result == v && s.kind != Kind::load; });
      if (copies && computed && value(v).output < 0) value(v).output = static_cast<int>(o);
      plan_->outputs_.push_back(output);
    }
    return true;
  }

  // Replaces a product (or sum) that feeds one other step by one lane that does both.
  void pair_steps() {
    std::vector<int> uses(plan_->values_.size(), 0);
    for (const Plan::Step& s : plan_->steps_) {
      if (s.kind == Kind::load) continue;
      for (int a : s.arguments) uses[std::max(a, 0)] += a >= 0;
    }
    for (const Plan::Output& o : plan_->outputs_) ++uses[o.value];
    std::vector<int> maker(plan_->values_.size(), -1);
    std::vector<bool> gone(plan_->steps_.size(), false);
    for (size_t i = 0; i < plan_->steps_.size(); ++i) {
      Plan::Step& s = plan_->steps_[i];
      maker[s.result] = static_cast<int>(i);
      if (s.kind != Kind::real) continue;
      for (int k = 0; k < 2; ++k) {
        int v = s.arguments[k];
        if (v < 0 || uses[v] != 1 || maker[v] < 0) continue;
        const Plan::Step& inner = plan_->steps_[maker[v]];
        auto pair = inner.kind == Kind::real
                        ? pair_of(static_cast<ScalarOp>(inner.index), static_cast<ScalarOp>(s.index), k)
                        : std::nullopt;
        if (!pair) continue;
        gone[maker[v]] = true;
        s = {.kind = Kind::pair,
             .index = static_cast<int>(*pair),
             .arguments = {inner.arguments[0], inner.arguments[1], s.arguments[1 - k]},
             .result = s.result};
        break;
      }
    }
    size_t kept = 0;
    for (size_t i = 0; i < plan_->steps_.size(); ++i) {
      if (!gone[i]) plan_->steps_[kept++] = plan_->steps_[i];
    }
    plan_->steps_.resize(kept);
  }

  // The pair for outer(inner(a, b), c) if place is 0, outer(c, inner(a, b)) if it is 1.
  static std::optional<Pair> pair_of(ScalarOp inner, ScalarOp outer, int place) {
    if (inner == ScalarOp::mul && outer == ScalarOp::add) return Pair::mul_add;
    if (inner == ScalarOp::mul && outer == ScalarOp::sub) return place == 0 ? Pair::mul_sub : Pair::mul_rsub;
    if (outer != ScalarOp::mul) return std::nullopt;
    if (inner == ScalarOp::add) return Pair::add_mul;
    if (inner == ScalarOp::sub) return Pair::sub_mul;
    if (inner == ScalarOp::mul) return Pair::mul_mul;
    return std::nullopt;
  }

  void measure_lives() {
    int end = static_cast<int>(plan_->steps_.size());
    for (int i = 0; i < end; ++i) {
      const Plan::Step& s = plan_->steps_[i];
      value(s.result).defined = i;
      if (s.kind == Kind::load) continue;
      for (int a : s.arguments) {
        if (a >= 0) value(a).last_use = i;
      }
    }
    for (const Plan::Output& o : plan_->outputs_) value(o.value).last_use = end;
    for (const Plan::Step& s : plan_->steps_) {
      if (s.kind == Kind::load) {
        int& last = plan_->inputs_[s.arguments[0]].last_use;
        last = std::max(last, value(s.result).last_use);
      }
    }
  }

  void assign_slots() {
    std::vector<int> free;
    std::vector<std::vector<int>> dying(plan_->steps_.size() + 1);
    for (size_t i = 0; i < plan_->steps_.size(); ++i) {
      const Plan::Step& s = plan_->steps_[i];
      Plan::Value& v = value(s.result);
      bool none =
          s.kind == Kind::load && plan_->inputs_[s.arguments[0]].in_place && plan_->inputs_[s.arguments[0]].layout.full;
      // A lane may write over its operands, if elements are of one size: then a slot that dies here serves again.
      bool same_size = s.kind == Kind::real || s.kind == Kind::pair;
      if (same_size) free.insert(free.end(), dying[i].begin(), dying[i].end());
      if (!none) {
        if (free.empty()) free.push_back(plan_->slots_++);
        v.slot = free.back();
        free.pop_back();
        if (v.last_use >= 0) dying[v.last_use].push_back(v.slot);
      }
      if (!same_size) free.insert(free.end(), dying[i].begin(), dying[i].end());
    }
    for (const Plan::Value& v : plan_->values_) {
      if (v.whole) plan_->element_bytes_ = 8;
    }
  }

  // Tiles that divide the rows of broadcast operands let those be read where they are. Scratch, this tile's operands
  // and the next one's, which the processor fetches ahead, stay within 24 KiB of the first-level cache.
  void choose_tile() {
    int64_t most = 1024;
    int64_t streams =
        std::ranges::count_if(plan_->inputs_, [](const Plan::Input& in) { return in.in_place && in.layout.full; });
    while (most > 256 && most * (plan_->element_bytes_ * plan_->slots_ + 8 * streams) > 24576) most /= 2;
    plan_->tile_ = most;
    for (const Plan::Input& input : plan_->inputs_) {
      int64_t row = input.layout.sizes.back();
      if (input.layout.full || row < 256) continue;
      for (int64_t tile = most; tile >= most / 2; tile -= 16) {
        if (row % tile == 0) {
          plan_->tile_ = tile;
          return;
        }
      }
    }
  }

  const ScalarExpr& expression_;
  const std::vector<TensorType>& input_types_;
  const std::vector<TensorType>& output_types_;
  const LaneTable& lanes_;
  std::unique_ptr<Plan> plan_;
  std::vector<int> value_of_;  // of each instruction
  std::string reason_;
};

std::unique_ptr<const ElementwisePlan> ElementwisePlan::make(const ScalarExpr& expression,
                                                             const std::vector<TensorType>& inputs,
                                                             const std::vector<TensorType>& outputs,
                                                             std::string* reason) {
  return PlanBuilder(expression, inputs, outputs).build(reason);
}

}  // namespace epl::cpu
