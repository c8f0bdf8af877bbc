// Several shapes in one plan through the C API: the last, partial batch of an epoch, entries by number, and what does
// not fit.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace epl {
namespace {

constexpr int64_t batch = 24, left_over = 16;  // of 64 rows

class ShapesApi : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 2, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  epl_trainer* trainer_of(int64_t size) {
    epl_trainer* trainer = nullptr;
    must(epl_trainer_create(w.engine, &trainer));
    must(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adam")));
    must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), size));
    return trainer;
  }
  epl_plan* plan_of(epl_trainer* trainer, int64_t ranks = 1) {
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = ranks;
    epl_plan* plan = nullptr;
    must(epl_plan_create(w.model, trainer, nullptr, &options, nullptr, &plan));
    epl_trainer_destroy(trainer);
    return plan;
  }
  epl_plan* plan_of_shapes(int64_t ranks = 1) {
    epl_trainer* trainer = trainer_of(batch);
    must(epl_trainer_add_shape(trainer, EPL_STR("{\"symbols\": {\"batch\": 16}}")));
    return plan_of(trainer, ranks);
  }
  epl_dataset* rows(const epl_plan* plan) {
    epl_dataset* dataset = nullptr;
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":24,\"partial\":true,\"classes\":true}"),
                          nullptr, &dataset));
    must(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
    return dataset;
  }
  static std::vector<std::byte> bytes_of(epl_session* session) {
    std::vector<std::byte> out;
    for (int64_t i = 0; i < epl_session_state_count(session, EPL_STATE_PARAMETER); ++i) {
      epl_tensor_info info = EPL_TENSOR_INFO_INIT;
      epl_tensor* value = nullptr;
      must(epl_session_state_port(session, EPL_STATE_PARAMETER, i, &info));
      must(epl_session_get(session, info.name, info.name_length, nullptr, &value));
      const auto* data = static_cast<const std::byte*>(epl_tensor_data(value));
      out.insert(out.end(), data, data + epl_tensor_bytes(value));
      epl_tensor_destroy(value);
    }
    return out;
  }
  static std::string message_of(epl_error* error) {
    std::string out = error ? epl_error_message(error, nullptr) : "";
    epl_error_destroy(error);
    return out;
  }
  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  ::world w{};
};

// An epoch of 24, 24 and 16 rows, against sessions of one shape that hand each other checkpoints.
TEST_F(ShapesApi, AnEpochEndsWithItsPartialBatch) {
  epl_plan* several = plan_of_shapes(2);
  epl_plan* full = plan_of(trainer_of(batch), 2);
  epl_plan* partial = plan_of(trainer_of(left_over), 2);
  epl_session *one = nullptr, *other = nullptr, *rest = nullptr;
  must(epl_session_create(several, nullptr, nullptr, &one));
  must(epl_session_create(full, nullptr, nullptr, &other));
  must(epl_session_create(partial, nullptr, nullptr, &rest));
  epl_dataset* dataset = rows(several);
  ASSERT_EQ(epl_dataset_batches(dataset), 3);
  for (int step = 0; step < 6; ++step) {
    const epl_tensor* inputs[2] = {};
    must(epl_dataset_next(dataset, nullptr, inputs, 2));
    const bool is_partial = step % 3 == 2;
    ASSERT_EQ(epl_tensor_dim(inputs[0], 0), is_partial ? left_over : batch);
    epl_event* event = nullptr;
    must(epl_session_step_async(one, inputs, 2, nullptr, &event));
    epl_metrics metrics = EPL_METRICS_INIT, there = EPL_METRICS_INIT;
    must(epl_event_wait(event, nullptr, &metrics));
    epl_event_destroy(event);
    epl_session* alone = is_partial ? rest : other;
    must(epl_session_step(alone, inputs, 2, nullptr, &there));
    EXPECT_EQ(metrics.loss, there.loss) << step;
    EXPECT_EQ(metrics.step, there.step) << step;
    EXPECT_EQ(bytes_of(one), bytes_of(alone)) << step;
    epl_metrics evaluated = EPL_METRICS_INIT;
    must(epl_session_evaluate(one, inputs, 2, nullptr, &evaluated));
    must(epl_session_evaluate(alone, inputs, 2, nullptr, &there));
    EXPECT_EQ(evaluated.loss, there.loss) << step;
    // Checkpoints know nothing of shapes.
    const std::string path = folder + "/" + std::to_string(step);
    must(epl_session_save(one, path.data(), path.size(), nullptr, nullptr));
    must(epl_session_load(other, path.data(), path.size(), nullptr, nullptr));
    must(epl_session_load(rest, path.data(), path.size(), nullptr, nullptr));
  }
  EXPECT_EQ(epl_session_memory_bytes_peak(one, 0), epl_plan_memory_bytes_peak(several, 0));
  for (epl_session* session : {one, other, rest}) epl_session_destroy(session);
  for (epl_plan* plan : {several, full, partial}) epl_plan_destroy(plan);
  epl_dataset_destroy(dataset);
}

