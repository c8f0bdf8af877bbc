// Several shapes in one plan: one state and one arena, and the bits of a session that is planned for the shape alone.
#include <gtest/gtest.h>

#include "core/compile/budget.h"
#include "core/compile/plan_decisions.h"
#include "core/compile/plan_memory.h"
#include "core/runtime/evaluation.h"
#include "core/runtime/predictor.h"
#include "core/runtime/rehearsal.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/mlp.h"
#include "tests/runtime/trained.h"

namespace epl::shapes_test {
namespace {

struct Sizes {
  int64_t batch, length;
};

// Two layers over tokens, of any batch and length: "$b" and "$t" are the symbols' sizes.
constexpr std::string_view tokens = R"(graph tokens(x: f32[$b,$t,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,4] = param
  forward:
  h: f32[$b,$t,16] = matmul(x, w1)
  hb: f32[$b,$t,16] = add(h, b1)
  a: f32[$b,$t,16] = relu(hb)
  y: f32[$b,$t,4] = matmul(a, w2)
  output y = y
}
)";

std::shared_ptr<const Model> model_of(Sizes sizes) {
  std::string text(tokens);
  const auto put = [&](std::string_view name, int64_t size) {
    for (size_t at = 0; (at = text.find(name)) != std::string::npos;) text.replace(at, name.size(), cat(size));
  };
  put("$b", sizes.batch);
  put("$t", sizes.length);
  return GraphModel::parse(text);
}

class Tokens : public GraphModel {
 public:
  explicit Tokens(const GraphModel& any) : GraphModel(any) {}
  Result<Graph> bind(const Binding& binding) const override {
    return model_of({binding.symbols.at("b"), binding.symbols.at("t")})->bind(binding);
  }
};

Binding binding_of(Sizes sizes) { return {.symbols = {{"b", sizes.batch}, {"t", sizes.length}}}; }

Result<PlanOptions> options_of(const std::vector<Sizes>& shapes, int64_t ranks, std::string_view strategy) {
  EPL_ASSIGN(PlanOptions options,
             layout_options(std::make_shared<Tokens>(static_cast<const GraphModel&>(*model_of(shapes.front()))), ranks,
                            strategy));
  options.binding = binding_of(shapes.front());
  for (size_t s = 1; s < shapes.size(); ++s) options.shapes.push_back({binding_of(shapes[s]), {}});
  return options;
}

std::vector<Tensor> batch_of(Sizes sizes, int64_t step) {
  Tensor x(TensorType{DType::f32, {sizes.batch, sizes.length, 12}}),
      t(TensorType{DType::i64, {sizes.batch, sizes.length}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int64_t i = 0; i < t.elements(); ++i) t.set_int(i, i % 5 == 3 ? -100 : (i + step) % 4);
  return {x, t};
}

std::unique_ptr<Session> session_of(const Result<PlanOptions>& options) {
  auto plan = layout_plan(options);
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  if (!plan.ok()) return nullptr;
  auto session = Session::create(test_host(2), *plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session.ok() ? std::move(*session) : nullptr;
}

// All that a session goes on from.
void give_state(Session& from, Session& to) {
  for (const StateSlot& slot : from.plan().state().slots())
    ASSERT_TRUE(to.state().set(slot.name, *from.state().get(slot.name)).ok()) << slot.name;
  to.host_state().set_steps_done(from.host_state().steps_done());
}

void expect_equal_state(Session& one, Session& other, const std::string& where) {
  for (const StateSlot& slot : one.plan().state().slots())
    EXPECT_TRUE(identical(*one.state().get(slot.name), *other.state().get(slot.name))) << slot.name << ", " << where;
}

struct Layout {
  const char* name;
  int64_t ranks;
  const char* strategy;
};
constexpr Layout layouts[] = {
    {"one rank", 1, "{}"},
    {"micro-batches", 1, R"({"pipeline.num_micro_batch": 2})"},
    {"two ranks", 2, "{}"},
    {"shared updates", 2, R"({"zero.level": "v0"})"},
    {"shards of gradients", 4, R"({"zero.level": "v1", "pipeline.num_micro_batch": 2})"},
    {"shards of weights", 2, R"({"zero.level": "v2", "pipeline.num_micro_batch": 2})"},
    {"split", 2, R"({"default": {"split": 2}})"},
    {"stages", 2,
     R"({"pipeline.num_micro_batch": 2, "scopes": [{"name": "first", "match": ["h", "hb", "a"], "replicate": 1},
        {"name": "second", "match": "y", "replicate": 1}]})"},
};
// Buckets of lengths, and a partial batch of one of them.
const std::vector<Sizes> shapes = {{8, 4}, {8, 6}, {4, 4}};

