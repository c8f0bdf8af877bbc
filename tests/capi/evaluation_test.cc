// Evaluation through the C API: the same numbers for every batch, the last samples included; batches that are not full;
// indices out of range.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "core/base/json.h"
#include "core/capi/objects.h"
#include "core/formats/safetensors.h"
#include "tests/temporary_folder.h"

namespace epl::capi::evaluation_test {
namespace {

constexpr int64_t samples = 50;

void ok(epl_error* error) { ASSERT_EQ(error, nullptr) << epl_error_message(error, nullptr); }
std::string message_of(epl_error* error, int32_t code) {
  EXPECT_EQ(epl_error_code(error), code);
  std::string message = epl_error_message(error, nullptr);
  epl_error_destroy(error);
  return message;
}

class EvaluationApi : public testing::Test {
 protected:
  void SetUp() override {
    model_path = folder + "/mlp.onnx";
    data_path = folder + "/rows.safetensors";
    ok(epl_engine_create(nullptr, &engine));
    ok(epl_x_template_write(engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[6,10,3],\"seed\":5}"), model_path.data(),
                            model_path.size(), nullptr));
    ok(epl_model_load(engine, model_path.data(), model_path.size(), nullptr, nullptr, &model));
    x = Tensor(TensorType{DType::f32, {samples, 6}});
    target = Tensor(TensorType{DType::i64, {samples}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, std::sin(static_cast<double>(i * i % 101)));
    for (int64_t i = 0; i < samples; ++i) target.set_int(i, i % 7 == 5 ? -100 : (i * i + 1) % 3);
    ASSERT_TRUE(save_safetensors(data_path, {{"x", x}, {"target", target}}).ok());
  }
  void TearDown() override {
    epl_model_destroy(model);
    epl_engine_destroy(engine);
    EXPECT_EQ(epl_live_handles(), 0);
  }

  struct Job {
    epl_plan* plan = nullptr;
    epl_session* session = nullptr;
    epl_dataset* dataset = nullptr;
    ~Job() {
      epl_dataset_destroy(dataset);
      epl_session_destroy(session);
      epl_plan_destroy(plan);
    }
  };
  // `keys` are set on the trainer: "loss.label_smoothing" = "0.1".
  void make(Job& job, int64_t batch, int64_t ranks = 1, const std::map<std::string, std::string>& keys = {},
            const char* strategy = "{}") {
    epl_trainer* trainer = nullptr;
    epl_strategy* parsed = nullptr;
    ok(epl_trainer_create(engine, &trainer));
    ok(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), batch));
    for (const auto& [key, value] : keys)
      ok(epl_trainer_set(trainer, key.data(), key.size(), value.data(), value.size()));
    ok(epl_strategy_parse(engine, strategy, std::strlen(strategy), &parsed));
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = ranks;
    ok(epl_plan_create(model, trainer, parsed, &options, nullptr, &job.plan));
    ok(epl_session_create(job.plan, nullptr, nullptr, &job.session));
    const std::string text = "{\"partial\":true,\"batch\":" + std::to_string(batch) + "}";
    ok(epl_dataset_open(engine, data_path.data(), data_path.size(), text.data(), text.size(), nullptr, &job.dataset));
    ok(epl_dataset_bind(job.dataset, job.plan, EPL_ENTRY_EVALUATE));
    epl_strategy_destroy(parsed);
    epl_trainer_destroy(trainer);
  }
  std::map<std::string, double> measure(Job& job, const char* metrics = "") {
    epl_evaluation* evaluation = nullptr;
    std::map<std::string, double> out;
    ok(epl_evaluation_create(job.plan, metrics, std::strlen(metrics), &evaluation));
    ok(epl_evaluation_add_dataset(evaluation, job.session, job.dataset, 0, nullptr));
    EXPECT_EQ(epl_evaluation_samples(evaluation), samples);
    epl_text* text = nullptr;
    ok(epl_evaluation_describe(evaluation, &text));
    const Json json = *parse_json(epl_text_data(text, nullptr));
    for (const Json& one : json.at("metrics")) out[one.at("name").get<std::string>()] = one.at("value").get<double>();
    epl_text_destroy(text);
    epl_evaluation_destroy(evaluation);
    return out;
  }
  epl_tensor* borrow(const Tensor& tensor, int64_t first, int64_t count) {
    epl_tensor* made = nullptr;
    std::vector<int64_t> dims = tensor.shape();
    const int64_t each = tensor.bytes() / dims[0];
    dims[0] = count;
    auto* data = const_cast<std::byte*>(static_cast<const std::byte*>(tensor.data())) + first * each;
    ok(epl_tensor_create_borrow(engine, dtype_constant(tensor.dtype()), dims.data(), static_cast<int32_t>(dims.size()),
                                data, static_cast<size_t>(count * each), 0, nullptr, nullptr, &made));
    return made;
  }

