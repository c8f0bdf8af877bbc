// Losses against torch.nn.functional, in float64.
#include "core/train/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/ir/evaluate.h"

namespace epl {
namespace {

struct Made {
  Graph graph;
  Value loss;
  std::string failure;
};

Made with_loss(Shape shape, const LossSpec& spec) {
  Made made;
  Value x = made.graph.add_input("x", {DType::f64, std::move(shape)}, 0);
  made.graph.outputs = {{"scores", x}};
  auto loss = add_loss(made.graph, spec);
  if (loss.ok()) {
    made.loss = *loss;
  } else {
    made.failure = loss.status().message();
  }
  return made;
}

double value_of(const Made& made, const Tensor& x, const Tensor& target) {
  auto values = evaluate_graph(made.graph, {{made.graph.find("x"), x}, {made.graph.find("target"), target}});
  if (!values.ok()) {
    ADD_FAILURE() << values.status().to_string();
    return NAN;
  }
  return (*values)[made.loss.index].get(0);
}

Tensor doubles(Shape shape, const std::vector<double>& numbers) {
  return Tensor::from<double>({DType::f64, std::move(shape)}, numbers);
}
Tensor classes(Shape shape, const std::vector<int64_t>& numbers) {
  return Tensor::from<int64_t>({DType::i64, std::move(shape)}, numbers);
}
double log_sum_exp(std::initializer_list<double> numbers) {
  double sum = 0;
  for (double n : numbers) sum += std::exp(n);
  return std::log(sum);
}

TEST(Loss, CrossEntropyTakesTheLastDimensionAndSkipsIgnored) {
  Made made = with_loss({3, 2}, {});
  ASSERT_EQ(made.failure, "");
  EXPECT_EQ(made.graph.type(made.graph.find("target")), (TensorType{DType::i64, {3}}));
  const double got = value_of(made, doubles({3, 2}, {1, 2, 3, 5, 0, 4}), classes({3}, {0, -100, 1}));
  EXPECT_NEAR(got, ((log_sum_exp({1, 2}) - 1) + (log_sum_exp({0, 4}) - 4)) / 2, 1e-14);
}

TEST(Loss, CrossEntropyFindsTheDimensionThatTheTargetLacks) {
  Made made = with_loss({1, 2, 3}, {.options = {{"ignore_index", int64_t{7}}}, .target = TensorType{DType::i64, {1, 3}}});
  ASSERT_EQ(made.failure, "");
  const double got = value_of(made, doubles({1, 2, 3}, {1, 2, 3, 4, 5, 6}), classes({1, 3}, {0, 7, 1}));
  EXPECT_NEAR(got, ((log_sum_exp({1, 4}) - 1) + (log_sum_exp({3, 6}) - 6)) / 2, 1e-14);
}

TEST(Loss, CrossEntropyTakesAnAxisWhereSeveralFit) {
  const TensorType target{DType::i64, {2, 2}};
  const Tensor x = doubles({2, 2, 2}, {1, 2, 3, 5, 8, 13, 21, 34}), t = classes({2, 2}, {0, 1, -100, -100});
  const double last = value_of(with_loss({2, 2, 2}, {.target = target}), x, t);
  EXPECT_NEAR(last, ((log_sum_exp({1, 2}) - 1) + (log_sum_exp({3, 5}) - 5)) / 2, 1e-14);
  const double first = value_of(with_loss({2, 2, 2}, {.options = {{"axis", int64_t{1}}}, .target = target}), x, t);
  EXPECT_NEAR(first, ((log_sum_exp({1, 3}) - 1) + (log_sum_exp({2, 5}) - 5)) / 2, 1e-14);
}

TEST(Loss, MeanSquaredError) {
  const double got = value_of(with_loss({2, 2}, {.name = "mse"}), doubles({2, 2}, {1, 2, 3, 4}), doubles({2, 2}, {0, 2, 5, 1}));
  EXPECT_DOUBLE_EQ(got, (1 + 0 + 4 + 9) / 4.0);
}

TEST(Loss, BinaryCrossEntropyStaysFinite) {
  const double got = value_of(with_loss({4}, {.name = "bce_with_logits"}), doubles({4}, {0, 2, -800, 800}), doubles({4}, {1, 0.25, 0, 0}));
  EXPECT_NEAR(got, (std::log(2) + std::log1p(std::exp(2)) - 0.5 + 0 + 800) / 4, 1e-12);
}

TEST(Loss, SaysWhatDoesNotFit) {
  EXPECT_NE(with_loss({3, 2}, {.name = "mae"}).failure.find("mse"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.output = "score"}).failure.find("did you mean scores"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.target = TensorType{DType::i64, {4}}}).failure.find("i64[4]"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.target = TensorType{DType::f32, {3}}}).failure.find("class indices"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.options = {{"axis", int64_t{2}}}}).failure.find("no dimension 2"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.name = "mse", .target = TensorType{DType::f64, {3}}}).failure.find("f64[3]"), std::string::npos);
}

TEST(Loss, RefusesAModelThatHasATargetAlready) {
  Graph graph;
  graph.outputs = {{"y", graph.add_input("target", {DType::f64, {2}}, 0)}};
  auto loss = add_loss(graph, {.name = "mse"});
  ASSERT_FALSE(loss.ok());
  EXPECT_NE(loss.status().message().find("target"), std::string::npos);
}

}  // namespace
}  // namespace epl
