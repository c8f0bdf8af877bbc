// What a trainer says of a model's inputs and of where its loss is applied: names that do not exist are errors, inputs
// need not count samples, and files made for inference can be trained as they are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "core/capi/objects.h"
#include "tests/onnx/make_model.h"
#include "tests/temporary_folder.h"

namespace epl::capi::binding_test {
namespace {

using namespace epl::onnx::testing;

struct Outcome {
  explicit Outcome(epl_error* error) : code(epl_error_code(error)), message(epl_error_message(error, nullptr)) {
    epl_error_destroy(error);
  }
  int32_t code;
  std::string message;
};
#define EXPECT_OK(call)                                 \
  do {                                                  \
    Outcome outcome(call);                              \
    EXPECT_EQ(outcome.code, EPL_OK) << outcome.message; \
  } while (0)

class BindingApi : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_OK(epl_engine_create(nullptr, &engine));
    EXPECT_OK(epl_trainer_create(engine, &trainer));
  }
  void TearDown() override {
    for (epl_tensor* tensor : tensors) epl_tensor_destroy(tensor);
    epl_session_destroy(session);
    epl_plan_destroy(plan);
    epl_model_destroy(model);
    epl_trainer_destroy(trainer);
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }
  void load(const Message& bytes) {
    EXPECT_OK(epl_model_load_bytes(engine, bytes.data(), bytes.size(), nullptr, nullptr, &model));
  }
  void set(const std::string& key, const std::string& value) {
    EXPECT_OK(epl_trainer_set(trainer, key.data(), key.size(), value.data(), value.size()));
  }
  void symbol(const std::string& name, int64_t size) {
    EXPECT_OK(epl_trainer_bind_symbol(trainer, name.data(), name.size(), size));
  }
  void batch_dim(const std::string& name, int32_t dim) {
    EXPECT_OK(epl_trainer_bind_batch_dim(trainer, name.data(), name.size(), dim));
  }
  Outcome make_plan(int64_t ranks = 1) {
    epl_plan_destroy(plan);
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = ranks;
    return Outcome(epl_plan_create(model, trainer, nullptr, &options, nullptr, &plan));
  }
  std::string notes() {
    epl_text* text = nullptr;
    EXPECT_OK(epl_plan_describe(plan, EPL_STR("notes"), nullptr, &text));
    std::string out(epl_text_data(text, nullptr));
    epl_text_destroy(text);
    return out;
  }
  template <class T> epl_tensor* tensor(int32_t dtype, std::vector<int64_t> dims, std::vector<T> values) {
    epl_tensor* made = nullptr;
    EXPECT_OK(epl_tensor_create_copy(engine, dtype, dims.data(), static_cast<int32_t>(dims.size()), values.data(),
                                     values.size() * sizeof(T), &made));
    tensors.push_back(made);
    return made;
  }
  epl_tensor* floats(std::vector<int64_t> dims, std::vector<float> values) {
    return tensor(EPL_DTYPE_F32, std::move(dims), std::move(values));
  }
  // The loss of one step, inputs by the plan's names.
  double step(const std::map<std::string, epl_tensor*>& values) {
    epl_session_destroy(session);
    session = nullptr;
    EXPECT_OK(epl_session_create(plan, nullptr, nullptr, &session));
    std::vector<const epl_tensor*> inputs;
    for (int64_t i = 0; i < epl_plan_port_count(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT); ++i) {
      epl_tensor_info port = EPL_TENSOR_INFO_INIT;
      EXPECT_OK(epl_plan_port(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i, &port));
      const auto it = values.find(port.name);
      EXPECT_NE(it, values.end()) << "no value for " << port.name;
      inputs.push_back(it == values.end() ? nullptr : it->second);
    }
    EXPECT_EQ(inputs.size(), values.size());
    epl_metrics metrics = EPL_METRICS_INIT;
    EXPECT_OK(epl_session_step(session, inputs.data(), inputs.size(), nullptr, &metrics));
    return metrics.loss;
  }

  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_trainer* trainer = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  std::vector<epl_tensor*> tensors;
};

const Tensor weight = Tensor::from_floats({2, 3}, {1, 0, 2, 0, 1, 3});

