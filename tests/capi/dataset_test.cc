// Datasets through the C API: files of other element types than the plan's, what is said of them, and what does not
// fit.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/json.h"
#include "core/capi/objects.h"
#include "tests/temporary_folder.h"

namespace epl::capi::dataset_test {
namespace {

void ok(epl_error* error) { ASSERT_EQ(error, nullptr) << epl_error_message(error, nullptr); }

std::string message_of(epl_error* error) {
  std::string out = error ? epl_error_message(error, nullptr) : "";
  epl_error_destroy(error);
  return out;
}

class DatasetApi : public testing::Test {
 protected:
  void SetUp() override { ok(epl_engine_create(nullptr, &engine)); }
  void TearDown() override {
    epl_dataset_destroy(dataset);
    epl_session_destroy(session);
    epl_plan_destroy(plan);
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }
  // A plan of two inputs and so many outputs, a batch of 2.
  void make_plan(const char* loss, int outputs) {
    const std::string path = folder + "/mlp.onnx", options = "{\"sizes\":[2," + std::to_string(outputs) + "]}";
    epl_model* model = nullptr;
    epl_trainer* trainer = nullptr;
    ok(epl_x_template_write(engine, EPL_STR("mlp"), options.data(), options.size(), path.data(), path.size(), nullptr));
    ok(epl_model_load(engine, path.data(), path.size(), nullptr, nullptr, &model));
    ok(epl_trainer_create(engine, &trainer));
    ok(epl_trainer_set(trainer, EPL_STR("loss"), loss, std::strlen(loss)));
    ok(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 2));
    ok(epl_plan_create(model, trainer, nullptr, nullptr, nullptr, &plan));
    ok(epl_session_create(plan, nullptr, nullptr, &session));
    epl_trainer_destroy(trainer);
    epl_model_destroy(model);
  }
  epl_error* open(const std::string& path, const std::string& options) {
    return epl_dataset_open(engine, path.data(), path.size(), options.data(), options.size(), nullptr, &dataset);
  }
  std::string file(const std::string& name, const std::string& content) const {
    std::ofstream(folder + "/" + name) << content;
    return folder + "/" + name;
  }
  static std::string given(const std::string& name) {
    return std::string(EPL_SOURCE_DIR) + "/tests/data/files/" + name;
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  epl_engine* engine = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  epl_dataset* dataset = nullptr;
  const epl_tensor* batch[2] = {};
};

TEST_F(DatasetApi, ArraysOf64BitsTrainAModelOf32) {
  make_plan("mse", 1);
  ok(open(given("table.npy"), R"({"batch": 2, "target_column": -1, "prefetch": 1})"));
  ok(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
  epl_tensor_info port = EPL_TENSOR_INFO_INIT;
  ok(epl_dataset_field(dataset, 0, &port));
  EXPECT_EQ(port.dtype, EPL_DTYPE_F32);
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  EXPECT_EQ(static_cast<const float*>(epl_tensor_data(batch[0]))[1], 7);
  EXPECT_EQ(static_cast<const float*>(epl_tensor_data(batch[1]))[1], 11);
  ok(epl_session_step(session, batch, 2, nullptr, nullptr));
}

TEST_F(DatasetApi, AColumnOfNumbersIsClassesWhereTheLossTakesThem) {
  make_plan("softmax_cross_entropy", 3);
  const std::string path = file("a.csv", "a,b,y\n1,2,0.0\n3,4,2\n5,6,1\n7,8,1.5\n");
  ok(open(path, "{\"batch\": 2}"));
  ok(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  EXPECT_EQ(static_cast<const int64_t*>(epl_tensor_data(batch[1]))[1], 2);
  ok(epl_session_step(session, batch, 2, nullptr, nullptr));
  EXPECT_EQ(message_of(epl_dataset_next(dataset, nullptr, batch, 2)),
            "field target, row 3 (counted from 0): the value is 1.5, which i64 cannot hold: it is not an integer");
}

// Whether it was looked at before or not: a class that the loss does not have is found where the data has it.
TEST_F(DatasetApi, AClassOutOfRangeIsNamedByItsRow) {
  make_plan("softmax_cross_entropy", 3);
  const std::string path = file("a.csv", "a,b,y\n1,2,0\n3,4,2\n5,6,1\n7,8,3\n");
  ok(open(path, "{\"batch\": 2}"));
  for (int bound = 0; bound < 2; ++bound) {
    EXPECT_EQ(message_of(epl_dataset_check(dataset, plan, EPL_ENTRY_TRAIN, nullptr)),
              "field target, row 3 (counted from 0), holds 3, which is not a class of 3 and not the ignored -100; "
              "they count from 0");
    if (bound == 0) ok(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
  }
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  ok(epl_session_step(session, batch, 2, nullptr, nullptr));
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  EXPECT_EQ(message_of(epl_session_step(session, batch, 2, nullptr, nullptr)),
            "input target holds 3, which is not a class of 3 and not the ignored -100; they count from 0 (row 3 of the "
            "dataset, node loss)");
}

TEST_F(DatasetApi, WhatWasReadIsDescribed) {
  const std::string first = file("first.csv", "a,b,kind\n1,,low\n3,5,high\n"),
                    second = file("second.csv", "kind,b,a\nlow,,4\n");
  ok(open(first, R"({"missing": "mean", "batch": 1})"));
  epl_text* text = nullptr;
  ok(epl_dataset_describe(dataset, &text));
  auto json = parse_json(epl_text_data(text, nullptr));
  epl_text_destroy(text);
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(json->at("reader"), "csv");
  EXPECT_EQ(json->at("fields")[0].at("columns"), Json::array({"a", "b"}));
  EXPECT_EQ(json->at("fields")[1].at("classes")[0].at("names"), Json::array({"high", "low"}));
  // Under these options another file means the same, though its columns and its texts would say otherwise.
  epl_dataset_destroy(dataset);
  dataset = nullptr;
  ok(open(second, print_json(json->at("options"))));
  ok(epl_dataset_next(dataset, nullptr, batch, 2));
  EXPECT_EQ(static_cast<const float*>(epl_tensor_data(batch[0]))[0], 4);
  EXPECT_EQ(static_cast<const float*>(epl_tensor_data(batch[0]))[1], 5);  // the mean of the first file
  EXPECT_EQ(static_cast<const int64_t*>(epl_tensor_data(batch[1]))[0], 1);
}

TEST_F(DatasetApi, WhatDoesNotFitIsNamed) {
  make_plan("mse", 1);
  const std::string path = file("a.csv", "a,b,c,y\n1,2,3,4\n1,2,3,4\n");
  ok(open(path, "{\"batch\": 2}"));
  EXPECT_EQ(message_of(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN)),
            "input x is f32[2,2] in the plan, the dataset's field is f32[2,3]");
  epl_dataset_destroy(dataset);
  dataset = nullptr;
  EXPECT_NE(
      message_of(open(path, "{\"inputs\": {\"X\": [\"a\", \"B\"]}}")).find("there is no column \"B\"; did you mean b?"),
      std::string::npos);
  EXPECT_NE(message_of(open(path, "{\"inptus\": {}}")).find("did you mean inputs?"), std::string::npos);
  EXPECT_NE(message_of(open(file("a.h5", "\x89HDF"), "")).find("which is HDF5. EPL reads csv"), std::string::npos);
  EXPECT_EQ(dataset, nullptr);
}

}  // namespace
}  // namespace epl::capi::dataset_test