TEST(Shapes, EachStepHasTheBitsOfASessionOfItsShapeAlone) {
  for (const Layout& layout : layouts) {
    const auto several = session_of(options_of(shapes, layout.ranks, layout.strategy));
    ASSERT_TRUE(several) << layout.name;
    for (int s = 0; s < 7; ++s) {
      const Sizes sizes = shapes[static_cast<size_t>(s * 2 % 3)];
      const std::string where = cat(layout.name, ", step ", s);
      const auto alone = session_of(options_of({sizes}, layout.ranks, layout.strategy));
      ASSERT_TRUE(alone) << where;
      give_state(*several, *alone);
      StepMetrics metrics, expected;
      const std::vector<Tensor> inputs = batch_of(sizes, s);
      const Status status = several->step(inputs, metrics);
      ASSERT_TRUE(status.ok()) << where << ": " << status.to_string();
      ASSERT_TRUE(alone->step(inputs, expected).ok()) << where;
      EXPECT_EQ(metrics.loss, expected.loss) << where;
      EXPECT_EQ(metrics.gradient_norm, expected.gradient_norm) << where;
      EXPECT_EQ(*several->results().step_scalar("gradient_norm"), expected.gradient_norm) << where;
      expect_equal_state(*several, *alone, where);
      double evaluated = 0, there = 1;
      ASSERT_TRUE(several->evaluate(inputs, evaluated).ok()) << where;
      ASSERT_TRUE(alone->evaluate(inputs, there).ok()) << where;
      EXPECT_EQ(evaluated, there) << where;
    }
  }
}

TEST(Shapes, ShareOneArenaAndTheStateOfOne) {
  for (const Layout& layout : layouts) {
    const auto several = layout_plan(options_of(shapes, layout.ranks, layout.strategy));
    ASSERT_TRUE(several.ok()) << layout.name << ": " << several.status().to_string();
    int64_t largest = 0;
    for (const Sizes& sizes : shapes) {
      const auto alone = layout_plan(options_of({sizes}, layout.ranks, layout.strategy));
      ASSERT_TRUE(alone.ok()) << layout.name;
      largest = std::max(largest, PlanMemory(**alone).arena());
      EXPECT_EQ((*several)->state().bytes(), (*alone)->state().bytes()) << layout.name;
    }
    EXPECT_EQ(PlanMemory(**several).arena(), largest) << layout.name;
    const std::string text = (*several)->explain();
    EXPECT_NE(text.find("shape 1: x f32[8,6,12], target i64[8,6]; train@1 needs "), std::string::npos) << text;
    EXPECT_NE(text.find("of which evaluate@2 needs"), std::string::npos) << text;

    // To the byte, whichever shapes have run.
    const auto session = session_of(options_of(shapes, layout.ranks, layout.strategy));
    StepMetrics metrics;
    ASSERT_TRUE(session->step(batch_of(shapes[2], 0), metrics).ok());
    EXPECT_LT(session->memory_bytes_used(), PlanMemory(**several).peak()) << layout.name;
    for (const Sizes& sizes : shapes) ASSERT_TRUE(session->step(batch_of(sizes, 1), metrics).ok());
    EXPECT_EQ(session->memory_bytes_used(), PlanMemory(**several).peak()) << layout.name;
  }
}

TEST(Shapes, OtherShapesAreRefusedByNamingThose) {
  const auto session = session_of(options_of(shapes, 1, "{}"));
  StepMetrics metrics;
  const std::string why = session->step(batch_of({8, 5}, 0), metrics).message();
  EXPECT_NE(why.find("input x is f32[8,4,12] in the plan, got f32[8,5,12]; no shape of the plan is like this: x "
                     "f32[8,4,12], target i64[8,4]; x f32[8,6,12], target i64[8,6]; x f32[4,4,12], target i64[4,4]"),
            std::string::npos)
      << why;
  EXPECT_NE(session->step(batch_of({3, 4}, 0), metrics).message().find("a shape of 3"), std::string::npos);
  EXPECT_EQ(session->host_state().steps_done(), 0);
  std::vector<Tensor> mixed = batch_of(shapes[0], 0);
  mixed[1] = batch_of(shapes[1], 0)[1];
  EXPECT_FALSE(session->step(mixed, metrics).ok());

  const auto twice = layout_plan(options_of({{8, 4}, {8, 6}, {8, 4}}, 1, "{}"));
  EXPECT_EQ(twice.status().message(), "shape 2: its inputs are those of shape 0: x f32[8,4,12], target i64[8,4]");
}