// x[batch,2] @ weight, then `more`, which makes `out`.
Message product(const std::vector<Message>& more, const std::string& out, const std::vector<std::string>& out_dims) {
  Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"})};
  parts.nodes.insert(parts.nodes.end(), more.begin(), more.end());
  parts.initializers = {onnx::testing::tensor("layer.weight", weight)};
  parts.inputs = {port("x", {"batch", "2"})};
  parts.outputs = {port(out, out_dims)};
  return model(parts, {}, {.opset = 17});
}
Message mean_of(const Ints& axes) {
  return node("ReduceMean", {"y"}, {"z"}, {attribute("keepdims", int64_t{0}), attribute("axes", axes)});
}

TEST_F(BindingApi, AScalarOutputHasATargetOfNoDimension) {
  load(product({mean_of({0, 1})}, "z", {}));
  symbol("batch", 4);
  // Every row is (1, 2) @ weight = (1, 2, 8); the mean is 11/3.
  epl_tensor *x = floats({4, 2}, {1, 2, 1, 2, 1, 2, 1, 2}), *target = floats({}, {1});
  set("loss", "mse");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NEAR(step({{"x", x}, {"target", target}}), std::pow(11.0 / 3 - 1, 2), 1e-5);
  set("loss", "bce_with_logits");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NEAR(step({{"x", x}, {"target", target}}), std::log1p(std::exp(11.0 / 3)) - 11.0 / 3, 1e-5);
}

TEST_F(BindingApi, ScoresOfTheFullBatchHaveOneClass) {
  load(product({mean_of({0})}, "z", {"3"}));
  symbol("batch", 4);
  EXPECT_EQ(make_plan().message, "");
  const double scores[3] = {1, 2, 8};
  const double expected = std::log(std::exp(scores[0]) + std::exp(scores[1]) + std::exp(scores[2])) - scores[1];
  EXPECT_NEAR(
      step({{"x", floats({4, 2}, {1, 2, 1, 2, 1, 2, 1, 2})}, {"target", tensor<int64_t>(EPL_DTYPE_I64, {}, {1})}}),
      expected, 1e-5);
}

TEST_F(BindingApi, NamesThatTheModelLacksAreErrorsOfThePlan) {
  load(product({}, "y", {"batch", "3"}));
  const int64_t dims[2] = {4, 2};
  const auto refused = [&](const std::string& text) {
    const Outcome outcome = make_plan();
    EXPECT_NE(outcome.code, EPL_OK);
    EXPECT_NE(outcome.message.find(text), std::string::npos) << outcome.message;
    epl_trainer_destroy(trainer);
    EXPECT_OK(epl_trainer_create(engine, &trainer));
    symbol("batch", 4);
  };
  symbol("bacth", 4);
  refused("did you mean batch?");
  EXPECT_OK(epl_trainer_bind_input(trainer, EPL_STR("xx"), EPL_DTYPE_NONE, dims, 2));
  refused("a shape is bound to \"xx\"");
  batch_dim("tagret", 0);
  refused("did you mean target?");
  EXPECT_OK(epl_trainer_bind_value(trainer, EPL_STR("sr"), floats({}, {1})));
  refused("a value is bound to \"sr\"");
  EXPECT_OK(epl_trainer_bind_input(trainer, EPL_STR("x"), EPL_DTYPE_F16, dims, 2));
  refused("input x is f32 in the model and bound as f16");
  EXPECT_EQ(make_plan().message, "");
}

TEST_F(BindingApi, WithoutALossAPlanPredictsAtAnySize) {
  load(product({}, "y", {"batch", "3"}));
  set("loss", "none");
  symbol("batch", 5);
  EXPECT_EQ(make_plan().message, "");
  EXPECT_EQ(epl_plan_port_count(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT), 0);
  EXPECT_EQ(epl_plan_port_count(plan, EPL_ENTRY_PREDICT, EPL_PORT_INPUT), 1);
  epl_plan* without_a_trainer = nullptr;
  EXPECT_NE(
      Outcome(epl_plan_create(model, nullptr, nullptr, nullptr, nullptr, &without_a_trainer)).message.find("batch"),
      std::string::npos);
}