  const TemporaryFolder temporary;
  const std::string folder = temporary.path();
  std::string model_path, data_path;
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  Tensor x, target;
};

TEST_F(EvaluationApi, IsTheSameForEveryBatchAndLayout) {
  constexpr const char* metrics = "accuracy, top_k(k=2), perplexity, f1, bits_per_byte";
  std::map<std::string, double> first;
  for (int64_t batch : {1, 7, 8, 32, 50, 64}) {
    Job job;
    make(job, batch);
    EXPECT_EQ(epl_dataset_batches(job.dataset), (samples + batch - 1) / batch);
    const auto found = measure(job, metrics);
    ASSERT_EQ(found.size(), 6u);
    if (first.empty()) first = found;
    EXPECT_EQ(found, first) << "batch " << batch;
  }
  EXPECT_NEAR(first["perplexity"], std::exp(first["loss"]), 1e-12);
  EXPECT_GT(first["top_k(k=2)"], first["accuracy"]);
  Job cut;
  make(cut, 16, 2, {}, "{\"pipeline.num_micro_batch\":2}");
  EXPECT_EQ(measure(cut, metrics), first);
  EXPECT_EQ(measure(cut).size(), 2u) << "the loss and what it names";
  EXPECT_EQ(measure(cut, "none").size(), 1u);
}

TEST_F(EvaluationApi, TheLossIsTheMeanOfWhatCounts) {
  Job one, whole;
  make(one, 8);
  make(whole, 50);
  const epl_tensor* batch[2];
  ok(epl_dataset_next(whole.dataset, nullptr, batch, 2));
  epl_metrics metrics = EPL_METRICS_INIT;
  ok(epl_session_evaluate(whole.session, batch, 2, nullptr, &metrics));
  EXPECT_NEAR(measure(one)["loss"], metrics.loss, 2e-6 * metrics.loss);  // a sum in float, and one without rounding
}

TEST_F(EvaluationApi, OptionsOfTheLossDoNotReachTheMetrics) {
  Job plain, smooth;
  make(plain, 16);
  make(smooth, 16, 1, {{"loss.label_smoothing", "0.2"}, {"loss.class_weights", "[1,2,0.5]"}});
  const auto a = measure(plain, "perplexity,accuracy"), b = measure(smooth, "perplexity,accuracy");
  EXPECT_NE(a.at("loss"), b.at("loss"));
  EXPECT_NEAR(a.at("perplexity"), b.at("perplexity"), 1e-6);
  EXPECT_EQ(a.at("accuracy"), b.at("accuracy"));
}

