// Trainers as JSON, keys that are taken back, and what else of small handles can be asked: devices, ports by name,
// errors of the host.
#include <gtest/gtest.h>

#include <string>

#include "core/base/json.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace epl {
namespace {

class TrainerApi : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 1, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  static std::string described(const epl_trainer* trainer) {
    epl_text* text = nullptr;
    must(epl_trainer_describe(trainer, &text));
    std::string out = epl_text_data(text, nullptr);
    epl_text_destroy(text);
    return out;
  }
  epl_trainer* parsed(std::string_view json) {
    epl_trainer* trainer = nullptr;
    must(epl_trainer_parse(w.engine, json.data(), json.size(), &trainer));
    return trainer;
  }
  std::string refused(std::string_view json) {
    epl_trainer* trainer = nullptr;
    epl_error* error = epl_trainer_parse(w.engine, json.data(), json.size(), &trainer);
    EXPECT_EQ(trainer, nullptr) << json;
    std::string message = epl_error_message(error, nullptr);
    epl_error_destroy(error);
    return message;
  }
  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
};

TEST_F(TrainerApi, WhatIsDescribedIsReadAgain) {
  constexpr std::string_view json =
      R"({"optimizer":"adamw","optimizer.lr":0.25,"optimizer.betas":[0.5,0.75],"schedule":"cosine",)"
      R"("schedule.total_steps":100,"clip_norm":1.5,"loss.output":"net.1","report.gradient_norms":true,)"
      R"("groups":[{"match":["*.bias","b*"],"frozen":true},{"match":"w","lr":0.5,"constants":true}],)"
      R"("train_only":["net.*"],"adapters":[{"match":"net.0","rank":2,"alpha":4,"dropout":0.5}],)"
      R"("symbols":{"batch":8},"inputs":{"x":{"dims":[8,4],"batch_dim":0},"target":{"dtype":"i64","dims":[8]}}})";
  epl_trainer* one = parsed(json);
  const std::string first = described(one);
  epl_trainer* two = parsed(first);
  EXPECT_EQ(described(two), first);
  const Json read = *parse_json(first);
  EXPECT_EQ(read.at("schema"), Json(1));
  EXPECT_EQ(read.at("optimizer.betas"), Json("0.5,0.75"));
  EXPECT_EQ(read.at("optimizer.lr"), Json(0.25));
  EXPECT_EQ(read.at("inputs").at("target").at("dtype"), Json("i64"));
  EXPECT_EQ(read.at("groups")[1].at("match")[0], Json("w"));
  epl_trainer_destroy(one);
  epl_trainer_destroy(two);
}

TEST_F(TrainerApi, WhatWasSetByCallsIsDescribed) {
  epl_trainer* trainer = nullptr;
  must(epl_trainer_create(w.engine, &trainer));
  int64_t group = -1;
  must(epl_trainer_set(trainer, EPL_STR("loss"), EPL_STR("mse")));
  must(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 0.125));
  must(epl_trainer_add_group(trainer, EPL_STR("*.bias"), &group));
  must(epl_trainer_group_set(trainer, group, EPL_STR("frozen"), EPL_STR("true")));
  must(epl_trainer_bind_value(trainer, EPL_STR("rate"), w.x));
  const Json read = *parse_json(described(trainer));
  EXPECT_EQ(read.at("loss"), Json("mse"));
  EXPECT_EQ(read.at("optimizer.lr"), Json(0.125));
  EXPECT_EQ(read.at("groups")[0].at("frozen"), Json(true));
  EXPECT_EQ(read.at("values")[0], Json("rate"));
  EXPECT_NE(refused(described(trainer)).find("bind_value"), std::string::npos);
  epl_trainer_destroy(trainer);
}