TEST_F(BindingApi, DimensionsHaveTheirSymbols) {
  load(product({}, "y", {"batch", "3"}));
  size_t length = 9;
  EXPECT_STREQ(epl_model_dim_symbol(model, EPL_PORT_INPUT, 0, 0, &length), "batch");
  EXPECT_EQ(length, 5u);
  EXPECT_STREQ(epl_model_dim_symbol(model, EPL_PORT_INPUT, 0, 1, nullptr), "");
  EXPECT_STREQ(epl_model_dim_symbol(model, EPL_PORT_INPUT, 1, 0, nullptr), "");
  EXPECT_STREQ(epl_model_dim_symbol(model, EPL_PORT_INITIALIZER, 0, 0, nullptr), "");
  EXPECT_STREQ(epl_model_dim_symbol(nullptr, EPL_PORT_INPUT, 0, 7, nullptr), "");
}

// x[n,2] times table[3,2]: the table is the same for every sample.
Message with_table() {
  Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"h"}), node("Transpose", {"table"}, {"columns"}),
                 node("MatMul", {"h", "columns"}, {"y"})};
  parts.initializers = {onnx::testing::tensor("layer.weight", Tensor::from_floats({2, 2}, {1, 2, 3, 4}))};
  parts.inputs = {port("x", {"n", "2"}), port("table", {"rows", "2"})};
  parts.outputs = {port("y", {"n", "rows"})};
  return model(parts, {}, {.opset = 17});
}

TEST_F(BindingApi, InputsThatDisagreeCountNoSamplesUntilTheyAreNamed) {
  load(with_table());
  symbol("n", 4);
  symbol("rows", 3);
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("x has 4, table has 3"), std::string::npos) << notes();
  const std::map<std::string, epl_tensor*> values = {{"x", floats({4, 2}, {1, 0, 0, 1, 1, 1, 2, 1})},
                                                     {"table", floats({3, 2}, {1, 0, 0, 1, 1, 1})},
                                                     {"target", tensor<int64_t>(EPL_DTYPE_I64, {4}, {0, 1, 2, 0})}};
  const double whole = step(values);
  EXPECT_EQ(make_plan(2).message, "") << "each rank computes all of it";
  EXPECT_EQ(step(values), whole);

  batch_dim("table", -1);
  EXPECT_EQ(make_plan(2).message, "");
  EXPECT_EQ(notes(), "[]");
  EXPECT_NEAR(step(values), whole, 1e-6);
  batch_dim("x", 0);
  batch_dim("table", 0);
  const Outcome named = make_plan();
  EXPECT_NE(named.message.find("input table has 3 samples in dimension 0"), std::string::npos) << named.message;
}

TEST_F(BindingApi, OneNamedInputLeavesTheOthersTheirChoice) {
  load(with_table());
  symbol("n", 4);
  symbol("rows", 3);
  batch_dim("x", 0);
  EXPECT_EQ(make_plan(2).message, "");
  EXPECT_NE(notes().find("input table has 3 in its first dimension"), std::string::npos) << notes();
}

TEST_F(BindingApi, TheTargetMayCountSamplesElsewhere) {
  Parts parts;  // time-major scores [2, n, 3]
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"})};
  parts.initializers = {onnx::testing::tensor("layer.weight", weight)};
  parts.inputs = {port("x", {"2", "n", "2"})};
  parts.outputs = {port("y", {"2", "n", "3"})};
  load(onnx::testing::model(parts, {}, {.opset = 17}));
  symbol("n", 4);
  batch_dim("x", 1);
  batch_dim("target", 1);
  EXPECT_EQ(make_plan(2).message, "");
  EXPECT_EQ(notes(), "[]");
  batch_dim("target", 2);
  const Outcome wrong = make_plan();
  EXPECT_NE(wrong.message.find("has no dimension 2"), std::string::npos) << wrong.message;
}

TEST_F(BindingApi, ALossMayBeAppliedInsideTheGraph) {
  load(product({node("Relu", {"y"}, {"r"}), mean_of({1})}, "z", {"batch"}));
  symbol("batch", 2);
  set("loss", "mse");
  set("loss.output", "r");
  EXPECT_EQ(make_plan().message, "");
  // Rows (-1, -2, -8) and (1, 2, 8), rectified, against ones.
  EXPECT_NEAR(step({{"x", floats({2, 2}, {-1, -2, 1, 2})}, {"target", floats({2, 3}, {1, 1, 1, 1, 1, 1})}}),
              (3 + 0 + 1 + 49) / 6.0, 1e-5);
  EXPECT_EQ(epl_plan_port_count(plan, EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT), 1)
      << "predict gives the model's own outputs";
  set("loss.output", "rr");
  EXPECT_NE(make_plan().message.find("no output rr"), std::string::npos);
}

