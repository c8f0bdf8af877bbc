// Every op that has a gradient, or a body that gives one: gradients by the graph against central differences in
// float64, over all samples of its record.
#include <gtest/gtest.h>

#include <cmath>

#include "core/autodiff/gradient.h"
#include "core/ir/evaluate.h"
#include "tests/ops/variants.h"

namespace epl::central_differences_test {
namespace {

constexpr double step = 1e-5;
// Elements looked at of each operand, spread evenly: of a record's samples, and of the many that are generated from
// them.
constexpr int64_t checked_elements = 60, few_elements = 4;

// loss = sum over outputs of sum(output * weight), weights fixed but different for each element.
struct Problem {
  Graph graph;
  Value loss;
  std::vector<Value> inputs;  // Value{} for an absent operand
  std::map<Value, Tensor> values;

  static Result<Problem> make(const OpDef& op, const Sample& sample, size_t outputs_used) {
    Problem p;
    Builder b(p.graph);
    std::vector<Var> inputs;
    const std::vector<Tensor> values = sample.values(3);
    for (size_t i = 0; i < values.size(); ++i) {
      p.inputs.push_back(values[i].empty() ? Value{} : p.graph.add_input(cat("x", i), values[i].type()));
      inputs.push_back(values[i].empty() ? Var() : b.var(p.inputs[i]));
      if (!values[i].empty()) p.values[p.inputs[i]] = values[i];
    }
    b.set_scope("node");
    const std::vector<Var> outputs = b.emit_all(op.name, inputs, sample.attributes);
    b.set_scope("loss");
    Var loss;
    for (size_t o = 0; o < std::min(outputs.size(), outputs_used); ++o) {
      if (!is_float(outputs[o].dtype())) continue;
      Sample weight;
      weight.operands.push_back({.type = outputs[o].type(), .low = 0.5, .high = 1.5});
      Ints axes;
      for (int d = 0; d < outputs[o].ndim(); ++d) axes.push_back(d);
      const Var part = b.sum(outputs[o] * b.constant(weight.values(7 + o)[0]), axes, false);
      loss = loss ? loss + part : part;
    }
    EPL_TRY(b.status());
    p.loss = loss.value();
    return p;
  }

  Result<double> evaluate() const {
    EPL_ASSIGN(std::vector<Tensor> all, evaluate_graph(graph, values));
    return all[loss.index].get(0);
  }
};

void check_operand(const Problem& p, size_t i, const Tensor& gradient, int64_t elements) {
  Problem moved = p;
  Tensor& x = moved.values[p.inputs[i]];
  x = x.clone();
  const int64_t stride = std::max<int64_t>(1, x.elements() / elements);
  for (int64_t k = 0; k < x.elements(); k += stride) {
    const double at = x.get(k);
    x.set(k, at + step);
    auto above = moved.evaluate();
    x.set(k, at - step);
    auto below = moved.evaluate();
    x.set(k, at);
    ASSERT_TRUE(above.ok() && below.ok());
    const double numeric = (*above - *below) / (2 * step);
    ASSERT_NEAR(gradient.get(k), numeric, 1e-7 * (1 + std::abs(numeric))) << "operand " << i << ", element " << k;
  }
}

// Checks every floating operand of one sample; returns how many.
int check_sample(const OpDef& op, const Sample& sample, int64_t elements) {
  std::vector<Value> wanted;
  auto make = [&](size_t outputs_used) -> Result<Problem> {
    EPL_ASSIGN(Problem p, Problem::make(op, sample, outputs_used));
    wanted.clear();
    for (size_t i = 0; i < p.inputs.size(); ++i)
      if (p.inputs[i] && is_float(p.graph.type(p.inputs[i]).dtype)) wanted.push_back(p.inputs[i]);
    return p;
  };
  int checked = 0;
  const auto check = [&] {
    auto types = infer_types(op, sample.attributes, sample.types());
    ASSERT_TRUE(types.ok());
    if (!is_float((*types)[0].dtype)) return;  // a cast to integers, a sample of integers
    auto problem = make(types->size());
    ASSERT_TRUE(problem.ok()) << problem.status().to_string();
    if (wanted.empty()) return;
    auto value = problem->evaluate();
    ASSERT_TRUE(value.ok()) << value.status().to_string();
    if (std::isnan(*value)) return;  // a generated sample that reads outside
    Problem with_gradients = *problem;
    auto gradients = add_gradients(with_gradients.graph, problem->loss, wanted);
    if (!gradients.ok() && types->size() > 1) {
      // Statistics kept for the gradient may refuse to be differentiated themselves; the result may not.
      ASSERT_NE(gradients.status().message().find("no gradient through the output"), std::string::npos)
          << gradients.status().to_string();
      problem = make(1);
      with_gradients = *problem;
      gradients = add_gradients(with_gradients.graph, problem->loss, wanted);
    }
    ASSERT_TRUE(gradients.ok()) << gradients.status().to_string();
    ASSERT_TRUE(verify(with_gradients.graph).ok()) << verify(with_gradients.graph).to_string();
    auto all = evaluate_graph(with_gradients.graph, problem->values);
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    for (size_t w = 0; w < wanted.size(); ++w) {
      const size_t i = std::find(problem->inputs.begin(), problem->inputs.end(), wanted[w]) - problem->inputs.begin();
      const auto& never = op.no_gradient_inputs;
      if (std::find(never.begin(), never.end(), static_cast<int>(i)) != never.end()) {
        EXPECT_FALSE(gradients->values[w]) << "operand " << i;
        EXPECT_FALSE(gradients->reasons[w].empty());
        continue;
      }
      ASSERT_TRUE(gradients->values[w]) << "operand " << i << ": " << gradients->reasons[w];
      ASSERT_EQ(with_gradients.graph.type(gradients->values[w]), with_gradients.graph.type(wanted[w]));
      check_operand(*problem, i, (*all)[gradients->values[w].index], elements);
      ++checked;
    }
  };
  check();
  return checked;
}

class CentralDifferences : public testing::TestWithParam<const OpDef*> {};

TEST_P(CentralDifferences, AgreeWithTheGradient) {
  const OpDef& op = *GetParam();
  int checked = 0;
  for (const std::string& text : op.samples) {
    SCOPED_TRACE(text);
    auto parsed = parse_sample(op, text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    checked += check_sample(op, parsed->with_floats(DType::f64), checked_elements);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(checked, 0) << "no sample has a floating operand";
}

TEST_P(CentralDifferences, AgreeInSizesThatNobodyThoughtOf) {
  const OpDef& op = *GetParam();
  for (const Variant& variant : variants(op, {0, 1, 3}, false, 40)) {
    if (variant.shrinks_unshardable && !op.no_gradient_inputs.empty()) continue;
    SCOPED_TRACE(variant.text);
    check_sample(op, variant.sample.with_floats(DType::f64), few_elements);
    if (HasFatalFailure()) return;
  }
}

std::vector<const OpDef*> differentiable() {
  std::vector<const OpDef*> ops;
  for (const OpDef* op : op_table().all())
    if (op->gradient || (op->body && op->no_gradient.empty())) ops.push_back(op);
  return ops;
}
INSTANTIATE_TEST_SUITE_P(Ops, CentralDifferences, testing::ValuesIn(differentiable()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace epl::central_differences_test