TEST(Shapes, EvaluationCountsAllOfThemAndPartsOfThem) {
  const auto plan = layout_plan(options_of(shapes, 1, "{}")).value();
  auto owner = Session::create(test_host(2), plan, {.seed = 7});
  auto counted = Evaluation::create(plan, "accuracy");
  double terms = 0, weights = 0;
  for (const Sizes sizes : {Sizes{8, 4}, Sizes{8, 6}, Sizes{4, 4}, Sizes{3, 6}, Sizes{2, 4}}) {
    const std::vector<Tensor> inputs = batch_of(sizes, 3);
    ASSERT_TRUE((*counted)->add(**owner, inputs).ok());
    const auto alone = session_of(options_of({sizes}, 1, "{}"));
    double loss = 0;
    ASSERT_TRUE(alone->evaluate(inputs, loss).ok());
    double count = 0;
    for (int64_t i = 0; i < inputs[1].elements(); ++i) count += inputs[1].get_int(i) != -100;
    terms += loss * count;
    weights += count;
  }
  EXPECT_EQ((*counted)->samples(), 25);
  EXPECT_NEAR((*counted)->result("loss")->value, terms / weights, 1e-6);
}

TEST(Shapes, PredictionsAndPredictorsTakeThem) {
  const auto plan = layout_plan(options_of(shapes, 2, "{}")).value();
  std::shared_ptr<Session> session = Session::create(test_host(2), plan, {.seed = 7}).value();
  StepMetrics metrics;
  ASSERT_TRUE(session->step(batch_of(shapes[1], 0), metrics).ok());
  auto predictor = Predictor::create(session, nullptr);
  ASSERT_TRUE(predictor.ok()) << predictor.status().to_string();
  EXPECT_EQ((*predictor)->memory_bytes(), PlanMemory(*plan).prediction(0) + PlanMemory(*plan).prediction(0));
  for (const Sizes& sizes : shapes) {
    const auto alone = session_of(options_of({sizes}, 2, "{}"));
    give_state(*session, *alone);
    const TensorType type{DType::f32, {sizes.batch, sizes.length, 4}};
    std::vector<Tensor> inputs = batch_of(sizes, 1), one = {Tensor(type)}, other = {Tensor(type)},
                        there = {Tensor(type)};
    inputs.resize(1);
    ASSERT_TRUE(session->predict(inputs, one).ok());
    ASSERT_TRUE((*(*predictor)->session())->predict_into(inputs, other).ok());
    ASSERT_TRUE(alone->predict(inputs, there).ok());
    EXPECT_TRUE(identical(one[0], there[0])) << sizes.batch << " x " << sizes.length;
    EXPECT_TRUE(identical(other[0], there[0])) << sizes.batch << " x " << sizes.length;
  }
}

TEST(Shapes, DecisionsOfAFileAreThoseOfEachShape) {
  const auto made = layout_plan(options_of(shapes, 2, R"({"default": {"split": 2}})")).value();
  const auto file =
      std::make_shared<const PlanFile>(parse_plan_file(print_plan_file(decisions_of(*made, "1"))).value());
  ASSERT_NE(file->entry("train@2"), nullptr);
  PlanOptions again = options_of(shapes, 2, R"({"default": {"split": 2}})").value();
  again.decisions = file;
  const auto loaded = CompiledPlan::create(test_host(2), again);
  ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
  for (int shape = 0; shape < 3; ++shape)
    EXPECT_EQ(*(*loaded)->text(EntryKind::train, "program", shape), *made->text(EntryKind::train, "program", shape));
  again.shapes[1].binding = binding_of({2, 4});
  EXPECT_NE(CompiledPlan::create(test_host(2), again).status().message().find("another train@2 graph"),
            std::string::npos);
}

// What plans are chosen by for a budget.
TEST(Shapes, EachCountsInTheTimeOfAStep) {
  for (const char* strategy : {"{}", R"({"gradient_checkpoint.type": "auto", "pipeline.num_micro_batch": 2})"}) {
    const auto of = [&](const std::vector<Sizes>& some) {
      const auto plan = layout_plan(options_of(some, 1, strategy)).value();
      return std::pair(seconds_of_step(test_host(2), plan).value(), seconds_again(*plan));
    };
    const auto all = of(shapes);
    std::pair<double, double> sum;
    for (const Sizes& sizes : shapes) {
      const auto one = of({sizes});
      sum.first += one.first;
      sum.second += one.second;
    }
    EXPECT_NEAR(all.first, sum.first / 3, 1e-12) << strategy;
    EXPECT_NEAR(all.second, sum.second / 3, 1e-12) << strategy;
    EXPECT_NE(all.first, of({shapes.front()}).first) << strategy;
  }
}

TEST(Shapes, SlicesTellThemApart) {
  const Result<PlanOptions> options = options_of(shapes, 2, layouts[5].strategy);
  const auto plan = layout_plan(options).value();
  const auto sliced = Session::create(test_host(2), plan, {.seed = 7, .slices = true});
  ASSERT_TRUE(sliced.ok()) << sliced.status().to_string();  // all ranks are here
  StepMetrics metrics;
  for (const Sizes& sizes : shapes) EXPECT_TRUE((*sliced)->step(batch_of(sizes, 0), metrics).ok());
}

}  // namespace
}  // namespace epl::shapes_test
