// Dimensions that a file leaves open, by their names or their places.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/capi/objects.h"
#include "tests/onnx/make_model.h"

namespace epl::capi::symbols_test {
namespace {

using namespace epl::onnx::testing;

class Symbols : public ::testing::Test {
 protected:
  void SetUp() override {
    EXPECT_EQ(epl_engine_create(nullptr, &engine), nullptr);
    EXPECT_EQ(epl_trainer_create(engine, &trainer), nullptr);
    EXPECT_EQ(epl_trainer_set(trainer, EPL_STR("loss"), EPL_STR("mse")), nullptr);
  }
  void TearDown() override {
    epl_plan_destroy(plan);
    epl_model_destroy(model);
    epl_trainer_destroy(trainer);
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }
  // y = x @ weight, for x of three dimensions.
  void load(const std::vector<std::string>& dims) {
    Parts parts;
    parts.nodes = {node("MatMul", {"x", "layer.weight"}, {"y"})};
    parts.initializers = {onnx::testing::tensor("layer.weight", Tensor::from_floats({2, 3}, {1, 0, 2, 0, 1, 3}))};
    parts.inputs = {port("x", dims)};
    parts.outputs = {port("y", {"?", "?", "3"})};
    const Message bytes = onnx::testing::model(parts, {}, {.opset = 17});
    ASSERT_EQ(epl_model_load_bytes(engine, bytes.data(), bytes.size(), nullptr, nullptr, &model), nullptr);
  }
  void bind(const std::string& name, int64_t size) {
    EXPECT_EQ(epl_trainer_bind_symbol(trainer, name.data(), name.size(), size), nullptr);
  }
  // What the plan's error says, "" where there is a plan.
  std::string refusal() {
    epl_plan_destroy(plan);
    plan = nullptr;
    epl_error* error = epl_plan_create(model, trainer, nullptr, nullptr, nullptr, &plan);
    std::string out = epl_error_message(error, nullptr);
    epl_error_destroy(error);
    return out;
  }
  std::string symbol(int32_t kind, int32_t dim) const {
    size_t length = 0;
    const char* text = epl_model_dim_symbol(model, kind, 0, dim, &length);
    return {text, length};
  }
  bool says(const std::string& words) {
    const std::string message = refusal();
    return message.find(words) != std::string::npos || (ADD_FAILURE() << message, false);
  }

  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_trainer* trainer = nullptr;
  epl_plan* plan = nullptr;
};

TEST_F(Symbols, ADimensionWithoutANameIsCalledByItsPosition) {
  load({"?", "?", "2"});
  EXPECT_EQ(symbol(EPL_PORT_INPUT, 1), "x[1]");
  EXPECT_EQ(symbol(EPL_PORT_INPUT, 2), "");   // it is fixed
  EXPECT_EQ(symbol(EPL_PORT_OUTPUT, 1), "");  // nobody binds it
  EXPECT_TRUE(says("without a size: x[0], x[1]; bind each by its name"));
  bind("x[0]", 4);
  EXPECT_TRUE(says("without a size: x[1];"));
  bind("x[1]", 5);
  EXPECT_EQ(refusal(), "");
  epl_tensor_info info = EPL_TENSOR_INFO_INIT;
  EXPECT_EQ(epl_plan_port(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, 0, &info), nullptr);
  EXPECT_EQ(std::vector<int64_t>(info.dims, info.dims + info.ndim), (std::vector<int64_t>{4, 5, 2}));
  bind("x[2]", 7);
  EXPECT_TRUE(says("x[2], which is fixed at 2"));
}

TEST_F(Symbols, ANameGoesBeforeAPlace) {
  load({"batch", "x[0]", "2"});  // as if somebody wanted to confuse us
  EXPECT_EQ(symbol(EPL_PORT_INPUT, 0), "batch");
  EXPECT_EQ(symbol(EPL_PORT_INPUT, 1), "x[0]");
  bind("x[0]", 5);
  bind("x[1]", 6);
  EXPECT_TRUE(says("x[1], which is called"));
}

TEST_F(Symbols, APositionThatIsANameElsewhereIsBoundByTheShapeAlone) {
  load({"x[1]", "?", "2"});
  EXPECT_EQ(symbol(EPL_PORT_INPUT, 1), "");
  bind("x[1]", 4);
  EXPECT_TRUE(says("without a size: x[1]"));
}

}  // namespace
}  // namespace epl::capi::symbols_test
