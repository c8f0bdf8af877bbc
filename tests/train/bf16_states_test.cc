// States in bf16 against PyTorch's own optimizers in float64 (see bf16_states_reference.py): their mean over many
// elements is the state without rounding, after hundreds of steps of which each changes it by less than its last place.
// And which operands a train step gives the op.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "core/ir/evaluate.h"
#include "core/train/element_numbers.h"
#include "core/train/train_step.h"

namespace epl::bf16_states_test {
namespace {

constexpr int64_t steps = 300, side = 48;

double gradient(int64_t step) { return 0.02 + 0.01 * static_cast<double>((step * 37 + 5) % 101) / 101; }

Tensor filled(DType type, Shape shape, double value) {
  Tensor out(TensorType{type, std::move(shape)});
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, value);
  return out;
}

// A loss whose gradient is x.
Graph linear() {
  Graph graph;
  Builder b(graph);
  const Var x = b.var(graph.add_input("x", {DType::f32, {1}}));
  const Tensor data = filled(DType::f32, {side, side}, 0.5);
  const Var w = b.var(graph.add_leaf(ValueKind::parameter, "w", data.type(), data));
  graph.outputs = {{"loss", b.sum(w * x, {0, 1}, false).value()}};
  EXPECT_TRUE(b.status().ok()) << b.status().to_string();
  return graph;
}

TrainOptions options_of(const std::string& optimizer, Attributes options) {
  options.set("state_type", std::string("bf16"));
  TrainOptions out;
  out.loss.name = "output:loss";
  out.optimizer = optimizer;
  out.optimizer_options = std::move(options);
  return out;
}

// All states after the last step.
std::vector<Tensor> train(const TrainOptions& options, uint64_t seed) {
  auto made = build_train_step(linear(), options);
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  if (!made.ok()) return {};
  const Graph& graph = made->graph;
  EXPECT_TRUE(verify(graph).ok()) << verify(graph).to_string();
  std::map<Value, Tensor> leaves;
  for (Value state : graph.leaves(ValueKind::state)) leaves[state] = Tensor(graph.type(state));
  for (int64_t step = 0; step < steps; ++step) {
    leaves[graph.find("x")] = filled(DType::f32, {1}, gradient(step));
    for (const HostScalar& scalar : made->scalars)
      leaves[scalar.value] = Tensor::scalar(graph.type(scalar.value).dtype, scalar.at({.step = step, .seed = seed}));
    auto values = evaluate_graph(graph, leaves);
    EXPECT_TRUE(values.ok()) << values.status().to_string();
    if (!values.ok()) return {};
    for (const Graph::Update& update : graph.updates) leaves[update.state] = (*values)[update.next.index];
  }
  std::vector<Tensor> out;
  for (Value state : graph.leaves(ValueKind::state)) out.push_back(leaves[state]);
  return out;
}

struct Moments {
  double mean = 0, deviation = 0;
};
Moments moments(const Tensor& t) {
  Moments out;
  const auto n = static_cast<double>(t.elements());
  for (int64_t i = 0; i < t.elements(); ++i) out.mean += t.get(i) / n;
  for (int64_t i = 0; i < t.elements(); ++i) out.deviation += std::pow(t.get(i) - out.mean, 2) / n;
  out.deviation = std::sqrt(out.deviation);
  return out;
}

struct Case {
  std::string optimizer;
  Attributes options;
  std::vector<double> expected;  // bf16_states_reference.py
};

class Bf16States : public testing::TestWithParam<Case> {};

TEST_P(Bf16States, HaveTheMeanOfTheStatesOfPyTorch) {
  const Case& one = GetParam();
  const std::vector<Tensor> states = train(options_of(one.optimizer, one.options), 1);
  ASSERT_EQ(states.size(), one.expected.size());
  for (size_t k = 0; k < states.size(); ++k) {
    EXPECT_EQ(states[k].type(), (TensorType{DType::bf16, {side, side}}));
    const Moments found = moments(states[k]);
    EXPECT_GT(found.deviation, 0.001 * one.expected[k]) << "nothing was rounded at random";
    EXPECT_LT(found.deviation, 0.06 * one.expected[k]);
    // Four deviations of the mean of so many elements.
    EXPECT_NEAR(found.mean, one.expected[k], 4 * found.deviation / side) << one.optimizer << ", state " << k;
  }
}

INSTANTIATE_TEST_SUITE_P(, Bf16States,
                         testing::Values(Case{"momentum", {{"momentum", 0.98}}, {1.24387524742}},
                                         Case{"rmsprop", {{"alpha", 0.998}}, {0.000284534200927}},
                                         Case{"adagrad", {}, {0.189023242819}},
                                         Case{"adam", {}, {0.0248574063674, 0.000163388196577}},
                                         Case{"adamw", {}, {0.0248574063674, 0.000163388196577}}),
                         [](const auto& info) { return info.param.optimizer; });

// Why at random: to the nearest, the mean of squares stops on its way up.
TEST(Bf16StatesToTheNearest, WouldStop) {
  double exact = 0, nearest = 0;
  for (int64_t step = 0; step < 3000; ++step) {
    const double square = gradient(step) * gradient(step);
    exact = 0.999 * exact + 0.001 * square;
    nearest = Tensor::scalar(DType::bf16, 0.999 * nearest + 0.001 * square).get(0);
  }
  EXPECT_LT(nearest, 0.7 * exact);
}

TEST(Bf16StatesFollow, TheSeedAndNothingElse) {
  const TrainOptions options = options_of("adam", {});
  const std::vector<Tensor> first = train(options, 1), again = train(options, 1), other = train(options, 2);
  for (size_t k = 0; k < first.size(); ++k) {
    EXPECT_TRUE(identical(first[k], again[k]));
    EXPECT_FALSE(identical(first[k], other[k]));
  }
}

// A group has its own type of states, and an optimizer without states has none.
TEST(Bf16StatesOfGroups, AreTheGroupsOwn) {
  Graph forward;
  Builder b(forward);
  const Var x = b.var(forward.add_input("x", {DType::f32, {2, 64}}, 0));
  Var y = x;
  for (const char* name : {"a", "b", "c"}) {
    const Tensor data = filled(DType::f32, {64, 64}, 0.1);
    y = b.matmul(y, b.var(forward.add_leaf(ValueKind::parameter, name, data.type(), data)));
  }
  forward.outputs = {{"loss", b.sum(y, {0, 1}, false).value()}};
  TrainOptions options = options_of("adam", {});
  options.groups.push_back({.patterns = {"b"}, .options = {{"state_type", std::string("f32")}}});
  const auto made = build_train_step(forward, options);
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const Graph& graph = made->graph;
  for (const char* name : {"a.mean", "a.square", "c.mean", "c.square"})
    EXPECT_EQ(graph.type(graph.find(name)).dtype, DType::bf16) << name;
  for (const char* name : {"b.mean", "b.square"}) EXPECT_EQ(graph.type(graph.find(name)).dtype, DType::f32) << name;
  // Tensors of one shape share the numbers of their elements.
  int64_t numbers = 0;
  for (Value v : graph.leaves(ValueKind::constant)) {
    if (graph.value(v).name.starts_with("epl.")) numbers += graph.type(v).bytes();
  }
  EXPECT_EQ(numbers, (64 + 64) * 4);
  EXPECT_FALSE(build_train_step(forward, options_of("sgd", {})).ok()) << "sgd has no states to store";
}

TEST(ElementNumbers, AreFewWithLongRows) {
  EXPECT_EQ(ElementNumbers::row_dims({4096, 1024}), 1u);
  EXPECT_EQ(ElementNumbers::row_dims({64, 32, 3, 3}), 1u);
  EXPECT_EQ(ElementNumbers::row_dims({8, 512, 2048}), 2u);
  EXPECT_EQ(ElementNumbers::row_dims({4096, 3}), 0u);  // draws come many at once
  EXPECT_EQ(ElementNumbers::row_dims({1000}), 0u);
  EXPECT_EQ(ElementNumbers::row_dims({}), 0u);
}

}  // namespace
}  // namespace epl::bf16_states_test
