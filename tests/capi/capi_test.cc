// The rules of include/epl.h, each held to: options of every size, owned errors, counted handles, one caller at a time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "core/capi/dlpack.h"
#include "core/capi/objects.h"

namespace epl::capi::capi_test {
namespace {

// Takes the error over: its code, with the message beside it.
struct Outcome {
  explicit Outcome(epl_error* error)
      : code(epl_error_code(error)),
        message(epl_error_message(error, nullptr)),
        where(epl_error_where(error, nullptr)) {
    epl_error_destroy(error);
  }
  int32_t code;
  std::string message, where;
};
#define EXPECT_OK(call)                                 \
  do {                                                  \
    Outcome outcome(call);                              \
    EXPECT_EQ(outcome.code, EPL_OK) << outcome.message; \
  } while (0)
#define EXPECT_ERROR(call, wanted, text)                                         \
  do {                                                                           \
    Outcome outcome(call);                                                       \
    EXPECT_EQ(outcome.code, wanted) << outcome.message;                          \
    EXPECT_NE(outcome.message.find(text), std::string::npos) << outcome.message; \
  } while (0)

class CApi : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(epl_live_handles(), 0);
    EXPECT_OK(epl_engine_create(nullptr, &engine));
  }
  void TearDown() override {
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }
  epl_engine* engine = nullptr;
};

TEST(CApiVersion, AnswersWhatTheHeaderSays) {
  EXPECT_EQ(epl_version(), EPL_VERSION_MAJOR * 1000000u + EPL_VERSION_MINOR * 1000u + EPL_VERSION_PATCH);
  EXPECT_EQ(epl_abi_version(), static_cast<uint32_t>(EPL_ABI_VERSION));
}

TEST(CApiErrors, CodesAreTheEnginesCodes) {
  for (int code = 0; code <= static_cast<int>(Code::data_loss); ++code) {
    EXPECT_EQ(std::string(epl_error_code_name(code)), code_name(static_cast<Code>(code)));
  }
  EXPECT_STREQ(epl_error_code_name(-1), "unknown");
  EXPECT_STREQ(epl_error_code_name(99), "unknown");
  EXPECT_EQ(static_cast<int>(Code::data_loss), EPL_ERROR_DATA_LOSS);
  EXPECT_EQ(static_cast<int>(Code::cancelled), EPL_ERROR_CANCELLED);
}

TEST(CApiErrors, NullIsSuccessAndDestroyTakesIt) {
  size_t length = 7;
  EXPECT_EQ(epl_error_code(nullptr), EPL_OK);
  EXPECT_STREQ(epl_error_message(nullptr, &length), "");
  EXPECT_EQ(length, 0u);
  epl_error_destroy(nullptr);
  epl_text_destroy(nullptr);
  epl_engine_destroy(nullptr);
  epl_model_destroy(nullptr);
  epl_trainer_destroy(nullptr);
  epl_strategy_destroy(nullptr);
  epl_plan_destroy(nullptr);
  epl_session_destroy(nullptr);
  epl_dataset_destroy(nullptr);
  epl_tensor_destroy(nullptr);
  epl_cancel_destroy(nullptr);
}

