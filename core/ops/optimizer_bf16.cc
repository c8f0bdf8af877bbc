// The steps of optimizers whose states are stored in bf16. A state is widened, the step is computed in the parameter's
// type as without this, and the new state is rounded once, at random (core/base/random_rounding.h).
//
// Where an element stands in the full tensor is data: two operands that broadcast hold the numbers of its row and of
// its column, and are cut as any other operand. So the op is elementwise for all who cut it, and an element rounds
// alike under every layout.
#include <cmath>
#include <string>
#include <vector>

#include "core/base/random_rounding.h"
#include "core/base/update_options.h"
#include "core/ir/op.h"

namespace epl {
namespace {

// A number of the reference: each operation rounds to T.
template <class T> struct Number {
  T value = 0;
};
template <class T> Number<T> operator+(Number<T> a, Number<T> b) { return {a.value + b.value}; }
template <class T> Number<T> operator-(Number<T> a, Number<T> b) { return {a.value - b.value}; }
template <class T> Number<T> operator*(Number<T> a, Number<T> b) { return {a.value * b.value}; }
template <class T> Number<T> operator/(Number<T> a, Number<T> b) { return {a.value / b.value}; }
template <class T> Number<T> operator*(double a, Number<T> b) { return {static_cast<T>(a) * b.value}; }
template <class T> Number<T> operator/(double a, Number<T> b) { return {static_cast<T>(a) / b.value}; }
template <class T> Number<T> operator+(Number<T> a, double b) { return {a.value + static_cast<T>(b)}; }
template <class T> Number<T> operator-(double a, Number<T> b) { return {static_cast<T>(a) - b.value}; }
template <class T> Number<T> root(Number<T> a) { return {std::sqrt(a.value)}; }

// Where the operands stand.
template <class Step> struct StoredOperands {
  static constexpr int state = 2, scalar = state + Step::states, rows = scalar + Step::scalars, columns = rows + 1,
                       key = columns + 1, count = key + 1;
};

// Whether the first dimensions of the shape are those of `rows`, and the others those of `columns`.
bool spans(const Shape& shape, const Shape& rows, const Shape& columns) {
  if (rows.size() != shape.size() || columns.size() != shape.size()) return false;
  for (size_t k = 0; k <= shape.size(); ++k) {
    bool fits = true;
    for (size_t d = 0; d < shape.size(); ++d)
      fits = fits && rows[d] == (d < k ? shape[d] : 1) && columns[d] == (d < k ? 1 : shape[d]);
    if (fits) return true;
  }
  return false;
}

template <class Step> Result<OutputTypes> infer_stored_step(const OpQuery& q) {
  using At = StoredOperands<Step>;
  const TensorType parameter = q.in(0), stored{DType::bf16, parameter.shape}, scalar{parameter.dtype, {}};
  OutputTypes out = {parameter};
  if (!is_float(parameter.dtype)) return invalid("the parameter is ", parameter.text());
  for (int i = 1; i < At::rows; ++i) {
    const TensorType& expected = i < At::state ? parameter : i < At::scalar ? stored : scalar;
    if (q.in(i) != expected) return invalid("operand ", i, " is ", q.in(i).text(), ", expected ", expected.text());
    if (i >= At::state && i < At::scalar) out.push_back(stored);
  }
  const TensorType &rows = q.in(At::rows), &columns = q.in(At::columns);
  if (rows.dtype != DType::i32 || columns.dtype != DType::i32 || !spans(parameter.shape, rows.shape, columns.shape))
    return invalid("rows and columns are ", rows.text(), " and ", columns.text(),
                   ", which do not number the elements of ", parameter.text());
  if (q.in(At::key) != TensorType{DType::i64, {}}) return invalid("the key is ", q.in(At::key).text());
  return out;
}

template <class Step, class T> void compute(const Reference& r) {
  using At = StoredOperands<Step>;
  const auto step = update::step_of<Step>(r.attributes());
  Number<T> scalar[Step::scalars];
  for (int i = 0; i < Step::scalars; ++i) scalar[i].value = static_cast<T>(r.in(At::scalar + i).get(0));
  const auto key = static_cast<uint64_t>(r.in(At::key).get_int(0));
  const bool held = r.attributes().flag("holds") && scalar[0].value < 0;
  const int64_t width = r.in(At::columns).elements();
  for (int64_t i = 0; i < r.in(0).elements(); ++i) {
    Number<T> parameter{static_cast<T>(r.in(0).get(i))}, state[Step::states];
    const float before = static_cast<float>(parameter.value);
    for (int k = 0; k < Step::states; ++k) state[k].value = static_cast<T>(r.in(At::state + k).get(i));
    if (!held) step(parameter, Number<T>{static_cast<T>(r.in(1).get(i))}, state, scalar);
    r.out(0).set(i, static_cast<double>(parameter.value));
    const auto row = static_cast<uint32_t>(r.in(At::rows).get_int(i / width)),
               column = static_cast<uint32_t>(r.in(At::columns).get_int(i % width));
    uint32_t draws = rounding_bits(key, element_number(row, column), before);
    for (int k = 0; k < Step::states; ++k, draws >>= 16) {
      const uint16_t rounded = bf16_at_random(static_cast<float>(state[k].value), draws & 0xffff);
      r.out(1 + k).set(i, load_double(DType::bf16, &rounded, 0));
    }
  }
}

template <class Step> void reference(const Reference& r) {
  r.in(0).dtype() == DType::f64 ? compute<Step, double>(r) : compute<Step, float>(r);
}

// `like` is the op without this, `states` and `scalars` are the names of its operands. Samples are made of two shapes:
// the ranges of the states, the last one of squares, and of the scalars follow.
template <class Step>
OpDef stored_in_bf16(const std::string& like, const std::string& states, const std::string& states_new,
                     const std::string& scalars, std::vector<Option> attributes, const std::string& ranges,
                     const std::string& options) {
  attributes.push_back({"holds", false});
  OpDef op{.doc = cat("As ", like,
                      ", with states stored in bf16. They are rounded at random, by a key of the step and the "
                      "row and column of each element."),
           .signature = cat("parameter, gradient, ", states, ", ", scalars, ", rows, columns, key -> parameter_new, ",
                            states_new),
           .attributes = std::move(attributes),
           .infer = infer_stored_step<Step>,
           .reference = reference<Step>,
           .no_gradient = "an optimizer's step ends the graph",
           .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
             std::vector<TensorType> inputs, outputs;
             for (int i = 0; i < q.inputs(); ++i) inputs.push_back(q.in(i));
             for (int i = 0; i < q.outputs(); ++i) outputs.push_back(q.out(i));
             return elementwise_rule(inputs, outputs);
           }};
  const auto sample = [&](const char* type, const char* shape, const char* rows, const char* columns,
                          const std::string& given, bool held) {
    std::string text = cat(type, shape, ", ", type, shape);
    for (int k = 0; k < Step::states; ++k) text += cat(", bf16", shape, k + 1 == Step::states ? ranges : "");
    for (int k = 0; k < Step::scalars; ++k)
      text += cat(", ", type, "[](", k > 0 ? "0.1..0.9" : held ? "-1..-0.5" : "0.01..0.1", ")");
    return cat(text, ", i32", rows, ", i32", columns, ", i64[] {", given, "}");
  };
  op.samples = {sample("f32", "[4,7]", "[4,1]", "[1,7]", options, false), sample("f32", "[5]", "[1]", "[5]", "", false),
                sample("f32", "[3,2,5]", "[3,2,1]", "[1,1,5]", "holds=true", true),
                sample("f64", "[3,4]", "[1,1]", "[3,4]", "", false)};
  return op;
}

constexpr const char* positive = "(0.1..2)";
std::vector<Option> options_of_adam() {
  return {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}};
}

}  // namespace