TEST_F(TrainerApi, WrongJsonIsRefusedByName) {
  for (const auto& [json, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[1]", "object"},
           {"{\"optimiser\":\"adam\"}", "did you mean optimizer"},
           {"{\"optimizer\":\"adom\"}", "adam"},
           {"{\"clip_norm\":{}}", "clip_norm"},
           {"{\"groups\":[{\"frozen\":true}]}", "match"},
           {"{\"adapters\":[{\"match\":\"a\",\"rnk\":1}]}", "did you mean rank"},
           {"{\"adapters\":[{\"match\":\"a\",\"rank\":\"1\"}]}", "a number is expected"},
           {"{\"symbols\":{\"batch\":-1}}", "bound to -1"},
           {"{\"symbols\":{\"batch\":1.5}}", "symbols.batch"},
           {"{\"inputs\":{\"x\":{\"dims\":[\"a\"]}}}", "inputs.x.dims"},
           {"{\"inputs\":{\"x\":{\"dtype\":\"f33\",\"dims\":[1]}}}", "inputs.x.dtype"},
           {"{\"inputs\":{\"x\":{\"dtype\":\"f32\"}}}", "no dims"},
           {"{\"inputs\":{\"x\":{\"batch_dim\":99}}}", "batch_dim"},
           {"{\"schema\":2}", "schema 2"}}) {
    EXPECT_NE(refused(json).find(part), std::string::npos) << json << ": " << refused(json);
  }
}

// The betas of adam made a plan with sgd fail; they can be taken back.
TEST_F(TrainerApi, AKeyIsTakenBack) {
  epl_plan* plan = nullptr;
  must(epl_trainer_set(w.trainer, EPL_STR("optimizer.betas"), EPL_STR("0.5,0.75")));
  must(epl_trainer_set(w.trainer, EPL_STR("optimizer"), EPL_STR("sgd")));
  EXPECT_EQ(taken(epl_plan_create(w.model, w.trainer, NULL, NULL, NULL, &plan)), EPL_ERROR_NOT_FOUND);
  must(epl_trainer_unset(w.trainer, EPL_STR("optimizer.betas")));
  must(epl_trainer_unset(w.trainer, EPL_STR("optimizer.betas")));  // it has its default already
  must(epl_plan_create(w.model, w.trainer, NULL, NULL, NULL, &plan));
  epl_plan_destroy(plan);
  EXPECT_EQ(taken(epl_trainer_unset(w.trainer, EPL_STR("optimiser"))), EPL_ERROR_NOT_FOUND);
}

TEST_F(TrainerApi, PortsAreFoundByName) {
  EXPECT_EQ(epl_plan_find_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, EPL_STR("x")), 0);
  EXPECT_EQ(epl_plan_find_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, EPL_STR("target")), 1);
  EXPECT_EQ(epl_plan_find_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, EPL_STR("y")), -1);
  EXPECT_EQ(epl_plan_find_port(w.plan, 7, EPL_PORT_INPUT, EPL_STR("x")), -1);
  EXPECT_EQ(epl_plan_find_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, NULL, 0), -1);
}

TEST_F(TrainerApi, DevicesAreListed) {
  int simulated = 0;
  for (int64_t i = 0; i < epl_engine_device_count(w.engine); ++i) {
    epl_device_info info = EPL_DEVICE_INFO_INIT;
    must(epl_engine_device(w.engine, i, &info));
    EXPECT_EQ(info.threads, 1);
    EXPECT_EQ(std::string(info.name, info.name_length), info.kind == EPL_DEVICE_SIM    ? "sim"
                                                        : info.kind == EPL_DEVICE_CUDA ? "cuda"
                                                                                       : "cpu");
    EXPECT_EQ(info.memory_bytes > 0, info.kind == EPL_DEVICE_CPU);
    simulated += info.kind == EPL_DEVICE_SIM;
  }
  EXPECT_EQ(simulated, 1);
  epl_device_info info = EPL_DEVICE_INFO_INIT;
  EXPECT_EQ(taken(epl_engine_device(w.engine, epl_engine_device_count(w.engine), &info)), EPL_ERROR_INVALID_ARGUMENT);
}