double cross_entropy(const std::vector<double>& scores, size_t target) {
  double sum = 0;
  for (double score : scores) sum += std::exp(score);
  return std::log(sum) - scores[target];
}

TEST_F(BindingApi, ALastSoftmaxIsPeeledAndSaid) {
  load(product({node("Softmax", {"y"}, {"p"}, {attribute("axis", int64_t{1})})}, "p", {"batch", "3"}));
  symbol("batch", 1);
  const std::map<std::string, epl_tensor*> values = {{"x", floats({1, 2}, {0.5F, 0.25F})},
                                                     {"target", tensor<int64_t>(EPL_DTYPE_I64, {1}, {1})}};
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("the last softmax (node node_p)"), std::string::npos) << notes();
  const std::vector<double> scores = {0.5, 0.25, 1.75};
  EXPECT_NEAR(step(values), cross_entropy(scores, 1), 1e-6);
  set("loss.peel", "false");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_EQ(notes(), "[]");
  std::vector<double> shares;
  for (double score : scores) shares.push_back(std::exp(score - cross_entropy(scores, 0) - scores[0]));
  EXPECT_NEAR(step(values), cross_entropy(shares, 1), 1e-6);
}

TEST_F(BindingApi, ALastSigmoidIsPeeledForLogitsAlone) {
  load(product({node("Sigmoid", {"y"}, {"p"})}, "p", {"batch", "3"}));
  symbol("batch", 1);
  set("loss", "bce_with_logits");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("the last sigmoid"), std::string::npos) << notes();
  const auto bce = [](double x, double t) { return std::log1p(std::exp(x)) - x * t; };
  EXPECT_NEAR(step({{"x", floats({1, 2}, {0.5F, 0.25F})}, {"target", floats({1, 3}, {1, 0, 1})}}),
              (bce(0.5, 1) + bce(0.25, 0) + bce(1.75, 1)) / 3, 1e-6);
  set("loss", "mse");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_EQ(notes(), "[]") << "mse takes the output as it is";
  set("loss", "softmax_cross_entropy");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("takes scores, but the output comes from sigmoid"), std::string::npos) << notes();
}

TEST_F(BindingApi, ASoftmaxOverAnotherAxisIsNotPeeledButSaid) {
  load(product({node("Softmax", {"y"}, {"p"}, {attribute("axis", int64_t{0})})}, "p", {"batch", "3"}));
  symbol("batch", 2);
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("takes scores, but the output comes from softmax"), std::string::npos) << notes();
}

// What comes after a softmax or a sigmoid and only puts its results elsewhere is put after the scores as well.
TEST_F(BindingApi, ASoftmaxUnderAnotherShapeIsPeeled) {
  const Message wide = onnx::testing::tensor("wide", Tensor::from_ints({-1, 3, 1})),
                back = onnx::testing::tensor("back", Tensor::from_ints({-1, 3}));
  Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"}), node("Reshape", {"y", "wide"}, {"w"}),
                 node("Softmax", {"w"}, {"p"}, {attribute("axis", int64_t{1})}), node("Identity", {"p"}, {"i"}),
                 node("Reshape", {"i", "back"}, {"q"})};
  parts.initializers = {onnx::testing::tensor("layer.weight", weight), wide, back};
  parts.inputs = {port("x", {"batch", "2"})};
  parts.outputs = {port("q", {"batch", "3"})};
  load(onnx::testing::model(parts, {}, {.opset = 17}));
  symbol("batch", 1);
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("the last softmax (node node_p)"), std::string::npos) << notes();
  const std::map<std::string, epl_tensor*> values = {{"x", floats({1, 2}, {0.5F, 0.25F})},
                                                     {"target", tensor<int64_t>(EPL_DTYPE_I64, {1}, {1})}};
  EXPECT_NEAR(step(values), cross_entropy({0.5, 0.25, 1.75}, 1), 1e-6);
}

