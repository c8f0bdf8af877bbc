// Losses against torch.nn.functional, in float64.
#include "core/train/loss.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/autodiff/gradient.h"
#include "core/ir/evaluate.h"

namespace epl::loss_test {
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
  Made made =
      with_loss({1, 2, 3}, {.options = {{"ignore_index", int64_t{7}}}, .target = TensorType{DType::i64, {1, 3}}});
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
  const double got =
      value_of(with_loss({2, 2}, {.name = "mse"}), doubles({2, 2}, {1, 2, 3, 4}), doubles({2, 2}, {0, 2, 5, 1}));
  EXPECT_DOUBLE_EQ(got, (1 + 0 + 4 + 9) / 4.0);
}

TEST(Loss, BinaryCrossEntropyStaysFinite) {
  const double got = value_of(with_loss({4}, {.name = "bce_with_logits"}), doubles({4}, {0, 2, -800, 800}),
                              doubles({4}, {1, 0.25, 0, 0}));
  EXPECT_NEAR(got, (std::log(2) + std::log1p(std::exp(2)) - 0.5 + 0 + 800) / 4, 1e-12);
}

Tensor series(Shape shape, int64_t seed, double scale) {
  Tensor data({DType::f64, std::move(shape)});
  for (int64_t i = 0; i < data.elements(); ++i)
    data.set(i, (static_cast<double>((i * 37 + seed * 11 + 5) % 101) / 101 - 0.5) * scale);
  return data;
}

// The loss, the norm of its gradient and the second element of that.
std::vector<double> value_and_gradient(const std::string& name) {
  const Doubles weights = {0.5, 2.0, 1.25, 0.0};
  const bool binary = name.starts_with("pos"), inside = name == "both inside";
  const Shape shape = inside ? Shape{6, 4, 3} : Shape{6, 4};
  LossSpec spec;
  Tensor target;
  if (binary) {
    spec = {.name = "bce_with_logits", .options = {{"pos_weight", name == "pos_weight" ? Doubles{3} : weights}}};
    target = series(shape, 9, 1);
    for (int64_t i = 0; i < target.elements(); ++i) target.set(i, target.get(i) > 0 ? 1 : 0);
  } else {
    if (name != "weighted") spec.options.set("label_smoothing", 0.2);
    if (name != "smoothed") spec.options.set("class_weights", weights);
    target = Tensor({DType::i64, inside ? Shape{6, 3} : Shape{6}});
    for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, i % 5 == 2 ? -100 : (i * 3 + i / 2) % 4);
    spec.target = target.type();
  }
  Made made = with_loss(shape, spec);
  EXPECT_EQ(made.failure, "");
  auto gradients = add_gradients(made.graph, made.loss, {made.graph.find("x")});
  EXPECT_TRUE(gradients.ok()) << gradients.status().to_string();
  auto values =
      evaluate_graph(made.graph, {{made.graph.find("x"), series(shape, 4, 4)}, {made.graph.find("target"), target}});
  EXPECT_TRUE(values.ok()) << values.status().to_string();
  const Tensor& gradient = (*values)[gradients->values[0].index];
  double squares = 0;
  for (int64_t i = 0; i < gradient.elements(); ++i) squares += gradient.get(i) * gradient.get(i);
  return {(*values)[made.loss.index].get(0), std::sqrt(squares), gradient.get(1)};
}

TEST(Loss, OptionsMeanWhatTheyMeanInPyTorch) {
  // clang-format off
  const std::vector<std::pair<std::string, std::vector<double>>> expected = {   // loss_reference.py
      {"smoothed", {2.733385278279578, 0.4368782759380137, 0.1109531021034143}},
      {"weighted", {2.931362456206252, 0.6177391627496536, 0.06047655105170714}},
      {"both", {2.7470056452364817, 0.5288713295361428, 0.051059947485755895}},
      {"both inside", {1.6660742116738079, 0.25959314317198473, 0.003454028222462283}},
      {"pos_weight", {2.3923050973918754, 0.30788001484188576, 0.03346353663040355}},
      {"pos_weights", {1.3075889594930243, 0.1667904906038179, 0.03346353663040355}},
  };
  // clang-format on
  for (const auto& [name, numbers] : expected) {
    const std::vector<double> got = value_and_gradient(name);
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_NEAR(got[i], numbers[i], 1e-14) << name << " " << i;
  }
}

// What evaluation sums is what training takes the mean of.
TEST(Loss, TermsAddUpToIt) {
  for (const LossSpec& spec :
       {LossSpec{}, LossSpec{.options = {{"label_smoothing", 0.1}, {"class_weights", Doubles{1, 2}}}},
        LossSpec{.name = "mse"}, LossSpec{.name = "bce_with_logits"}}) {
    Graph graph;
    graph.outputs = {{"scores", graph.add_input("x", {DType::f64, {3, 2}}, 0)}};
    auto loss = add_measured_loss(graph, spec);
    ASSERT_TRUE(loss.ok()) << loss.status().to_string();
    const Tensor target =
        loss->facts.task == Task::classes ? classes({3}, {0, -100, 1}) : doubles({3, 2}, {1, 0, 0, 1, 1, 1});
    auto values =
        evaluate_graph(graph, {{graph.find("x"), doubles({3, 2}, {1, 2, 3, 5, 0, 4})}, {graph.find("target"), target}});
    ASSERT_TRUE(values.ok()) << values.status().to_string();
    double sum = 0, weight = 0;
    const Tensor& terms = (*values)[loss->terms.index];
    for (int64_t i = 0; i < terms.elements(); ++i) {
      sum += terms.get(i);
      weight += loss->weights ? (*values)[loss->weights.index].get(i) : 1;
    }
    EXPECT_NEAR(sum / weight, (*values)[loss->value.index].get(0), 1e-14) << spec.name;
  }
}

TEST(Loss, SaysWhatDoesNotFit) {
  EXPECT_NE(with_loss({3, 2}, {.name = "mae"}).failure.find("mse"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.output = "score"}).failure.find("did you mean scores"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.target = TensorType{DType::i64, {4}}}).failure.find("i64[4]"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.target = TensorType{DType::f32, {3}}}).failure.find("class indices"),
            std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.options = {{"axis", int64_t{2}}}}).failure.find("no dimension 2"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.options = {{"label_smoothing", 1.5}}}).failure.find("from 0 to 1"), std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.options = {{"class_weights", Doubles{1, 2, 3}}}}).failure.find("there are 2 classes"),
            std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.options = {{"class_weights", Doubles{1, -2}}}}).failure.find("each 0 or more"),
            std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.name = "bce_with_logits", .options = {{"pos_weight", Doubles{1, 2, 3}}}})
                .failure.find("has 2 columns"),
            std::string::npos);
  EXPECT_NE(with_loss({3, 2}, {.name = "mse", .target = TensorType{DType::f64, {3}}}).failure.find("f64[3]"),
            std::string::npos);
}

TEST(Loss, RefusesAModelThatHasATargetAlready) {
  Graph graph;
  graph.outputs = {{"y", graph.add_input("target", {DType::f64, {2}}, 0)}};
  auto loss = add_loss(graph, {.name = "mse"});
  ASSERT_FALSE(loss.ok());
  EXPECT_NE(loss.status().message().find("target"), std::string::npos);
}

}  // namespace
}  // namespace epl::loss_test