// Without a folder of packs none is opened, and the sheets are there all the same.
TEST_F(TrainerApi, DevicesAreDescribed) {
  epl_text* text = nullptr;
  must(epl_engine_describe(w.engine, &text));
  const epl::Json json = epl::parse_json(epl_text_data(text, nullptr)).value();
  epl_text_destroy(text);
  int sheets = 0;
  for (const epl::Json& device : json.at("devices")) {
    const std::string name = device.at("name").text();
    EXPECT_EQ(device.contains("libraries"), name == "cuda") << name;
    if (name != "cuda") continue;
    EXPECT_NE(device.at("missing").text().find("names no folder"), std::string::npos) << device.at("missing").text();
    EXPECT_TRUE(device.at("gpus").empty());
    for (const epl::Json& sheet : device.at("sheets")) {
      EXPECT_TRUE(sheet.at("name").text().starts_with("cuda:")) << sheet.at("name").text();
      EXPECT_GT(sheet.at("memory_bytes").get<int64_t>(), int64_t{1} << 30);
      ++sheets;
    }
  }
  EXPECT_GE(sheets, 6);
}

TEST_F(TrainerApi, BorrowedMemoryIsReadOnlyWhereTheHostSaysSo) {
  float data[8] = {};
  const int64_t dims[1] = {8};
  for (const int32_t flags : {0, EPL_TENSOR_READ_ONLY}) {
    epl_tensor* tensor = nullptr;
    must(epl_tensor_create_borrow(w.engine, EPL_DTYPE_F32, dims, 1, data, sizeof data, flags, NULL, NULL, &tensor));
    EXPECT_EQ(epl_tensor_is_read_only(tensor), flags);
    EXPECT_EQ(epl_tensor_device(tensor), EPL_DEVICE_CPU);
    epl_tensor_destroy(tensor);
  }
  epl_tensor* tensor = nullptr;
  EXPECT_EQ(
      taken(epl_tensor_create_borrow(w.engine, EPL_DTYPE_F32, dims, 1, data, sizeof data, 2, NULL, NULL, &tensor)),
      EPL_ERROR_UNSUPPORTED);
  EXPECT_EQ(epl_tensor_device(NULL), -1);
  EXPECT_EQ(epl_dtype_bits(EPL_DTYPE_BF16), 16);
  EXPECT_EQ(epl_dtype_bits(77), 0);
}

TEST_F(TrainerApi, TheHostMakesErrors) {
  epl_error* error = epl_error_create(EPL_ERROR_IO, EPL_STR("the disk \xff is away"));
  EXPECT_EQ(epl_error_code(error), EPL_ERROR_IO);
  EXPECT_STREQ(epl_error_message(error, NULL), "the disk \xEF\xBF\xBD is away");
  EXPECT_EQ(epl_error_rank(error), -1);
  epl_error_destroy(error);
  for (const int32_t code : {EPL_OK, -1, 4711}) {
    error = epl_error_create(code, NULL, 0);
    EXPECT_EQ(epl_error_code(error), EPL_ERROR_INTERNAL);
    epl_error_destroy(error);
  }
  for (int32_t code = EPL_ERROR_INVALID_ARGUMENT; code <= EPL_ERROR_EXHAUSTED; ++code) {
    error = epl_error_create(code, EPL_STR("x"));
    const bool later = code == EPL_ERROR_BUSY || code == EPL_ERROR_CANCELLED || code == EPL_ERROR_DEADLINE_EXCEEDED ||
                       code == EPL_ERROR_OUT_OF_MEMORY || code == EPL_ERROR_EXHAUSTED;
    EXPECT_EQ(epl_error_retryable(error), later) << epl_error_code_name(code);
    EXPECT_STRNE(epl_error_code_name(code), "unknown");
    epl_error_destroy(error);
  }
}

}  // namespace
}  // namespace epl