TEST_F(BindingApi, ASoftmaxThatIsTurnedAfterwardsIsPeeledOverItsOwnAxis) {
  load(product({node("Softmax", {"y"}, {"p"}, {attribute("axis", int64_t{1})}),
                node("Transpose", {"p"}, {"t"}, {attribute("perm", Ints{1, 0})})},
               "t", {"3", "batch"}));
  symbol("batch", 2);
  batch_dim("x", -1);
  batch_dim("target", -1);
  // Scores (0.5, 0.25, 1.75) and (1, 1, 5); the classes are the first dimension of the output.
  const std::map<std::string, epl_tensor*> values = {{"x", floats({2, 2}, {0.5F, 0.25F, 1, 1})},
                                                     {"target", tensor<int64_t>(EPL_DTYPE_I64, {2}, {1, 0})}};
  const int64_t dims[1] = {2};
  EXPECT_OK(epl_trainer_bind_input(trainer, EPL_STR("target"), EPL_DTYPE_I64, dims, 1));
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("the last softmax (node node_p)"), std::string::npos) << notes();
  EXPECT_NEAR(step(values), (cross_entropy({0.5, 0.25, 1.75}, 1) + cross_entropy({1, 1, 5}, 0)) / 2, 1e-6);
}

// Rows of a softmax that are cut into other rows have no scores.
TEST_F(BindingApi, ASoftmaxWhoseClassesAreTornApartIsNotPeeledButSaid) {
  Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"}),
                 node("Softmax", {"y"}, {"p"}, {attribute("axis", int64_t{1})}),
                 node("Reshape", {"p", "turned"}, {"q"})};
  parts.initializers = {onnx::testing::tensor("layer.weight", weight),
                        onnx::testing::tensor("turned", Tensor::from_ints({3, 2}))};
  parts.inputs = {port("x", {"2", "2"})};
  parts.outputs = {port("q", {"3", "2"})};
  load(onnx::testing::model(parts, {}, {.opset = 17}));
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("takes scores, but the output comes from softmax"), std::string::npos) << notes();
}

TEST_F(BindingApi, ASigmoidUnderAnotherShapeIsPeeled) {
  load(product({node("Sigmoid", {"y"}, {"p"}), node("Transpose", {"p"}, {"t"}, {attribute("perm", Ints{1, 0})}),
                node("Transpose", {"t"}, {"u"}, {attribute("perm", Ints{1, 0})})},
               "u", {"batch", "3"}));
  symbol("batch", 1);
  set("loss", "bce_with_logits");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("the last sigmoid"), std::string::npos) << notes();
  const auto bce = [](double x, double t) { return std::log1p(std::exp(x)) - x * t; };
  EXPECT_NEAR(step({{"x", floats({1, 2}, {0.5F, 0.25F})}, {"target", floats({1, 3}, {1, 0, 1})}}),
              (bce(0.5, 1) + bce(0.25, 0) + bce(1.75, 1)) / 3, 1e-6);
}

// Detectors end in what cannot be trained; a loss before that trains what can.
TEST_F(BindingApi, OutputsThatNeedWhatIsNotSupportedAreLeftOutForALossElsewhere) {
  load(product({node("Relu", {"y"}, {"r"}), node("Unique", {"r"}, {"n"}),
                node("Cast", {"n"}, {"z"}, {attribute("to", int64_t{1})})},
               "z", {"found"}));
  symbol("batch", 2);
  set("loss", "mse");
  const Outcome refused = make_plan();
  EXPECT_EQ(refused.code, EPL_ERROR_UNSUPPORTED);
  EXPECT_NE(refused.message.find("Unique (node node_n): the size of its result depends on data"), std::string::npos)
      << refused.message;
  EXPECT_NE(refused.message.find("loss.output"), std::string::npos) << refused.message;
  set("loss.output", "r");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NE(notes().find("left out, since the loss is on another tensor: z"), std::string::npos) << notes();
  EXPECT_NEAR(step({{"x", floats({2, 2}, {-1, -2, 1, 2})}, {"target", floats({2, 3}, {1, 1, 1, 1, 1, 1})}}),
              (3 + 0 + 1 + 49) / 6.0, 1e-5);
  epl_tensor_info port = EPL_TENSOR_INFO_INIT;
  ASSERT_EQ(epl_plan_port_count(plan, EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT), 1);
  EXPECT_OK(epl_plan_port(plan, EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT, 0, &port));
  EXPECT_STREQ(port.name, "r");
  set("loss.output", "z");
  EXPECT_EQ(make_plan().code, EPL_ERROR_UNSUPPORTED);
}

