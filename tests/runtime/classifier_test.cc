// A classifier of very many classes, over ranks: each has some of the classes, with the scores, the loss and the
// gradients of those alone. It learns what one rank learns, and a plan of a million classes says what it takes.
#include <gtest/gtest.h>

#include <map>

#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl {
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

std::shared_ptr<const CompiledPlan> plan_of(std::shared_ptr<const Model> model, int64_t ranks,
                                            const std::string& strategy) {
  PlanOptions options;
  options.model = std::move(model);
  options.train.loss.name = "softmax_cross_entropy";
  options.train.optimizer = "momentum";
  options.train.optimizer_options = {{"lr", 0.1}};
  options.ranks = ranks;
  options.evaluate = options.predict = false;
  options.strategy = *parse_strategy(strategy);
  auto plan = CompiledPlan::create(test_host(2), options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  return plan.ok() ? *plan : nullptr;
}

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> state;
};

Trained trained(int64_t ranks, const std::string& strategy) {
  Trained made;
  const Sizes sizes;
  const auto plan = plan_of(GraphModel::parse(classifier(sizes)), ranks, strategy);
  if (!plan) return made;
  auto session = Session::create(test_host(2), plan, 7);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  if (!session.ok()) return made;
  Tensor x(TensorType{DType::f32, {sizes.batch, sizes.features}}), target(TensorType{DType::i64, {sizes.batch}});
  for (int s = 0; s < 4; ++s) {
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(s), i) - 0.5);
    for (int i = 0; i < 8; ++i) target.set_int(i, i == 5 ? -100 : (i * 29 + s * 7) % sizes.classes);
    StepMetrics metrics;
    const Status status = (*session)->step(std::vector<Tensor>{x, target}, metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    made.losses.push_back(metrics.loss);
  }
  EXPECT_EQ((*session)->memory_bytes_used(), plan->memory_bytes_peak());
  for (const StateSlot& slot : plan->state().slots()) made.state.emplace(slot.name, *(*session)->state(slot.name));
  return made;
}

TEST(Classifier, LearnsWhatOneRankLearns) {
  const Trained wanted = trained(1, "{}");
  for (const auto& [ranks, degree] : {std::pair(2, 2), std::pair(4, 4), std::pair(8, 4)}) {
    SCOPED_TRACE(cat(ranks, " ranks, split of ", degree));
    const Trained found = trained(ranks, cat("{\"default\": {\"split\": ", degree, "}}"));
    ASSERT_EQ(found.losses.size(), wanted.losses.size());
    for (size_t s = 0; s < wanted.losses.size(); ++s) EXPECT_NEAR(found.losses[s], wanted.losses[s], 1e-5) << s;
    for (const auto& [name, value] : wanted.state) {
      for (int64_t i = 0; i < value.elements(); ++i)
        ASSERT_NEAR(found.state.at(name).get(i), value.get(i), 1e-5) << name << " " << i;
    }
  }
}

// 8 GB of weights and as much momentum; nobody has a place for all scores either.
TEST(Classifier, OfAMillionClassesIsNowhereWhole) {
  const Sizes sizes{64, 2048, 1000000};
  const auto model = std::make_shared<Unread>(classifier(sizes));
  const auto whole = plan_of(model, 1, "{}"), cut = plan_of(model, 8, R"({"default": {"split": 8}})");
  ASSERT_TRUE(whole && cut);
  const int64_t weights = 4 * sizes.classes * sizes.features;
  EXPECT_GT(whole->memory_bytes_peak(), 2 * weights);
  EXPECT_GT(cut->memory_bytes_peak(), 2 * weights / 8);
  EXPECT_LT(static_cast<double>(cut->memory_bytes_peak()), 1.02 / 8 * static_cast<double>(whole->memory_bytes_peak()));
  const std::string local = *cut->text(EntryKind::train, "local");
  const std::string graph = local.substr(local.find("\ngraph "));
  EXPECT_NE(graph.find("f32[64,125000]"), std::string::npos) << "scores in pieces";
  EXPECT_EQ(graph.find("[64,1000000]"), std::string::npos);
  EXPECT_EQ(graph.find("[1000000,2048]"), std::string::npos);
}

}  // namespace
}  // namespace epl