TEST_F(EvaluationApi, ABatchThatIsNotFullIsEnough) {
  Job job, small;
  make(job, 16);
  make(small, 5);
  epl_tensor *some_x = borrow(x, 10, 5), *some_target = borrow(target, 10, 5);
  const epl_tensor* inputs[2] = {some_x, some_target};
  epl_tensor *cut = nullptr, *exact = nullptr;
  ok(epl_session_predict(job.session, inputs, 1, nullptr, &cut, 1));
  ok(epl_session_predict(small.session, inputs, 1, nullptr, &exact, 1));
  ASSERT_EQ(epl_tensor_dim(cut, 0), 5);
  ASSERT_EQ(epl_tensor_bytes(cut), epl_tensor_bytes(exact));
  EXPECT_EQ(std::memcmp(epl_tensor_data(cut), epl_tensor_data(exact), epl_tensor_bytes(cut)), 0);
  epl_metrics padded = EPL_METRICS_INIT, full = EPL_METRICS_INIT;
  ok(epl_session_evaluate(job.session, inputs, 2, nullptr, &padded));
  ok(epl_session_evaluate(small.session, inputs, 2, nullptr, &full));
  EXPECT_NEAR(padded.loss, full.loss, 1e-6 * full.loss);
  const std::string message =
      message_of(epl_session_step(job.session, inputs, 2, nullptr, nullptr), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message.find("full batch of the plan, 16 samples; got 5"), std::string::npos) << message;
  epl_tensor* other = borrow(target, 0, 4);
  const epl_tensor* uneven[2] = {some_x, other};
  EXPECT_NE(message_of(epl_session_evaluate(job.session, uneven, 2, nullptr, nullptr), EPL_ERROR_INVALID_ARGUMENT)
                .find("holds 4 samples, input x 5"),
            std::string::npos);
  for (epl_tensor* tensor : {some_x, some_target, cut, exact, other}) epl_tensor_destroy(tensor);
}