// An operator that is read, but not of what data decides.
TEST_F(BindingApi, SizesThatDataDecidesAreLeftOutForALossBeforeThem) {
  load(product({node("Relu", {"y"}, {"r"}), node("NonZero", {"r"}, {"n"}),
                node("Cast", {"n"}, {"z"}, {attribute("to", int64_t{1})})},
               "z", {"2", "found"}));
  symbol("batch", 2);
  set("loss", "mse");
  const Outcome refused = make_plan();
  EXPECT_EQ(refused.code, EPL_ERROR_UNSUPPORTED);
  EXPECT_NE(refused.message.find("must be known when the model is bound"), std::string::npos) << refused.message;
  set("loss.output", "r");
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NEAR(step({{"x", floats({2, 2}, {-1, -2, 1, 2})}, {"target", floats({2, 3}, {1, 1, 1, 1, 1, 1})}}),
              (3 + 0 + 1 + 49) / 6.0, 1e-5);
}

// Of branches that data chooses from, the results have one shape, but the loss may stand before them.
TEST_F(BindingApi, BranchesOfOtherShapesAreLeftOutForALossBeforeThem) {
  Parts same, twice;
  same.nodes = {node("Identity", {"y"}, {"a"})};
  same.outputs = {port("a", {})};
  twice.nodes = {node("Concat", {"y", "y"}, {"b"}, {attribute("axis", int64_t{0})})};
  twice.outputs = {port("b", {})};
  load(product(
      {node("ReduceMax", {"y"}, {"top"}, {attribute("keepdims", int64_t{0})}),
       node("Cast", {"top"}, {"yes"}, {attribute("to", int64_t{onnx::schema::TensorProto::DataType_BOOL})}),
       node("If", {"yes"}, {"z"}, {subgraph("then_branch", graph(same)), subgraph("else_branch", graph(twice))})},
      "z", {"batch", "3"}));
  symbol("batch", 2);
  set("loss", "mse");
  EXPECT_NE(make_plan().message.find("f32[2,3] or f32[4,3], as data says (input \"x\")"), std::string::npos);
  set("loss.output", "y");
  EXPECT_EQ(make_plan().message, "");
}

// y = x @ weight rounded to quarters from -1 to 63/4 - 1: the loss is that of the rounded numbers, and weights move by
// the gradient of numbers that are not rounded, but for those beyond the range.
TEST_F(BindingApi, QuantisedActivationsAreRoundedAndLetTheGradientThrough) {
  Tensor zero(TensorType{DType::u8, {}});
  zero.set_int(0, 4);
  Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"}), node("QuantizeLinear", {"y", "scale", "zero"}, {"q"}),
                 node("DequantizeLinear", {"q", "scale", "zero"}, {"z"})};
  parts.initializers = {onnx::testing::tensor("layer.weight", Tensor::from_floats({2, 3}, {0.3F, -5, 80, 0.4F, 0, 0})),
                        onnx::testing::tensor("scale", Tensor::from_floats({}, {0.25F})),
                        onnx::testing::tensor("zero", zero)};
  parts.inputs = {port("x", {"batch", "2"})};
  parts.outputs = {port("z", {"batch", "3"})};
  load(onnx::testing::model(parts, {}, {.opset = 17}));
  symbol("batch", 1);
  set("loss", "mse");
  set("optimizer", "sgd");
  EXPECT_OK(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.75));
  EXPECT_EQ(make_plan().message, "");
  // y = (0.7, -5, 80); rounded and cut to the range it is (0.75, -1, 62.75).
  EXPECT_NEAR(step({{"x", floats({1, 2}, {1, 1})}, {"target", floats({1, 3}, {0, 0, 0})}}),
              (0.75 * 0.75 + 1 + 62.75 * 62.75) / 3, 1e-3);
  epl_tensor* after = nullptr;
  EXPECT_OK(epl_session_get(session, EPL_STR("layer.weight"), nullptr, &after));
  // The gradient of the first column is 2/3 * 0.75 for both weights, the others' are beyond the range.
  const float expected[6] = {0.3F - 0.375F, -5, 80, 0.4F - 0.375F, 0, 0};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(static_cast<const float*>(epl_tensor_data(after))[i], expected[i], 1e-6) << i;
  epl_tensor_destroy(after);
}

