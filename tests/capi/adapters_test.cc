// Low-rank adapters through the C API: what their checkpoints hold, what they leave to the model's file, and what is
// refused.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "core/capi/objects.h"
#include "tests/temporary_folder.h"

namespace epl::capi::adapters_test {
namespace {

void ok(epl_error* error) { ASSERT_EQ(error, nullptr) << epl_error_message(error, nullptr); }
std::string message_of(epl_error* error) {
  std::string text = error ? epl_error_message(error, nullptr) : "";
  epl_error_destroy(error);
  return text;
}

class AdaptersApi : public testing::Test {
 protected:
  void SetUp() override {
    checkpoint = folder + "/checkpoint";
    ok(epl_engine_create(nullptr, &engine));
    load_model(5);
    const int64_t dims[] = {8, 6}, target_dims[] = {8};
    float x[48];
    int64_t target[8];
    for (int i = 0; i < 48; ++i) x[i] = std::sin(static_cast<float>(i * i % 101));
    for (int i = 0; i < 8; ++i) target[i] = i % 3;
    ok(epl_tensor_create_copy(engine, EPL_DTYPE_F32, dims, 2, x, sizeof x, &inputs[0]));
    ok(epl_tensor_create_copy(engine, EPL_DTYPE_I64, target_dims, 1, target, sizeof target, &inputs[1]));
  }
  void TearDown() override {
    for (epl_session* session : sessions) epl_session_destroy(session);
    for (epl_tensor* tensor : inputs) epl_tensor_destroy(tensor);
    epl_model_destroy(model);
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }
  void load_model(int seed) {
    const std::string path = folder + "/" + std::to_string(seed) + ".onnx",
                      options = R"({"sizes":[6,10,3],"seed":)" + std::to_string(seed) + "}";
    epl_model_destroy(model);
    model = nullptr;
    ok(epl_x_template_write(engine, EPL_STR("mlp"), options.data(), options.size(), path.data(), path.size(), nullptr));
    ok(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &model));
  }
  // A session with adapters of this rank beside what the pattern means; `inner`: the loss is of the first layer's
  // output alone.
  epl_session* session_of(const std::string& pattern, int64_t rank, uint64_t seed, bool inner = false) {
    epl_trainer* trainer = nullptr;
    epl_plan* plan = nullptr;
    epl_session* session = nullptr;
    epl_adapter_options adapters = EPL_ADAPTER_OPTIONS_INIT;
    adapters.rank = rank;
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.seed = seed;
    ok(epl_trainer_create(engine, &trainer));
    ok(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adamw")));
    ok(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 8));
    if (inner) ok(epl_trainer_set(trainer, EPL_STR("loss.output"), EPL_STR("net.0")));
    ok(epl_trainer_add_adapter(trainer, pattern.data(), pattern.size(), &adapters));
    ok(epl_plan_create(model, trainer, nullptr, &options, nullptr, &plan));
    ok(epl_session_create(plan, nullptr, nullptr, &session));
    epl_plan_destroy(plan);
    epl_trainer_destroy(trainer);
    sessions.push_back(session);
    return session;
  }
  void train(epl_session* session, int steps = 4) {
    for (int i = 0; i < steps; ++i) ok(epl_session_step(session, inputs, 2, nullptr, nullptr));
  }
  uint64_t hash(epl_session* session) {
    uint64_t value = 0;
    ok(epl_session_hash(session, nullptr, &value));
    return value;
  }
  void save(epl_session* session) {
    ok(epl_session_save(session, checkpoint.data(), checkpoint.size(), nullptr, nullptr));
  }
  std::string load(epl_session* session) {
    return message_of(epl_session_load(session, checkpoint.data(), checkpoint.size(), nullptr, nullptr));
  }
  std::string described() {
    epl_text* text = nullptr;
    ok(epl_checkpoint_describe(engine, checkpoint.data(), checkpoint.size(), nullptr, &text));
    const std::string json(epl_text_data(text, nullptr));
    epl_text_destroy(text);
    return json;
  }
  Tensor value(epl_session* session, const std::string& name) {
    epl_tensor* tensor = nullptr;
    ok(epl_session_get(session, name.data(), name.size(), nullptr, &tensor));
    const Tensor out = tensor ? tensor->tensor : Tensor();
    epl_tensor_destroy(tensor);
    return out;
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  std::string checkpoint;
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_tensor* inputs[2] = {};
  std::vector<epl_session*> sessions;
};

TEST_F(AdaptersApi, ACheckpointLeavesFrozenWeightsToTheFile) {
  epl_session* one = session_of("net.*", 2, 1);
  train(one);
  save(one);
  EXPECT_EQ(described().find("\"net.0.weight\""), std::string::npos);
  epl_session* other = session_of("net.*", 2, 99);  // its adapters begin elsewhere, and its weight is changed
  epl_tensor* zeros = nullptr;
  const int64_t dims[] = {10, 6};
  ok(epl_tensor_create(engine, EPL_DTYPE_F32, dims, 2, &zeros));
  ok(epl_session_set(other, EPL_STR("net.0.weight"), zeros, nullptr));
  EXPECT_NE(hash(other), hash(one));
  EXPECT_EQ(load(other), "");
  EXPECT_EQ(hash(other), hash(one));
  EXPECT_TRUE(identical(value(other, "net.0.weight"), value(one, "net.0.weight")));
  train(one);
  train(other);
  EXPECT_EQ(hash(other), hash(one));

  // A frozen weight that is not the file's is in the checkpoint.
  ok(epl_session_set(one, EPL_STR("net.0.weight"), zeros, nullptr));
  epl_tensor_destroy(zeros);
  save(one);
  EXPECT_NE(described().find("\"net.0.weight\""), std::string::npos);
  EXPECT_EQ(load(other), "");
  EXPECT_TRUE(identical(value(other, "net.0.weight"), value(one, "net.0.weight")));
}

TEST_F(AdaptersApi, OfAnotherModelOrRankNothingIsLoaded) {
  epl_session* one = session_of("net.*", 2, 1);
  train(one);
  save(one);
  epl_session* higher = session_of("net.*", 3, 1);
  const uint64_t before = hash(higher);
  EXPECT_NE(load(higher).find("base_model.model.net.0.lora_A.weight is f32[2,6], f32[3,6] is expected"),
            std::string::npos)
      << load(higher);
  EXPECT_EQ(hash(higher), before);
  epl_session* fewer = session_of("net.0", 2, 1);
  EXPECT_NE(load(fewer).find("lora_A.weight is not part of this session"), std::string::npos) << load(fewer);
  load_model(6);
  epl_session* elsewhere = session_of("net.*", 2, 1);
  const uint64_t untouched = hash(elsewhere);
  EXPECT_NE(load(elsewhere).find("this model has other weights"), std::string::npos) << load(elsewhere);
  EXPECT_EQ(hash(elsewhere), untouched);
  train(elsewhere, 1);
}

// An adapter that the loss does not reach has no gradient; it still is the checkpoint's, whatever seed it began at.
TEST_F(AdaptersApi, OneThatNoLossReachesIsSavedToo) {
  epl_session* one = session_of("net.*", 2, 1, true);
  train(one);
  save(one);
  epl_session* other = session_of("net.*", 2, 99, true);
  EXPECT_EQ(load(other), "");
  for (const char* name : {"base_model.model.net.2.lora_A.weight", "base_model.model.net.0.lora_A.weight",
                           "base_model.model.net.0.lora_B.weight"}) {
    EXPECT_TRUE(identical(value(other, name), value(one, name))) << name;
  }
}

TEST_F(AdaptersApi, APlanWithoutAdaptersHasNoneToExport) {
  epl_plan* plan = nullptr;
  epl_trainer* trainer = nullptr;
  epl_session* session = nullptr;
  ok(epl_trainer_create(engine, &trainer));
  ok(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 8));
  ok(epl_plan_create(model, trainer, nullptr, nullptr, nullptr, &plan));
  ok(epl_session_create(plan, nullptr, nullptr, &session));
  EXPECT_NE(message_of(epl_session_export_adapters(session, folder.data(), folder.size(), nullptr))
                .find("no low-rank adapters"),
            std::string::npos);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  epl_trainer_destroy(trainer);
}

}  // namespace
}  // namespace epl::capi::adapters_test