EPL_OP(momentum_bf16) {
  return stored_in_bf16<update::Momentum>("momentum", "momentum", "momentum_new", "lr, share",
                                          {{"momentum", 0.9}, {"nesterov", false}, {"weight_decay", 0.0}}, "",
                                          "weight_decay=0.1");
}

EPL_OP(rmsprop_bf16) {
  return stored_in_bf16<update::Rmsprop>("rmsprop", "square", "square_new", "lr",
                                         {{"alpha", 0.99}, {"epsilon", 1e-8}, {"weight_decay", 0.0}}, positive,
                                         "weight_decay=0.1");
}

EPL_OP(adagrad_bf16) {
  return stored_in_bf16<update::Adagrad>("adagrad", "sum", "sum_new", "rate",
                                         {{"epsilon", 1e-10}, {"weight_decay", 0.0}}, positive, "weight_decay=0.1");
}

EPL_OP(adam_bf16) {
  return stored_in_bf16<update::Adam>("adam", "mean, square", "mean_new, square_new", "lr, correction1, correction2",
                                      options_of_adam(), positive, "weight_decay=0.1");
}

EPL_OP(adamw_bf16) {
  return stored_in_bf16<update::Adamw>("adamw", "mean, square", "mean_new, square_new", "lr, correction1, correction2",
                                       options_of_adam(), positive, "weight_decay=0.1");
}

}  // namespace epl