// fast ? x @ weight : relu(x @ weight)
Message with_choice() {
  Parts yes, no, parts;
  yes.nodes = {node("MatMul", {"x", "layer.weight"}, {"a"})};
  yes.outputs = {port("a", {})};
  no.nodes = {node("MatMul", {"x", "layer.weight"}, {"m"}), node("Relu", {"m"}, {"b"})};
  no.outputs = {port("b", {})};
  parts.nodes = {
      node("Equal", {"rate", "fast"}, {"same"}),
      node("If", {"same"}, {"y"}, {subgraph("then_branch", graph(yes)), subgraph("else_branch", graph(no))})};
  parts.initializers = {onnx::testing::tensor("layer.weight", weight),
                        onnx::testing::tensor("fast", Tensor::from_ints({16000}))};
  parts.inputs = {port("x", {"n", "2"}), port("rate", {"1"}, onnx::schema::TensorProto::DataType_INT64)};
  parts.outputs = {port("y", {"n", "3"})};
  return model(parts, {}, {.opset = 17});
}

TEST_F(BindingApi, AnInputOfOneValueDecidesABranch) {
  load(with_choice());
  symbol("n", 1);
  set("loss", "mse");
  EXPECT_EQ(make_plan().message, "");  // both branches are there, and each step says which one it takes
  const std::map<std::string, epl_tensor*> values = {{"x", floats({1, 2}, {-1, 1})},
                                                     {"target", floats({1, 3}, {0, 0, 0})}};
  // A number is a number: the type of the input is the model's.
  EXPECT_OK(epl_trainer_bind_value(trainer, EPL_STR("rate"), floats({}, {16000})));
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NEAR(step(values), (1 + 1 + 1) / 3.0, 1e-6);
  EXPECT_OK(epl_trainer_bind_value(trainer, EPL_STR("rate"), tensor<int64_t>(EPL_DTYPE_I64, {}, {8000})));
  EXPECT_EQ(make_plan().message, "");
  EXPECT_NEAR(step(values), (0 + 1 + 1) / 3.0, 1e-6);
  EXPECT_OK(epl_trainer_bind_value(trainer, EPL_STR("rate"), floats({}, {0.5F})));
  EXPECT_NE(make_plan().message.find("0.5 is not an integer"), std::string::npos);
  EXPECT_OK(epl_trainer_bind_value(trainer, EPL_STR("rate"), floats({2}, {1, 2})));
  EXPECT_NE(make_plan().message.find("one number, or as many as the input has"), std::string::npos);
}

// A file whose batch is 1 in its input and in the constant of a Reshape.
Message with_fixed_batch(const Message& last) {
  Parts parts;
  parts.nodes = {node("Reshape", {"x", "shape"}, {"rows"}), node("MatMul", {"rows", "layer.weight"}, {"h"}), last};
  parts.initializers = {onnx::testing::tensor("layer.weight", weight),
                        onnx::testing::tensor("shape", Tensor::from_ints({1, 2})),
                        onnx::testing::tensor("zero", Tensor::from_ints({0}))};
  parts.inputs = {port("x", {"1", "2", "1"})};
  parts.outputs = {port("y", {"1", "3"})};
  return model(parts, {}, {.opset = 17});
}