TEST(CApiErrors, ExceptionsEndAtTheBoundary) {
  auto throwing = [](const std::function<void()>& f) {
    return Outcome(guarded([&]() -> Status { return f(), Status(); }));
  };
  EXPECT_EQ(throwing([] { throw std::bad_alloc(); }).code, EPL_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(throwing([] { throw InternalError("a bug"); }).message, "a bug");
  EXPECT_EQ(throwing([] { throw InternalError("a bug"); }).code, EPL_ERROR_INTERNAL);
  EXPECT_EQ(throwing([] { throw 7; }).code, EPL_ERROR_INTERNAL);
  EXPECT_EQ(throwing([] { std::vector<int>().at(3); }).code, EPL_ERROR_INTERNAL);
  EXPECT_EQ(epl_live_handles(), 0);
}

template <class T> void same_as_init(const T& macro, void (*init)(T*)) {
  T made;
  std::memset(static_cast<void*>(&made), 0xAB, sizeof made);
  init(&made);
  EXPECT_EQ(std::memcmp(&made, &macro, sizeof made), 0);
  init(nullptr);
}

TEST(CApiOptions, InitFunctionsEqualTheMacros) {
  same_as_init<epl_engine_options>(EPL_ENGINE_OPTIONS_INIT, epl_engine_options_init);
  same_as_init<epl_tensor_info>(EPL_TENSOR_INFO_INIT, epl_tensor_info_init);
  same_as_init<epl_model_options>(EPL_MODEL_OPTIONS_INIT, epl_model_options_init);
  same_as_init<epl_plan_options>(EPL_PLAN_OPTIONS_INIT, epl_plan_options_init);
  same_as_init<epl_session_options>(EPL_SESSION_OPTIONS_INIT, epl_session_options_init);
  same_as_init<epl_adapter_options>(EPL_ADAPTER_OPTIONS_INIT, epl_adapter_options_init);
  same_as_init<epl_call_options>(EPL_CALL_OPTIONS_INIT, epl_call_options_init);
  same_as_init<epl_metrics>(EPL_METRICS_INIT, epl_metrics_init);
  same_as_init<epl_device_info>(EPL_DEVICE_INFO_INIT, epl_device_info_init);
}

TEST(CApiOptions, OutputsAreWrittenAsFarAsTheCallerHasRoom) {
  epl_metrics from = {sizeof from, 5, 1.5, 2.5, 3.5, 4}, to;
  for (uint64_t size = 8; size <= sizeof to; ++size) {
    std::memset(static_cast<void*>(&to), 0xCD, sizeof to);
    to.struct_size = size;
    ASSERT_TRUE(write_output(from, &to, "epl_metrics").ok());
    EXPECT_EQ(to.struct_size, size);
    const auto *a = reinterpret_cast<unsigned char*>(&from), *b = reinterpret_cast<unsigned char*>(&to);
    for (uint64_t i = 8; i < sizeof to; ++i) EXPECT_EQ(b[i], i < size ? a[i] : 0xCD) << size << " " << i;
  }
  to.struct_size = 4;
  EXPECT_FALSE(write_output(from, &to, "epl_metrics").ok());
}

struct HostCalls {
  std::atomic<int64_t> alive{0}, destroyed{0};
  bool full = false;
};

TEST(CApiEngine, UsesTheHostsAllocatorAndGivesItsDataBack) {
  HostCalls calls;
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.allocate = [](void* u, size_t bytes, size_t alignment) -> void* {
    auto* c = static_cast<HostCalls*>(u);
    if (c->full) return nullptr;
    ++c->alive;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  };
  options.release = [](void* u, void* memory, size_t, size_t) {
    --static_cast<HostCalls*>(u)->alive;
    std::free(memory);
  };
  options.allocator_userdata = &calls;
  options.allocator_destroy = [](void* u) { ++static_cast<HostCalls*>(u)->destroyed; };
  epl_engine* engine = nullptr;
  EXPECT_OK(epl_engine_create(&options, &engine));
  const int64_t dims[1] = {100};
  epl_tensor* tensor = nullptr;
  EXPECT_OK(epl_tensor_create(engine, EPL_DTYPE_F32, dims, 1, &tensor));
  EXPECT_EQ(calls.alive, 1);
  calls.full = true;
  epl_tensor* none = tensor;
  EXPECT_ERROR(epl_tensor_create(engine, EPL_DTYPE_F32, dims, 1, &none), EPL_ERROR_OUT_OF_MEMORY, "memory");
  EXPECT_EQ(none, nullptr);
  epl_engine_destroy(engine);  // the tensor keeps what it needs
  EXPECT_EQ(calls.destroyed, 0);
  epl_tensor_destroy(tensor);
  EXPECT_EQ(calls.alive, 0);
  EXPECT_EQ(calls.destroyed, 1);
  options.release = nullptr;
  EXPECT_ERROR(epl_engine_create(&options, &engine), EPL_ERROR_INVALID_ARGUMENT, "go together");
  EXPECT_EQ(epl_live_handles(), 0);
}

TEST_F(CApi, TensorsOwnCopyAndBorrow) {
  const int64_t dims[2] = {2, 3};
  float values[6] = {1, 2, 3, 4, 5, 6};
  epl_tensor *zeros = nullptr, *copy = nullptr, *borrowed = nullptr;
  static int released;
  released = 0;
  EXPECT_OK(epl_tensor_create(engine, EPL_DTYPE_F32, dims, 2, &zeros));
  EXPECT_OK(epl_tensor_create_copy(engine, EPL_DTYPE_F32, dims, 2, values, sizeof values, &copy));
  EXPECT_OK(epl_tensor_create_borrow(
      engine, EPL_DTYPE_F32, dims, 2, values, sizeof values, 0, [](void*) { ++released; }, nullptr, &borrowed));
  EXPECT_EQ(static_cast<float*>(epl_tensor_data(zeros))[5], 0);
  values[5] = 7;
  EXPECT_EQ(static_cast<float*>(epl_tensor_data(copy))[5], 6);
  EXPECT_EQ(epl_tensor_data(borrowed), values);
  EXPECT_EQ(epl_tensor_dtype(copy), EPL_DTYPE_F32);
  EXPECT_EQ(epl_tensor_ndim(copy), 2);
  EXPECT_EQ(epl_tensor_dim(copy, 1), 3);
  EXPECT_EQ(epl_tensor_dim(copy, 2), -1);
  EXPECT_EQ(epl_tensor_bytes(copy), sizeof values);
  epl_tensor_destroy(zeros);
  epl_tensor_destroy(copy);
  EXPECT_EQ(released, 0);
  epl_tensor_destroy(borrowed);
  EXPECT_EQ(released, 1);
  EXPECT_ERROR(epl_tensor_create_borrow(
                   engine, EPL_DTYPE_F32, dims, 2, values, 20, 0, [](void*) { ++released; }, nullptr, &borrowed),
               EPL_ERROR_INVALID_ARGUMENT, "5 elements of f32 were given (20 bytes), but f32[2,3] has 6 elements");
  EXPECT_EQ(released, 2);
}

TEST_F(CApi, ImpossibleTensorsAreErrors) {
  epl_tensor* t = nullptr;
  const int64_t negative[1] = {-1}, huge[3] = {int64_t{1} << 40, int64_t{1} << 40, 1}, fine[1] = {2},
                empty[3] = {int64_t{1} << 62, 0, int64_t{1} << 62};
  EXPECT_ERROR(epl_tensor_create(engine, 0, fine, 1, &t), EPL_ERROR_INVALID_ARGUMENT, "no element type");
  EXPECT_ERROR(epl_tensor_create(engine, 14, fine, 1, &t), EPL_ERROR_INVALID_ARGUMENT, "no element type");
  EXPECT_ERROR(epl_tensor_create(engine, EPL_DTYPE_F32, negative, 1, &t), EPL_ERROR_INVALID_ARGUMENT,
               "dimension 0 is -1");
  EXPECT_ERROR(epl_tensor_create(engine, EPL_DTYPE_F32, huge, 3, &t), EPL_ERROR_INVALID_ARGUMENT, "2^63");
  EXPECT_ERROR(epl_tensor_create(engine, EPL_DTYPE_F32, fine, 17, &t), EPL_ERROR_INVALID_ARGUMENT, "ndim");
  EXPECT_ERROR(epl_tensor_create(engine, EPL_DTYPE_F32, nullptr, 1, &t), EPL_ERROR_INVALID_ARGUMENT, "dims is missing");
  EXPECT_ERROR(epl_tensor_create(nullptr, EPL_DTYPE_F32, fine, 1, &t), EPL_ERROR_INVALID_ARGUMENT, "engine is missing");
  EXPECT_ERROR(epl_tensor_create(engine, EPL_DTYPE_F32, fine, 1, nullptr), EPL_ERROR_INVALID_ARGUMENT,
               "tensor is missing");
  EXPECT_OK(epl_tensor_create(engine, EPL_DTYPE_F32, empty, 3, &t));
  EXPECT_EQ(epl_tensor_bytes(t), 0u);
  epl_tensor_destroy(t);
}

TEST_F(CApi, DlpackThereAndBack) {
  const int64_t dims[2] = {2, 2};
  const int64_t values[4] = {1, 2, 3, 4};
  epl_tensor *tensor = nullptr, *back = nullptr;
  EXPECT_OK(epl_tensor_create_copy(engine, EPL_DTYPE_I64, dims, 2, values, sizeof values, &tensor));
  void* raw = nullptr;
  EXPECT_OK(epl_tensor_to_dlpack(tensor, &raw));
  auto* managed = static_cast<dlpack::ManagedTensorVersioned*>(raw);
  EXPECT_EQ(managed->version.major, 1u);
  EXPECT_EQ(managed->dl_tensor.ndim, 2);
  EXPECT_EQ(managed->dl_tensor.dtype.code, 0);
  EXPECT_EQ(managed->dl_tensor.dtype.bits, 64);
  EXPECT_EQ(managed->dl_tensor.strides[0], 2);
  epl_tensor_destroy(tensor);  // the exported one keeps the bytes
  EXPECT_OK(epl_tensor_from_dlpack(engine, raw, &back));
  EXPECT_EQ(static_cast<int64_t*>(epl_tensor_data(back))[3], 4);
  EXPECT_EQ(epl_tensor_dtype(back), EPL_DTYPE_I64);
  epl_tensor_destroy(back);
}

TEST_F(CApi, DlpackThatDoesNotFitIsReleasedAndRefused) {
  static int deleted;
  deleted = 0;
  float data[6] = {};
  int64_t shape[2] = {2, 3}, transposed[2] = {1, 2};
  auto offer = [&](const std::function<void(dlpack::ManagedTensorVersioned&)>& change) {
    static dlpack::ManagedTensorVersioned managed;
    managed = {{1, 0},
               nullptr,
               [](dlpack::ManagedTensorVersioned*) { ++deleted; },
               0,
               {data, {1, 0}, 2, {2, 32, 1}, shape, nullptr, 0}};
    change(managed);
    epl_tensor* tensor = nullptr;
    Outcome outcome(epl_tensor_from_dlpack(engine, &managed, &tensor));
    epl_tensor_destroy(tensor);
    return outcome;
  };
  EXPECT_EQ(offer([](auto&) {}).code, EPL_OK);
  EXPECT_EQ(offer([](auto& m) { m.version.major = 2; }).code, EPL_ERROR_UNSUPPORTED);
  EXPECT_EQ(offer([](auto& m) { m.dl_tensor.device.device_type = 4; }).code, EPL_ERROR_UNSUPPORTED);
  EXPECT_EQ(offer([](auto& m) { m.dl_tensor.device = {2, -1}; }).code, EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(offer([](auto& m) { m.dl_tensor.dtype.lanes = 4; }).code, EPL_ERROR_UNSUPPORTED);
  EXPECT_EQ(offer([&](auto& m) { m.dl_tensor.strides = transposed; }).code, EPL_ERROR_UNSUPPORTED);
  EXPECT_EQ(offer([](auto& m) { m.dl_tensor.ndim = -1; }).code, EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(deleted, 7);
}

// Nobody reads what lies on a GPU but a session there. What is pinned is memory of the host.
TEST_F(CApi, DlpackOfAGpuIsKnownByItsDevice) {
  static int deleted;
  deleted = 0;
  static char far[64];  // which is never read
  int64_t shape[2] = {2, 3};
  dlpack::ManagedTensorVersioned managed = {{1, 0},
                                            nullptr,
                                            [](dlpack::ManagedTensorVersioned*) { ++deleted; },
                                            dlpack::flag_read_only,
                                            {far, {2, 3}, 2, {2, 32, 1}, shape, nullptr, 8}};
  for (const int32_t kind : {2, 13, 3}) {
    managed.dl_tensor.device.device_type = kind;
    epl_tensor *there = nullptr, *back = nullptr;
    EXPECT_OK(epl_tensor_from_dlpack(engine, &managed, &there));
    const bool on_gpu = kind != 3;
    EXPECT_EQ(epl_tensor_device(there), on_gpu ? EPL_DEVICE_CUDA : EPL_DEVICE_CPU);
    EXPECT_EQ(epl_tensor_data(there), on_gpu ? nullptr : far + 8);
    EXPECT_EQ(epl_tensor_bytes(there), 24u);
    EXPECT_EQ(epl_tensor_is_read_only(there), 1);
    void* raw = nullptr;
    EXPECT_OK(epl_tensor_to_dlpack(there, &raw));
    const dlpack::Tensor& given = static_cast<dlpack::ManagedTensorVersioned*>(raw)->dl_tensor;
    EXPECT_EQ(given.data, far + 8);
    EXPECT_EQ(given.device.device_type, on_gpu ? 2 : 1);
    EXPECT_EQ(given.device.device_id, on_gpu ? 3 : 0);
    EXPECT_OK(epl_tensor_from_dlpack(engine, raw, &back));
    EXPECT_EQ(epl_tensor_device(back), epl_tensor_device(there));
    if (on_gpu) {
      epl_trainer* trainer = nullptr;
      EXPECT_OK(epl_trainer_create(engine, &trainer));
      EXPECT_ERROR(epl_trainer_bind_value(trainer, EPL_STR("x"), back), EPL_ERROR_UNSUPPORTED, "value lies on cuda:3");
      epl_trainer_destroy(trainer);
      epl_tensor_info field = EPL_TENSOR_INFO_INIT;
      field.name = "x", field.name_length = 1, field.dtype = EPL_DTYPE_F32, field.ndim = 1, field.dims[0] = 3;
      epl_feed* feed = nullptr;
      EXPECT_OK(epl_feed_create(engine, &field, 1, 1, &feed));
      const epl_tensor* batch[] = {back};
      EXPECT_ERROR(epl_feed_push(feed, batch, 1, nullptr), EPL_ERROR_UNSUPPORTED, "tensors[0] lies on cuda:3");
      epl_feed_destroy(feed);
    }
    epl_tensor_destroy(there);
    epl_tensor_destroy(back);
  }
  EXPECT_EQ(deleted, 3);
}

TEST_F(CApi, TrainerKeysAreCheckedWithTheNearestKnown) {
  epl_trainer* trainer = nullptr;
  EXPECT_OK(epl_trainer_create(engine, &trainer));
  auto set = [&](const std::string& key, const std::string& value) {
    return epl_trainer_set(trainer, key.data(), key.size(), value.data(), value.size());
  };
  EXPECT_ERROR(set("optimiser", "sgd"), EPL_ERROR_NOT_FOUND, "did you mean optimizer?");
  EXPECT_ERROR(set("optimizer", "adan"), EPL_ERROR_NOT_FOUND, "did you mean adam");
  EXPECT_ERROR(set("loss", "msee"), EPL_ERROR_NOT_FOUND, "did you mean mse?");
  EXPECT_ERROR(set("schedule", "cos"), EPL_ERROR_NOT_FOUND, "cosine");
  EXPECT_ERROR(set("clip_norm", "much"), EPL_ERROR_INVALID_ARGUMENT, "a finite number is expected");
  EXPECT_ERROR(set("precision", "f16"), EPL_ERROR_INVALID_ARGUMENT, "one of f32, f64 is expected");
  EXPECT_OK(set("precision", "f64"));
  EXPECT_OK(set("loss", "output:objective"));
  EXPECT_OK(set("loss", "softmax_cross_entropy"));
  // Options before their optimizer: types are found later.
  EXPECT_OK(set("optimizer.betas", "0.8,0.9"));
  EXPECT_OK(set("optimizer", "adam"));
  EXPECT_OK(epl_trainer_set_number(trainer, EPL_STR("optimizer.lr"), 1));
  EXPECT_OK(epl_trainer_set_number(trainer, EPL_STR("loss.ignore_index"), -1));
  EXPECT_OK(epl_trainer_set(trainer, EPL_STR("schedule"), EPL_STR("linear")));
  EXPECT_OK(epl_trainer_set_number(trainer, EPL_STR("schedule.total_steps"), 100));
  int64_t group = -1;
  EXPECT_OK(epl_trainer_add_group(trainer, EPL_STR("*.bias"), &group));
  EXPECT_OK(epl_trainer_group_set(trainer, group, EPL_STR("weight_decay"), EPL_STR("0.5")));
  EXPECT_ERROR(epl_trainer_group_set(trainer, 5, EPL_STR("lr"), EPL_STR("1")), EPL_ERROR_INVALID_ARGUMENT,
               "no parameter group 5");
  auto resolved = resolve_trainer(*trainer);
  ASSERT_TRUE(resolved.ok()) << resolved.status().to_string();
  EXPECT_EQ(std::get<Doubles>(*resolved->optimizer_options.find("betas")), (Doubles{0.8, 0.9}));
  EXPECT_EQ(resolved->optimizer_options.number("lr"), 1.0);
  EXPECT_EQ(resolved->loss.options.integer("ignore_index"), -1);
  EXPECT_EQ(resolved->groups.at(0).options.number("weight_decay"), 0.5);
  EXPECT_ERROR(set("optimizer.beta", "0.8"), EPL_ERROR_NOT_FOUND,
               "optimizer adam has no option \"beta\"; did you mean betas?");
  EXPECT_ERROR(set("optimizer.betas", "0.8"), EPL_ERROR_INVALID_ARGUMENT, "option betas holds two numbers, got 1");
  EXPECT_ERROR(epl_trainer_group_set(trainer, group, EPL_STR("weight"), EPL_STR("0.5")), EPL_ERROR_NOT_FOUND,
               "an optimizer has no option \"weight\"");
  EXPECT_TRUE(resolve_trainer(*trainer).ok());
  epl_trainer_destroy(trainer);
}

TEST_F(CApi, StrategiesFromJsonAndKeys) {
  epl_strategy* strategy = nullptr;
  EXPECT_ERROR(epl_strategy_parse(engine, EPL_STR("{\"pipeline.num_micro_batches\": 2}"), &strategy),
               EPL_ERROR_NOT_FOUND, "did you mean pipeline.num_micro_batch?");
  EXPECT_EQ(strategy, nullptr);
  EXPECT_OK(epl_strategy_create(engine, &strategy));
  EXPECT_OK(epl_strategy_set(strategy, EPL_STR("pipeline.num_micro_batch"), EPL_STR("2")));
  epl_text* json = nullptr;
  EXPECT_OK(epl_strategy_describe(strategy, &json));
  EXPECT_NE(std::string(epl_text_data(json, nullptr)).find("\"pipeline.num_micro_batch\""), std::string::npos);
  size_t length = 0;
  EXPECT_EQ(std::strlen(epl_text_data(json, &length)), length);
  epl_text_destroy(json);
  epl_strategy_destroy(strategy);
}

TEST_F(CApi, ASecondCallerIsAnError) {
  epl_trainer* trainer = nullptr;
  EXPECT_OK(epl_trainer_create(engine, &trainer));
  {
    Caller<epl_trainer> first(*trainer);
    ASSERT_TRUE(first.status().ok());
    EXPECT_ERROR(epl_trainer_set(trainer, EPL_STR("loss"), EPL_STR("mse")), EPL_ERROR_BUSY, "one caller at a time");
  }
  EXPECT_OK(epl_trainer_set(trainer, EPL_STR("loss"), EPL_STR("mse")));
  epl_trainer_destroy(trainer);
}

TEST_F(CApi, MistakesWithFilesNameThePlace) {
  epl_model* model = nullptr;
  epl_dataset* dataset = nullptr;
  epl_text* text = nullptr;
  EXPECT_ERROR(epl_model_load(engine, EPL_STR("/nowhere/model.onnx"), nullptr, nullptr, &model), EPL_ERROR_NOT_FOUND,
               "/nowhere/model.onnx");
  EXPECT_ERROR(epl_model_load_bytes(engine, "garbage", 7, nullptr, nullptr, &model), EPL_ERROR_INVALID_MODEL, "");
  EXPECT_ERROR(epl_dataset_open(engine, EPL_STR("/nowhere/x.safetensors"), nullptr, 0, nullptr, &dataset),
               EPL_ERROR_NOT_FOUND, "/nowhere/x.safetensors");
  EXPECT_ERROR(epl_dataset_open(engine, EPL_STR("x.txt"), EPL_STR("{\"contxt\": 3}"), nullptr, &dataset),
               EPL_ERROR_NOT_FOUND, "did you mean context?");
  EXPECT_ERROR(epl_dataset_open(engine, EPL_STR("x.txt"), EPL_STR("{\"context\": \"3\"}"), nullptr, &dataset),
               EPL_ERROR_INVALID_ARGUMENT, "an integer is expected");
  EXPECT_ERROR(epl_dataset_open(engine, EPL_STR("x.txt"), EPL_STR("[]"), nullptr, &dataset), EPL_ERROR_INVALID_ARGUMENT,
               "JSON object");
  EXPECT_ERROR(epl_checkpoint_describe(engine, EPL_STR("/nowhere"), nullptr, &text), EPL_ERROR_NOT_FOUND,
               "no checkpoint");
  EXPECT_ERROR(epl_x_template_write(engine, EPL_STR("gtp2"), nullptr, 0, EPL_STR("never_written.onnx"), nullptr),
               EPL_ERROR_NOT_FOUND, "did you mean gpt2?");
  EXPECT_ERROR(
      epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"size\": 3}"), EPL_STR("never_written.onnx"), nullptr),
      EPL_ERROR_NOT_FOUND, "did you mean sizes?");
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(dataset, nullptr);
}

TEST_F(CApi, TheEngineDescribesItself) {
  epl_text* text = nullptr;
  EXPECT_OK(epl_engine_describe(engine, &text));
  const std::string json = epl_text_data(text, nullptr);
  for (const char* word : {"\"adamw\"", "\"softmax_cross_entropy\"", "\"safetensors\"", "\"gpt2\"",
                           "\"pipeline.num_micro_batch\"", "\"cpu\""}) {
    EXPECT_NE(json.find(word), std::string::npos) << word;
  }
  epl_text_destroy(text);
}

}  // namespace
}  // namespace epl::capi::capi_test
