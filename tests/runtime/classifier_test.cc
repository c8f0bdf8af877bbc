// A classifier of very many classes, over ranks: each has some of the classes, with the scores, the loss and the
// gradients of those alone. It learns what one rank learns, and a plan of a million classes says what it takes.
#include <gtest/gtest.h>

#include "core/compile/plan_memory.h"
#include "tests/runtime/trained.h"
#include "tests/thirds.h"

namespace epl::classifier_test {
namespace {

struct Sizes {
  int64_t batch = 8, features = 16, classes = 64;
};

std::string classifier(const Sizes& s) {
  const auto type = [](int64_t a, int64_t b) { return cat("f32[", a, ",", b, "]"); };
  return cat("graph classifier(x: ", type(s.batch, s.features), " batch 0) {\n  body: ", type(s.features, s.features),
             " = param\n  head: ", type(s.classes, s.features), " = param\n  bias: f32[", s.classes,
             "] = param\n  forward:\n  h: ", type(s.batch, s.features),
             " = matmul(x, body)\n  a: ", type(s.batch, s.features), " = relu(h)\n  y: ", type(s.batch, s.classes),
             " = linear(a, head, bias) {transpose_w=true}\n  output y = y\n}\n");
}

// Its weights are known by their types alone: enough for a plan.
class Unread : public GraphModel {
 public:
  explicit Unread(std::string text) : text_(std::move(text)) {}
  Result<Graph> bind(const Binding&) const override { return parse_graph(text_); }

 private:
  std::string text_;
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(std::shared_ptr<const Model> model, int64_t ranks,
                                                    const std::string& strategy) {
  auto options = layout_options(std::move(model), ranks, strategy);
  if (options.ok()) {
    options->train.optimizer = "momentum";
    options->train.optimizer_options = {{"lr", 0.1}};
    options->train.clip_norm = 0;
    options->evaluate = options->predict = false;
  }
  return layout_plan(options);
}

Trained trained(int64_t ranks, const std::string& strategy, const Sizes& sizes, int steps) {
  return train(plan_of(GraphModel::parse(classifier(sizes)), ranks, strategy), strategy, steps, [&](int step) {
    Tensor x(TensorType{DType::f32, {sizes.batch, sizes.features}}), target(TensorType{DType::i64, {sizes.batch}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
    // Spread over all classes, so that every rank has some; one sample has no target.
    for (int i = 0; i < sizes.batch; ++i)
      target.set_int(i, i == 5 ? -100 : (i * (sizes.classes / 3 + 8) + step * 7) % sizes.classes);
    return std::vector<Tensor>{x, target};
  });
}

TEST(Classifier, LearnsWhatOneRankLearns) {
  const Trained wanted = trained(1, "{}", Sizes(), 4);
  for (const auto& [ranks, degree] : {std::pair(2, 2), std::pair(4, 4), std::pair(8, 4)}) {
    const std::string split = cat("{\"default\": {\"split\": ", degree, "}}");
    expect_near(trained(ranks, split, Sizes(), 4), wanted, cat(ranks, " ranks, split of ", degree), 1e-5, 1e-5);
  }
}

// No number of ranks divides them; two of four ranks have samples apart as well.
TEST(Classifier, TrainsAMillionAndThreeClasses) {
  EPL_ONE_OF_THREE();
  const Sizes sizes{6, 2, 1000003};
  const Trained wanted = trained(1, "{}", sizes, 3);
  for (const auto& [ranks, degree] : {std::pair(3, 3), std::pair(4, 2)}) {
    const std::string split = cat("{\"default\": {\"split\": ", degree, "}}");
    expect_near(trained(ranks, split, sizes, 3), wanted, cat(ranks, " ranks, split of ", degree), 1e-5, 1e-5);
  }
}

// 8 GB of weights and as much momentum; nobody has a place for all scores either.
TEST(Classifier, OfAMillionClassesIsNowhereReplicated) {
  const Sizes sizes{64, 2048, 1000000};
  const auto model = std::make_shared<Unread>(classifier(sizes));
  const auto one = plan_of(model, 1, "{}"), eight = plan_of(model, 8, R"({"default": {"split": 8}})");
  ASSERT_TRUE(one.ok() && eight.ok()) << one.status().to_string() << eight.status().to_string();
  const CompiledPlan &full = **one, &cut = **eight;
  const int64_t weights = 4 * sizes.classes * sizes.features;
  EXPECT_GT(PlanMemory(full).peak(), 2 * weights);
  EXPECT_GT(PlanMemory(cut).peak(), 2 * weights / 8);
  EXPECT_LT(static_cast<double>(PlanMemory(cut).peak()), 1.02 / 8 * static_cast<double>(PlanMemory(full).peak()));
  const std::string local = *cut.text(EntryKind::train, "local");
  const std::string graph = local.substr(local.find("\ngraph "));
  EXPECT_NE(graph.find("f32[64,125000]"), std::string::npos) << "scores in shards";
  EXPECT_EQ(graph.find("[64,1000000]"), std::string::npos);
  EXPECT_EQ(graph.find("[1000000,2048]"), std::string::npos);
}

}  // namespace
}  // namespace epl::classifier_test