TEST_F(BindingApi, AFixedBatchIsFreedWhereSamplesAreIndependent) {
  load(with_fixed_batch(node("Relu", {"h"}, {"y"})));
  const int64_t dims[3] = {4, 2, 1};
  set("loss", "mse");
  EXPECT_OK(epl_trainer_bind_input(trainer, EPL_STR("x"), EPL_DTYPE_NONE, dims, 3));
  EXPECT_NE(make_plan().message.find("is fixed at 1 in the file"), std::string::npos);
  set("free_batch", "true");
  EXPECT_EQ(make_plan(2).message, "");
  // Rows (1, 0, 2), (0, 1, 3), (1, 1, 5), (0, 0, 0) against zeros.
  EXPECT_NEAR(
      step({{"x", floats({4, 2, 1}, {1, 0, 0, 1, 1, 1, 0, 0})}, {"target", floats({4, 3}, std::vector<float>(12, 0))}}),
      (1 + 4 + 1 + 9 + 1 + 1 + 25) / 12.0, 1e-5);
}

TEST_F(BindingApi, ABatchThatANodeNeedsIsNotFreed) {
  load(with_fixed_batch(node("Gather", {"h", "zero"}, {"y"}, {attribute("axis", int64_t{0})})));  // sample 0 of all
  const int64_t dims[3] = {4, 2, 1};
  set("loss", "mse");
  set("free_batch", "true");
  EXPECT_OK(epl_trainer_bind_input(trainer, EPL_STR("x"), EPL_DTYPE_NONE, dims, 3));
  const Outcome outcome = make_plan();
  EXPECT_EQ(outcome.code, EPL_ERROR_UNSUPPORTED);
  EXPECT_NE(outcome.message.find("the batch cannot be freed: node node_y"), std::string::npos) << outcome.message;
}

TEST_F(BindingApi, WeightsOf16BitsHaveMastersOf32) {
  Tensor half({DType::f16, {2, 3}});
  for (int64_t i = 0; i < 6; ++i) half.set(i, weight.get(i));
  Parts parts;
  parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"})};
  parts.initializers = {onnx::testing::tensor("layer.weight", half)};
  parts.inputs = {port("x", {"n", "2"}, onnx::schema::TensorProto::DataType_FLOAT16)};
  parts.outputs = {port("y", {"n", "3"}, onnx::schema::TensorProto::DataType_FLOAT16)};
  load(onnx::testing::model(parts, {}, {.opset = 17}));
  symbol("n", 1);
  set("loss", "mse");
  set("optimizer", "adam");
  set("optimizer.lr", "0.0001");  // a tenth of a rounding of 1 in float16
  EXPECT_EQ(make_plan().message, "");
  EXPECT_OK(epl_session_create(plan, nullptr, nullptr, &session));
  Tensor x({DType::f16, {1, 2}});
  x.set(0, 1);
  x.set(1, 0.5);
  epl_tensor* input = nullptr;
  const int64_t dims[2] = {1, 2};
  EXPECT_OK(epl_tensor_create_copy(engine, EPL_DTYPE_F16, dims, 2, x.data(), 4, &input));
  tensors.push_back(input);
  const epl_tensor* inputs[2] = {input, floats({1, 3}, {0, 0, 0})};
  for (int i = 0; i < 50; ++i) EXPECT_OK(epl_session_step(session, inputs, 2, nullptr, nullptr));
  for (const auto& [name, type] :
       std::map<std::string, int32_t>{{"layer.weight", EPL_DTYPE_F32}, {"layer.weight.square", EPL_DTYPE_F32}}) {
    epl_tensor* value = nullptr;
    EXPECT_OK(epl_session_get(session, name.data(), name.size(), nullptr, &value));
    EXPECT_EQ(epl_tensor_dtype(value), type) << name;
    // Adam's first steps on a gradient of one sign are lr each.
    if (name == "layer.weight") {
      EXPECT_NEAR(static_cast<const float*>(epl_tensor_data(value))[0], 1 - 50 * 0.0001, 2e-4);
    }
    epl_tensor_destroy(value);
  }
  const TemporaryFolder folder;
  const std::string path = folder / "half.onnx";
  EXPECT_OK(epl_session_export_onnx(session, path.data(), path.size(), nullptr));
  epl_model* trained = nullptr;
  EXPECT_OK(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &trained));
  epl_tensor_info port = EPL_TENSOR_INFO_INIT;
  EXPECT_OK(epl_model_port(trained, EPL_PORT_INITIALIZER, 0, &port));
  EXPECT_EQ(port.dtype, EPL_DTYPE_F16);
  epl_model_destroy(trained);
}

}  // namespace
}  // namespace epl::capi::binding_test
