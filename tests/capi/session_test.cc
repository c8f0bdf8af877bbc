// A session through the C API: the same bits after a checkpoint, cancelled and late calls that change nothing,
// mistakes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "core/base/json.h"
#include "core/capi/objects.h"
#include "core/formats/safetensors.h"
#include "tests/temporary_folder.h"

namespace epl::capi::session_test {
namespace {

void ok(epl_error* error) { ASSERT_EQ(error, nullptr) << epl_error_message(error, nullptr); }
int32_t code_of(epl_error* error, std::string* message = nullptr) {
  const int32_t code = epl_error_code(error);
  if (message) *message = epl_error_message(error, nullptr);
  epl_error_destroy(error);
  return code;
}

class SessionApi : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder + "/mlp.onnx", data = folder + "/rows.safetensors";
    ok(epl_engine_create(nullptr, &engine));
    ok(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[6,10,3],\"seed\":5}"), path.data(),
                            path.size(), nullptr));
    ok(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &model));
    ok(epl_trainer_create(engine, &trainer));
    ok(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adamw")));
    ok(epl_trainer_set(trainer, EPL_STR("report.gradient_norms"), EPL_STR("true")));
    ok(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 8));
    ok(epl_plan_create(model, trainer, nullptr, nullptr, nullptr, &plan));
    ok(epl_session_create(plan, nullptr, nullptr, &session));
    write_rows(data);
    const char options[] = "{\"batch\":8,\"order\":\"shuffled\",\"seed\":3}";
    ok(epl_dataset_open(engine, data.data(), data.size(), options, sizeof options - 1, nullptr, &dataset));
    ok(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
  }
  void TearDown() override {
    epl_engine_destroy(engine);
    epl_model_destroy(model);
    epl_trainer_destroy(trainer);
    epl_plan_destroy(plan);
    epl_session_destroy(session);
    epl_dataset_destroy(dataset);
    EXPECT_EQ(epl_live_handles(), 0);
  }
  static void write_rows(const std::string& path) {
    Tensor x(TensorType{DType::f32, {50, 6}}), target(TensorType{DType::i64, {50}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, std::sin(static_cast<double>(i * i % 101)));
    for (int64_t i = 0; i < 50; ++i) target.set_int(i, i % 3);
    ASSERT_TRUE(save_safetensors(path, {{"input.x", x}, {"target", target}}).ok());
  }
  void train(epl_session* s, epl_dataset* d, int steps) {
    for (int i = 0; i < steps; ++i) {
      ok(epl_dataset_next(d, nullptr, batch, 2));
      ok(epl_session_step(s, batch, 2, nullptr, &metrics));
    }
  }
  uint64_t hash(epl_session* s) {
    uint64_t value = 0;
    ok(epl_session_hash(s, nullptr, &value));
    return value;
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_trainer* trainer = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  epl_dataset* dataset = nullptr;
  const epl_tensor* batch[2] = {};
  epl_metrics metrics = EPL_METRICS_INIT;
};

TEST_F(SessionApi, ACheckpointGoesOnBitForBit) {
  const std::string path = folder + "/checkpoint";
  train(session, dataset, 5);
  ok(epl_session_save(session, path.data(), path.size(), dataset, nullptr));
  train(session, dataset, 5);
  EXPECT_EQ(metrics.step, 10);
  const uint64_t whole = hash(session);
  const double loss = metrics.loss;

  epl_session* second = nullptr;
  ok(epl_session_create(plan, nullptr, nullptr, &second));
  EXPECT_NE(hash(second), whole);
  ok(epl_dataset_seek(dataset, 0));
  ok(epl_session_load(second, path.data(), path.size(), dataset, nullptr));
  EXPECT_EQ(epl_dataset_position(dataset), 5);
  EXPECT_EQ(epl_session_steps(second), 5);
  train(second, dataset, 5);
  EXPECT_EQ(hash(second), whole);
  EXPECT_EQ(metrics.loss, loss);
  epl_session_destroy(second);
}

TEST_F(SessionApi, ACheckpointOfAnotherModelChangesNothing) {
  const std::string path = folder + "/other";
  train(session, dataset, 1);
  ok(epl_session_save(session, path.data(), path.size(), nullptr, nullptr));
  epl_trainer* other = nullptr;
  epl_plan* other_plan = nullptr;
  epl_session* other_session = nullptr;
  ok(epl_trainer_create(engine, &other));
  ok(epl_trainer_bind_symbol(other, EPL_STR("batch"), 8));  // sgd: no optimizer state
  ok(epl_plan_create(model, other, nullptr, nullptr, nullptr, &other_plan));
  ok(epl_session_create(other_plan, nullptr, nullptr, &other_session));
  const uint64_t before = hash(other_session);
  std::string message;
  EXPECT_EQ(code_of(epl_session_load(other_session, path.data(), path.size(), nullptr, nullptr), &message),
            EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("is not part of this session"), std::string::npos) << message;
  EXPECT_EQ(hash(other_session), before);
  EXPECT_EQ(code_of(epl_session_load(session, path.data(), path.size(), dataset, nullptr), &message),
            EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("without a dataset"), std::string::npos) << message;
  epl_session_destroy(other_session);
  epl_plan_destroy(other_plan);
  epl_trainer_destroy(other);
}

TEST_F(SessionApi, CancelledAndLateStepsChangeNothing) {
  train(session, dataset, 2);
  const uint64_t before = hash(session);
  epl_cancel* cancel = nullptr;
  ok(epl_cancel_create(engine, &cancel));
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.cancel = cancel;
  epl_cancel_trigger(cancel);
  EXPECT_EQ(code_of(epl_session_step(session, batch, 2, &call, nullptr)), EPL_ERROR_CANCELLED);
  EXPECT_EQ(hash(session), before);
  EXPECT_EQ(epl_session_steps(session), 2);
  EXPECT_EQ(epl_cancel_triggered(cancel), 1);
  call.cancel = nullptr;
  call.timeout_nanoseconds = 1;
  EXPECT_EQ(code_of(epl_session_step(session, batch, 2, &call, nullptr)), EPL_ERROR_DEADLINE_EXCEEDED);
  EXPECT_EQ(hash(session), before);
  call.timeout_nanoseconds = 60000000000;
  EXPECT_EQ(code_of(epl_session_step(session, batch, 2, &call, nullptr)), EPL_OK);
  EXPECT_NE(hash(session), before);
  call.timeout_nanoseconds = -1;
  EXPECT_EQ(code_of(epl_session_step(session, batch, 2, &call, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  epl_cancel_destroy(cancel);
}

TEST_F(SessionApi, InputsThatDoNotFitAreNamed) {
  std::string message;
  EXPECT_EQ(code_of(epl_session_step(session, batch, 0, nullptr, nullptr), &message), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("train takes 2 tensors"), std::string::npos) << message;
  const epl_tensor* missing[2] = {nullptr, nullptr};
  EXPECT_EQ(code_of(epl_session_step(session, missing, 2, nullptr, nullptr), &message), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("inputs[0] is missing"), std::string::npos) << message;
  const int64_t dims[2] = {8, 5};
  epl_tensor* wrong = nullptr;
  ok(epl_tensor_create(engine, EPL_DTYPE_F32, dims, 2, &wrong));
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  const epl_tensor* mixed[2] = {wrong, wrong};
  EXPECT_EQ(code_of(epl_session_step(session, mixed, 2, nullptr, nullptr), &message), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("got f32[8,5]"), std::string::npos) << message;
  epl_tensor_destroy(wrong);
}

TEST_F(SessionApi, StateByNameAndGradientNorms) {
  train(session, dataset, 1);
  ASSERT_EQ(epl_session_state_count(session, EPL_STATE_PARAMETER), 4);
  EXPECT_EQ(epl_session_state_count(session, EPL_STATE_OPTIMIZER), 8);
  EXPECT_EQ(epl_session_state_count(session, 9), 0);
  std::string last;
  for (int64_t i = 0; i < 4; ++i) {
    epl_tensor_info port = EPL_TENSOR_INFO_INIT;
    ok(epl_session_state_port(session, EPL_STATE_PARAMETER, i, &port));
    const std::string name(port.name, port.name_length);
    EXPECT_LT(last, name);
    last = name;
    double norm = 0;
    const std::string metric = "gradient_norm:" + name;
    ok(epl_session_metric(session, metric.data(), metric.size(), &norm));
    EXPECT_GT(norm, 0);
    epl_tensor* value = nullptr;
    ok(epl_session_get(session, name.data(), name.size(), nullptr, &value));
    const uint64_t before = hash(session);
    static_cast<float*>(epl_tensor_data(value))[0] += 1;
    ok(epl_session_set(session, name.data(), name.size(), value, nullptr));
    EXPECT_NE(hash(session), before);
    epl_tensor_destroy(value);
  }
  std::string message;
  double norm = 0;
  EXPECT_EQ(code_of(epl_session_metric(session, EPL_STR("nothing"), &norm), &message), EPL_ERROR_NOT_FOUND);
  EXPECT_EQ(epl_session_memory_bytes_peak(session, 0), epl_plan_memory_bytes_peak(plan, 0));
  EXPECT_EQ(epl_session_memory_bytes_peak(session, 1), -1);
}

TEST_F(SessionApi, PredictAndExportAgree) {
  train(session, dataset, 3);
  const std::string path = folder + "/trained.onnx";
  ok(epl_session_export_onnx(session, path.data(), path.size(), nullptr));
  epl_model* again = nullptr;
  epl_plan* again_plan = nullptr;
  epl_session* again_session = nullptr;
  ok(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &again));
  ok(epl_plan_create(again, trainer, nullptr, nullptr, nullptr, &again_plan));
  ok(epl_session_create(again_plan, nullptr, nullptr, &again_session));
  EXPECT_EQ(hash(again_session), hash(session));
  ok(epl_dataset_bind(dataset, plan, EPL_ENTRY_PREDICT));
  ok(epl_dataset_next(dataset, nullptr, batch, 1));
  epl_tensor *one = nullptr, *other = nullptr;
  ok(epl_session_predict(session, batch, 1, nullptr, &one, 1));
  ok(epl_session_predict(again_session, batch, 1, nullptr, &other, 1));
  ASSERT_EQ(epl_tensor_bytes(one), 8u * 3 * 4);
  EXPECT_EQ(std::memcmp(epl_tensor_data(one), epl_tensor_data(other), epl_tensor_bytes(one)), 0);
  epl_tensor_destroy(one);
  epl_tensor_destroy(other);
  epl_session_destroy(again_session);
  epl_plan_destroy(again_plan);
  epl_model_destroy(again);
}

TEST_F(SessionApi, PlansDescribeThemselves) {
  for (const char* stage :
       {"graph", "plan", "local", "program", "predict.graph", "evaluate.program", "kernels", "explain"}) {
    epl_text* text = nullptr;
    ok(epl_plan_print(plan, stage, std::strlen(stage), nullptr, &text));
    EXPECT_GT(std::strlen(epl_text_data(text, nullptr)), 50u) << stage;
    epl_text_destroy(text);
  }
  for (const char* document : {"overview", "memory", "parameters", "notes"}) {
    epl_text* text = nullptr;
    ok(epl_plan_describe(plan, document, std::strlen(document), nullptr, &text));
    EXPECT_TRUE(parse_json(epl_text_data(text, nullptr)).ok()) << document;
    epl_text_destroy(text);
  }
  epl_text* text = nullptr;
  ok(epl_plan_describe(plan, EPL_STR("overview"), nullptr, &text));
  const Json overview = *parse_json(epl_text_data(text, nullptr));
  epl_text_destroy(text);
  text = nullptr;
  const Json& roofline = overview.at("virtual_devices")[0].at("roofline");
  for (const char* key : {"flops", "bytes", "intensity", "bandwidth", "computing", "memory", "launching", "seconds"})
    EXPECT_GT(roofline.at(key).get<double>(), 0) << key;
  EXPECT_GT(roofline.at("parts")[0].at("rate").get<double>(), 0);
  EXPECT_EQ(overview.at("links")[0].at("name"), Json("any ranks"));
  EXPECT_EQ(overview.at("links")[0].at("bytes").size(), overview.at("virtual_devices").size());
  EXPECT_EQ(code_of(epl_plan_describe(plan, EPL_STR("explain"), nullptr, &text)), EPL_ERROR_NOT_FOUND);
  EXPECT_EQ(code_of(epl_plan_print(plan, EPL_STR("memory"), nullptr, &text)), EPL_ERROR_NOT_FOUND);
  EXPECT_EQ(text, nullptr);
  epl_tensor_info port = EPL_TENSOR_INFO_INIT;
  EXPECT_EQ(code_of(epl_plan_port(plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, 2, &port)), EPL_ERROR_INVALID_ARGUMENT);
}

// A weight that is not a number never takes the place of a good one, in the same folder or a new one.
TEST_F(SessionApi, AStateThatIsNotFiniteIsNotSaved) {
  const std::string path = folder + "/checkpoint", other = folder + "/other";
  train(session, dataset, 2);
  ok(epl_session_save(session, path.data(), path.size(), dataset, nullptr));
  const uint64_t good = hash(session);
  epl_tensor* bias = nullptr;
  ok(epl_session_get(session, EPL_STR("net.0.bias"), nullptr, &bias));
  std::string message;
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    static_cast<float*>(epl_tensor_data(bias))[7] = value;
    ok(epl_session_set(session, EPL_STR("net.0.bias"), bias, nullptr));
    for (const std::string& to : {path, other}) {
      EXPECT_EQ(code_of(epl_session_save(session, to.data(), to.size(), dataset, nullptr), &message),
                EPL_ERROR_NOT_FINITE);
      EXPECT_NE(message.find(value < 0 ? "net.0.bias holds -inf (element 7)" : "net.0.bias holds nan (element 7)"),
                std::string::npos)
          << message;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(other));
  ok(epl_session_load(session, path.data(), path.size(), dataset, nullptr));
  EXPECT_EQ(hash(session), good);
  epl_tensor_destroy(bias);
}

TEST_F(SessionApi, ACheckpointIsComparedWithWhatWouldGoOn) {
  const std::string path = folder + "/checkpoint";
  train(session, dataset, 1);
  ok(epl_session_save(session, path.data(), path.size(), dataset, nullptr));
  const auto compare = [&](epl_session* with, const epl_dataset* data) {
    epl_text* text = nullptr;
    ok(epl_session_compare(with, path.data(), path.size(), data, nullptr, &text));
    const Json json = *parse_json(epl_text_data(text, nullptr));
    epl_text_destroy(text);
    std::map<std::string, Json> out;
    for (const Json& one : json) out[one.at("key").get<std::string>()] = one;
    return out;
  };
  EXPECT_TRUE(compare(session, dataset).empty());
  EXPECT_TRUE(compare(session, nullptr).empty());
  // What changes the run is said with both values, its topic, and whether going on would be another run.
  const std::string data = folder + "/rows.safetensors";
  struct Change {
    const char *key, *value, *fact, *topic;
    bool breaks;
  };
  for (const Change& change : {Change{"optimizer.lr", "0.5", "optimizer.lr", "options", false},
                               Change{"optimizer", "sgd", "optimizer", "optimizer", true},
                               Change{"loss.ignore_index", "1", "loss.ignore_index", "loss", true},
                               Change{"loss.peel", "false", "loss.peel", "loss", true},
                               Change{"loss.output", "logits", "loss.output", "loss", true},
                               Change{"schedule", "cosine", "schedule", "options", false},
                               Change{"clip_norm", "0.5", "clip_norm", "options", false}}) {
    epl_trainer* changed = nullptr;
    epl_plan* changed_plan = nullptr;
    epl_session* now = nullptr;
    ok(epl_trainer_create(engine, &changed));
    ok(epl_trainer_set(changed, EPL_STR("optimizer"), EPL_STR("adamw")));
    ok(epl_trainer_bind_symbol(changed, EPL_STR("batch"), 8));
    ok(epl_trainer_set(changed, change.key, std::strlen(change.key), change.value, std::strlen(change.value)));
    if (std::string(change.value) == "cosine")
      ok(epl_trainer_set(changed, EPL_STR("schedule.total_steps"), EPL_STR("9")));
    ok(epl_plan_create(model, changed, nullptr, nullptr, nullptr, &changed_plan));
    ok(epl_session_create(changed_plan, nullptr, nullptr, &now));
    const auto found = compare(now, dataset);
    ASSERT_TRUE(found.contains(change.fact)) << change.fact;
    const Json& one = found.at(change.fact);
    EXPECT_EQ(one.at("topic").get<std::string>(), change.topic) << change.fact;
    EXPECT_EQ(one.at("breaks").get<bool>(), change.breaks) << change.fact;
    EXPECT_NE(one.at("checkpoint").get<std::string>(), one.at("session").get<std::string>());
    EXPECT_NE(one.at("session").get<std::string>().find(change.value), std::string::npos) << print_json(one);
    epl_session_destroy(now);
    epl_plan_destroy(changed_plan);
    epl_trainer_destroy(changed);
  }
  // Another seed of the session, another order of the data.
  epl_plan_options seeded = EPL_PLAN_OPTIONS_INIT;
  seeded.seed = 77;
  epl_plan* other_plan = nullptr;
  epl_session* other = nullptr;
  epl_dataset* reordered = nullptr;
  ok(epl_plan_create(model, trainer, nullptr, &seeded, nullptr, &other_plan));
  ok(epl_session_create(other_plan, nullptr, nullptr, &other));
  ok(epl_dataset_open(engine, data.data(), data.size(), EPL_STR("{\"batch\":8,\"order\":\"shuffled\",\"seed\":4}"),
                      nullptr, &reordered));
  ok(epl_dataset_bind(reordered, plan, EPL_ENTRY_TRAIN));
  auto found = compare(other, reordered);
  EXPECT_EQ(found.at("seed").at("session").get<std::string>(), "77");
  EXPECT_EQ(found.at("data.seed").at("checkpoint").get<std::string>(), "3");
  EXPECT_EQ(found.size(), 2u);
  std::string message;
  const std::string nowhere = folder + "/nowhere";
  epl_text* text = nullptr;
  EXPECT_EQ(code_of(epl_session_compare(session, nowhere.data(), nowhere.size(), nullptr, nullptr, &text), &message),
            EPL_ERROR_NOT_FOUND);
  EXPECT_EQ(text, nullptr);
  epl_dataset_destroy(reordered);
  epl_session_destroy(other);
  epl_plan_destroy(other_plan);
}

TEST_F(SessionApi, ACheckpointIsRemovedAndNothingElse) {
  const std::string path = folder + "/checkpoint", file = path + "/notes.txt";
  ok(epl_session_save(session, path.data(), path.size(), nullptr, nullptr));
  std::ofstream(file) << "mine";
  ok(epl_checkpoint_remove(engine, path.data(), path.size()));
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(path), std::filesystem::directory_iterator()), 1);
  std::string message;
  EXPECT_EQ(code_of(epl_checkpoint_remove(engine, path.data(), path.size()), &message), EPL_ERROR_NOT_FOUND) << message;
  EXPECT_EQ(code_of(epl_session_save(session, path.data(), path.size(), nullptr, nullptr), &message),
            EPL_ERROR_INVALID_ARGUMENT)
      << message;  // it is another's folder now
  std::filesystem::remove(file);
  ok(epl_session_save(session, path.data(), path.size(), nullptr, nullptr));
  ok(epl_checkpoint_remove(engine, path.data(), path.size()));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(code_of(epl_checkpoint_remove(engine, folder.data(), folder.size()), &message),
            EPL_ERROR_NOT_FOUND);  // no checkpoint at all
  EXPECT_TRUE(std::filesystem::exists(folder + "/mlp.onnx"));
}

}  // namespace
}  // namespace epl::capi::session_test