TEST_F(ShapesApi, EntriesOfAShapeHaveNumbersOfTheirOwn) {
  epl_plan* plan = plan_of_shapes();
  for (const int32_t entry : {EPL_ENTRY_TRAIN, EPL_ENTRY_EVALUATE, EPL_ENTRY_PREDICT}) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    must(epl_plan_port(plan, entry, EPL_PORT_INPUT, 0, &info));
    EXPECT_EQ(info.dims[0], batch);
    must(epl_plan_port(plan, entry + EPL_ENTRY_SHAPE, EPL_PORT_INPUT, 0, &info));
    EXPECT_EQ(info.dims[0], left_over);
    EXPECT_EQ(epl_plan_port_count(plan, entry + 2 * EPL_ENTRY_SHAPE, EPL_PORT_INPUT), 0);
  }
  int64_t first = 0, samples = 0;
  EXPECT_NE(
      message_of(epl_plan_slice(plan, 2 * EPL_ENTRY_SHAPE, 0, 0, 1, &first, &samples)).find("no shape 2; it has 2"),
      std::string::npos);
  epl_text* text = nullptr;
  must(epl_plan_print(plan, EPL_STR("train@1.graph"), nullptr, &text));
  EXPECT_NE(std::string(epl_text_data(text, nullptr)).find("f32[16,4]"), std::string::npos);
  epl_text_destroy(text);
  must(epl_plan_describe(plan, EPL_STR("overview"), nullptr, &text));
  const Json overview = *parse_json(epl_text_data(text, nullptr));
  epl_text_destroy(text);
  EXPECT_EQ(overview.at("shapes").size(), 2U);
  EXPECT_EQ(overview.at("shapes")[1].at("batch"), Json(left_over));
  epl_session* session = nullptr;
  must(epl_session_create(plan, nullptr, nullptr, &session));
  EXPECT_NE(message_of(epl_session_step(session, w.inputs, 2, nullptr, nullptr)).find("a shape of 8 as well"),
            std::string::npos);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
}

TEST_F(ShapesApi, AreOfATrainersDocument) {
  epl_trainer* trainer = trainer_of(batch);
  const std::string shape =
      "{\"symbols\":{\"batch\":16},\"inputs\":{\"target\":{\"dims\":[16]},\"x\":{\"dims\":[16,4]}}}";
  must(epl_trainer_add_shape(trainer, shape.data(), shape.size()));
  epl_text* text = nullptr;
  must(epl_trainer_describe(trainer, &text));
  const std::string json = epl_text_data(text, nullptr);
  epl_text_destroy(text);
  EXPECT_EQ(parse_json(json)->at("shapes")[0], *parse_json(shape));
  epl_trainer* again = nullptr;
  must(epl_trainer_parse(w.engine, json.data(), json.size(), &again));
  must(epl_trainer_describe(again, &text));
  EXPECT_EQ(epl_text_data(text, nullptr), json);
  epl_text_destroy(text);
  // The target's type is said for the first shape.
  epl_plan* plan = nullptr;
  EXPECT_NE(
      message_of(epl_plan_create(w.model, again, nullptr, nullptr, nullptr, &plan)).find("shape 1: the element type"),
      std::string::npos);
  epl_trainer_destroy(again);
  const int64_t dims[] = {batch};
  must(epl_trainer_bind_input(trainer, EPL_STR("target"), EPL_DTYPE_I64, dims, 1));
  plan = plan_of(trainer);
  epl_tensor_info info = EPL_TENSOR_INFO_INIT;
  must(epl_plan_port(plan, EPL_ENTRY_TRAIN + EPL_ENTRY_SHAPE, EPL_PORT_INPUT, 1, &info));
  EXPECT_EQ(info.dims[0], left_over);
  EXPECT_EQ(info.dtype, EPL_DTYPE_I64);
  epl_plan_destroy(plan);

  trainer = trainer_of(batch);
  for (const auto& [wrong, words] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[]", "an object with"},
           {"{}", "an object with"},
           {"{\"symbol\":{}}", "did you mean symbols"},
           {"{\"symbols\":{\"batch\":-1}}", "-1"},
           {"{\"inputs\":{\"x\":{\"dtype\":\"f32\",\"dims\":[1]}}}", "\"dims\" alone"},
           {"{\"inputs\":{\"x\":{}}}", "\"dims\" alone"}}) {
    EXPECT_NE(message_of(epl_trainer_add_shape(trainer, TEXT(wrong))).find(words), std::string::npos) << wrong;
  }
  must(epl_trainer_add_shape(trainer, EPL_STR("{\"symbols\": {\"bacth\": 16}}")));
  EXPECT_NE(message_of(epl_plan_create(w.model, trainer, nullptr, nullptr, nullptr, &plan)).find("shape 1"),
            std::string::npos);
  for (int i = 1; i < 64; ++i) must(epl_trainer_add_shape(trainer, EPL_STR("{\"symbols\": {\"batch\": 16}}")));
  EXPECT_NE(message_of(epl_trainer_add_shape(trainer, EPL_STR("{\"symbols\": {\"batch\": 16}}"))).find("64"),
            std::string::npos);
  epl_trainer_destroy(trainer);
}

}  // namespace
}  // namespace epl