TEST_F(EvaluationApi, PartsMergeIntoOne) {
  Job job;
  make(job, 16);
  epl_evaluation *left = nullptr, *right = nullptr, *others = nullptr;
  ok(epl_evaluation_create(job.plan, EPL_STR("accuracy"), &left));
  ok(epl_evaluation_create(job.plan, EPL_STR("accuracy"), &right));
  ok(epl_evaluation_create(job.plan, EPL_STR("perplexity"), &others));
  ok(epl_evaluation_add_dataset(left, job.session, job.dataset, 1, nullptr));
  ok(epl_evaluation_add_dataset(right, job.session, job.dataset, 3, nullptr));
  EXPECT_EQ(epl_evaluation_samples(right), 34);
  ok(epl_evaluation_merge(left, right));
  const auto whole = measure(job, "accuracy");
  double value = 0;
  ok(epl_evaluation_result(left, EPL_STR("accuracy"), &value));
  EXPECT_EQ(value, whole.at("accuracy"));
  ok(epl_evaluation_result(left, EPL_STR("loss"), &value));
  EXPECT_EQ(value, whole.at("loss"));
  message_of(epl_evaluation_merge(left, others), EPL_ERROR_INVALID_ARGUMENT);
  message_of(epl_evaluation_merge(left, left), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_NE(message_of(epl_evaluation_result(left, EPL_STR("accuracies"), &value), EPL_ERROR_NOT_FOUND)
                .find("did you mean accuracy?"),
            std::string::npos);
  ok(epl_evaluation_reset(left));
  EXPECT_EQ(epl_evaluation_samples(left), 0);
  ok(epl_evaluation_result(left, EPL_STR("loss"), &value));
  EXPECT_TRUE(std::isnan(value));
  epl_evaluation_destroy(left);
  epl_evaluation_destroy(right);
  epl_evaluation_destroy(others);
}

TEST_F(EvaluationApi, WrongMetricsAreNamed) {
  Job job, another;
  make(job, 16);
  make(another, 16);
  epl_evaluation* evaluation = nullptr;
  EXPECT_NE(message_of(epl_evaluation_create(job.plan, EPL_STR("mae"), &evaluation), EPL_ERROR_INVALID_ARGUMENT)
                .find("class indices"),
            std::string::npos);
  EXPECT_EQ(evaluation, nullptr);
  EXPECT_NE(message_of(epl_evaluation_create(job.plan, EPL_STR("accuracy(output=logit)"), &evaluation),
                       EPL_ERROR_INVALID_ARGUMENT)
                .find("did you mean"),
            std::string::npos);
  ok(epl_evaluation_create(job.plan, nullptr, 0, &evaluation));
  EXPECT_NE(message_of(epl_evaluation_add_dataset(evaluation, another.session, job.dataset, 0, nullptr),
                       EPL_ERROR_INVALID_ARGUMENT)
                .find("another plan"),
            std::string::npos);
  epl_evaluation_destroy(evaluation);
}

TEST_F(EvaluationApi, ALabelOutOfRangeIsFoundBeforeTheStep) {
  Job job, weighted;
  make(job, 8);
  make(weighted, 8, 1, {{"loss.class_weights", "[1,2,3]"}});
  target.set_int(3, 3);
  epl_tensor *some_x = borrow(x, 0, 8), *some_target = borrow(target, 0, 8);
  const epl_tensor* inputs[2] = {some_x, some_target};
  uint64_t before = 0, after = 0;
  ok(epl_session_hash(job.session, nullptr, &before));
  for (epl_session* session : {job.session, weighted.session}) {
    const std::string message =
        message_of(epl_session_step(session, inputs, 2, nullptr, nullptr), EPL_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(message.find(
                  "input target holds 3, which is not a class of 3 and not the ignored -100; they count from 0 (row 3"),
              std::string::npos)
        << message;
  }
  message_of(epl_session_evaluate(job.session, inputs, 2, nullptr, nullptr), EPL_ERROR_INVALID_ARGUMENT);
  target.set_int(3, -1);
  message_of(epl_session_step(job.session, inputs, 2, nullptr, nullptr), EPL_ERROR_INVALID_ARGUMENT);
  ok(epl_session_hash(job.session, nullptr, &after));
  EXPECT_EQ(before, after);
  target.set_int(3, 2);
  ok(epl_session_step(job.session, inputs, 2, nullptr, nullptr));
  x.set(6 * 4 + 1, NAN);
  const std::string message =
      message_of(epl_session_step(job.session, inputs, 2, nullptr, nullptr), EPL_ERROR_NOT_FINITE);
  EXPECT_NE(message.find("input x holds nan at [4,1]"), std::string::npos) << message;
  epl_tensor_destroy(some_x);
  epl_tensor_destroy(some_target);
}

TEST_F(EvaluationApi, EverySampleOfADatasetIsChecked) {
  Job job;
  make(job, 8);
  ok(epl_dataset_check(job.dataset, job.plan, EPL_ENTRY_TRAIN, nullptr));
  target.set_int(41, 7);
  ASSERT_TRUE(save_safetensors(data_path, {{"x", x}, {"target", target}}).ok());
  for (const char* options : {"{}", "{\"split\":\"train\",\"held_out\":0.02,\"split_seed\":3}"}) {
    epl_dataset* wrong = nullptr;
    ok(epl_dataset_open(engine, data_path.data(), data_path.size(), options, std::strlen(options), nullptr, &wrong));
    const std::string message =
        message_of(epl_dataset_check(wrong, job.plan, EPL_ENTRY_TRAIN, nullptr), EPL_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(message.find("field target, row 41 (counted from 0), holds 7, which is not a class of 3"),
              std::string::npos)
        << message;
    epl_dataset_destroy(wrong);
  }
}

TEST_F(EvaluationApi, TheRateIsSetBetweenStepsAndKept) {
  Job job, other, constant;
  make(job, 8, 1,
       {{"schedule", "plateau"}, {"schedule.patience", "0"}, {"schedule.factor", "0.5"}, {"optimizer.lr", "0.2"}});
  make(other, 8, 1,
       {{"schedule", "plateau"}, {"schedule.patience", "0"}, {"schedule.factor", "0.5"}, {"optimizer.lr", "0.2"}});
  make(constant, 8);
  const epl_tensor* batch[2];
  const auto rate = [&](Job& one) {
    epl_metrics metrics = EPL_METRICS_INIT;
    ok(epl_dataset_next(one.dataset, nullptr, batch, 2));
    ok(epl_session_step(one.session, batch, 2, nullptr, &metrics));
    return metrics.learning_rate;
  };
  EXPECT_DOUBLE_EQ(rate(job), 0.2);
  ok(epl_session_observe(job.session, 1.0, 0));
  ok(epl_session_observe(job.session, 1.5, 0));
  EXPECT_DOUBLE_EQ(rate(job), 0.1);
  ok(epl_session_set_number(job.session, EPL_STR("learning_rate_scale"), 0.25));
  EXPECT_DOUBLE_EQ(rate(job), 0.05);
  const std::string path = folder + "/checkpoint";
  ok(epl_session_save(job.session, path.data(), path.size(), nullptr, nullptr));
  ok(epl_session_load(other.session, path.data(), path.size(), nullptr, nullptr));
  double scale = 0;
  ok(epl_session_get_number(other.session, EPL_STR("learning_rate_scale"), &scale));
  EXPECT_EQ(scale, 0.25);
  ok(epl_session_observe(other.session, 0.9999999, 0));  // the best is kept as well, and this is hardly better
  EXPECT_DOUBLE_EQ(rate(other), 0.025);
  uint64_t left = 0, right = 0;
  ok(epl_session_observe(job.session, 0.9999999, 0));
  ok(epl_dataset_seek(job.dataset, epl_dataset_position(other.dataset) - 1));
  rate(job);
  ok(epl_session_hash(job.session, nullptr, &left));
  ok(epl_session_hash(other.session, nullptr, &right));
  EXPECT_EQ(left, right);
  EXPECT_NE(message_of(epl_session_observe(constant.session, 1, 0), EPL_ERROR_INVALID_ARGUMENT).find("plateau does"),
            std::string::npos);
  message_of(epl_session_set_number(job.session, EPL_STR("learning_rate_scale"), -1), EPL_ERROR_INVALID_ARGUMENT);
  message_of(epl_session_set_number(job.session, EPL_STR("lr"), 1), EPL_ERROR_NOT_FOUND);
}

// Two threads at two evaluations: one of them has it, the other is told; nothing hangs.
TEST_F(EvaluationApi, ASecondCallerIsRefused) {
  Job job;
  make(job, 16);
  epl_session* second = nullptr;
  epl_evaluation *a = nullptr, *b = nullptr;
  ok(epl_session_create(job.plan, nullptr, nullptr, &second));
  ok(epl_evaluation_create(job.plan, EPL_STR("accuracy"), &a));
  ok(epl_evaluation_create(job.plan, EPL_STR("accuracy"), &b));
  epl_tensor *some_x = borrow(x, 0, 16), *some_target = borrow(target, 0, 16);
  const epl_tensor* inputs[2] = {some_x, some_target};
  std::atomic<int> refused{0}, done{0};
  const auto counted = [&](epl_error* error) {
    const int32_t code = epl_error_code(error);
    epl_error_destroy(error);
    EXPECT_TRUE(code == EPL_OK || code == EPL_ERROR_BUSY) << code;
    ++(code == EPL_OK ? done : refused);
  };
  const auto work = [&](epl_session* session) {
    for (int i = 0; i < 300; ++i) {
      double value = 0;
      epl_text* text = nullptr;
      counted(epl_evaluation_add(a, session, inputs, 2, nullptr));
      counted(epl_evaluation_merge(b, a));
      counted(epl_evaluation_result(b, EPL_STR("loss"), &value));
      counted(epl_evaluation_describe(a, &text));
      epl_text_destroy(text);
      counted(epl_evaluation_reset(b));
    }
  };
  std::thread other(work, second);
  work(job.session);
  other.join();
  EXPECT_EQ(refused + done, 3000);
  EXPECT_EQ(epl_evaluation_samples(a) % 16, 0);
  ok(epl_evaluation_reset(a));
  ok(epl_evaluation_add(a, job.session, inputs, 2, nullptr));
  EXPECT_EQ(epl_evaluation_samples(a), 16);
  epl_tensor_destroy(some_x);
  epl_tensor_destroy(some_target);
  epl_evaluation_destroy(a);
  epl_evaluation_destroy(b);
  epl_session_destroy(second);
}

}  // namespace
}  // namespace epl::capi::evaluation_test
