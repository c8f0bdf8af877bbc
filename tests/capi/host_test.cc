// What a host process may do to the library, and what it must not notice of it: destroying beside a call, fork, its own
// rounding mode, files that change, threads, texts, userdata.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/text.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

struct Failure {
  explicit Failure(epl_error* error) : code(epl_error_code(error)) {
    size_t length = 0;
    const char* text = epl_error_message(error, &length);
    message.assign(text, length);
    epl_error_destroy(error);
  }
  int32_t code;
  std::string message;
};

class HostApi : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 2, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
};

// The log is called inside the step, so the call is certainly under way.
TEST_F(HostApi, ASessionDestroyedByAnotherThreadLivesToTheEndOfItsStep) {
  struct Destroyer {
    epl_session* session = nullptr;
    int64_t alive = 0;
  } destroyer;
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.log_level = EPL_LOG_DEBUG;
  options.log_userdata = &destroyer;
  options.log = [](void* userdata, int32_t, const char* message, size_t length) {
    auto* d = static_cast<Destroyer*>(userdata);
    if (d->session == nullptr || std::string_view(message, length).find("step") != 0) return;
    std::thread([d] {
      epl_session_destroy(d->session);
      epl_session_destroy(d->session);  // twice changes nothing
      EXPECT_EQ(taken(epl_session_step(d->session, nullptr, 0, nullptr, nullptr)), EPL_ERROR_MISUSE);
    }).join();
    d->alive = epl_live_handles();
  };
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  must(epl_engine_create(&options, &engine));
  must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
  must(epl_plan_create(model, w.trainer, nullptr, nullptr, nullptr, &plan));
  must(epl_session_create(plan, nullptr, nullptr, &session));
  destroyer.session = session;
  epl_metrics metrics = EPL_METRICS_INIT;
  must(epl_session_step(session, w.inputs, 2, nullptr, &metrics));
  EXPECT_EQ(metrics.step, 1);
  EXPECT_EQ(epl_live_handles(), destroyer.alive - 1);  // it went with the call
  epl_plan_destroy(plan);
  epl_model_destroy(model);
  epl_engine_destroy(engine);
}

TEST_F(HostApi, StrategiesAndTrainersAreReadByOneCallerAtATime) {
  std::atomic<bool> stop{false};
  std::atomic<int> refused{0}, done{0};
  std::thread setter([&] {
    for (int i = 0; !stop; ++i) {
      const bool odd = i % 2 != 0;
      if (taken(odd ? epl_strategy_set(w.strategy, EPL_STR("pipeline.num_micro_batch"), EPL_STR("2"))
                    : epl_strategy_set(w.strategy, EPL_STR("reproducible.level"), EPL_STR("data"))) == EPL_ERROR_BUSY)
        ++refused;
      static_cast<void>(taken(epl_trainer_set(w.trainer, EPL_STR("loss.output"), EPL_STR(""))));
    }
  });
  for (int i = 0; i < 300; ++i) {
    epl_text* text = nullptr;
    const int32_t code = taken(epl_strategy_describe(w.strategy, &text));
    EXPECT_TRUE(code == EPL_OK || code == EPL_ERROR_BUSY);
    EXPECT_EQ(text != nullptr, code == EPL_OK);
    epl_text_destroy(text);
    if (i % 30 != 0) continue;
    epl_plan* plan = nullptr;
    const int32_t planned = taken(epl_plan_create(w.model, w.trainer, w.strategy, nullptr, nullptr, &plan));
    EXPECT_TRUE(planned == EPL_OK || planned == EPL_ERROR_BUSY);
    epl_plan_destroy(plan);
    ++done;
  }
  stop = true;
  setter.join();
  EXPECT_EQ(done, 10);
}

// Runs f in a child of fork() and gives what it returns; -1 where it does not end.
template <class F> int in_child(F&& f) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    ::_exit(f());
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(HostApi, AChildOfForkIsRefusedAndNothingHangs) {
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));  // its threads are there
  epl_dataset* dataset = nullptr;
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"prefetch\":2,\"classes\":true}"), nullptr,
                        &dataset));
  const int result = in_child([&] {
    std::string message;
    const epl_tensor* batch[2];
    if (taken(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr)) != EPL_ERROR_MISUSE) return 1;
    if (taken(epl_dataset_next(dataset, nullptr, batch, 2)) != EPL_ERROR_MISUSE) return 2;
    epl_session_destroy(w.session);
    epl_dataset_destroy(dataset);
    // The parent's plan serves a session of the child's own.
    epl_session* own = nullptr;
    if (EPL_SANITIZED) return 0;  // sanitizers start no threads in such a child
    if (taken(epl_session_create(w.plan, nullptr, nullptr, &own)) != EPL_OK) return 3;
    if (taken(epl_session_step(own, w.inputs, 2, nullptr, nullptr)) != EPL_OK) return 4;
    epl_session_destroy(own);
    return 0;
  });
#if !defined(__SANITIZE_THREAD__)
  EXPECT_EQ(result, 0);
#else
  static_cast<void>(result);
#endif
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));  // the parent has lost nothing
  epl_dataset_destroy(dataset);
}

TEST_F(HostApi, HandlesThatAreNoneAreSeenWhereTheyCanBe) {
  // Of another type.
  auto* wrong = reinterpret_cast<epl_session*>(w.plan);
  const Failure foreign(epl_session_step(wrong, w.inputs, 2, nullptr, nullptr));
  EXPECT_EQ(foreign.code, EPL_ERROR_MISUSE);
  EXPECT_NE(foreign.message.find("not a live session"), std::string::npos) << foreign.message;
  epl_session_destroy(wrong);
  EXPECT_EQ(epl_session_steps(wrong), 0);
  EXPECT_EQ(epl_plan_ranks(w.plan), 1);
  const epl_tensor* inputs[2] = {w.x, reinterpret_cast<epl_tensor*>(w.engine)};
  EXPECT_EQ(Failure(epl_session_step(w.session, inputs, 2, nullptr, nullptr)).code, EPL_ERROR_MISUSE);
  if (EPL_SANITIZED) return;  // reading freed memory is what it is there to see
  // Destroyed.
  const int64_t alive = epl_live_handles();
  epl_tensor* tensor = nullptr;
  const int64_t dims[1] = {4};
  must(epl_tensor_create(w.engine, EPL_DTYPE_F32, dims, 1, &tensor));
  epl_tensor_destroy(tensor);
  epl_tensor_destroy(tensor);
  EXPECT_EQ(epl_tensor_data(tensor), nullptr);
  EXPECT_EQ(epl_live_handles(), alive);
}

TEST_F(HostApi, PlacesForHandlesAreNullOnEveryFailure) {
  auto* garbage = reinterpret_cast<epl_tensor*>(0xdead);
  epl_tensor* tensor = garbage;
  EXPECT_NE(taken(epl_session_get(nullptr, EPL_STR("net.0.bias"), nullptr, &tensor)), EPL_OK);
  EXPECT_EQ(tensor, nullptr);
  tensor = garbage;
  EXPECT_NE(taken(epl_session_get(w.session, EPL_STR("nothing"), nullptr, &tensor)), EPL_OK);
  EXPECT_EQ(tensor, nullptr);
  epl_tensor* outputs[3] = {garbage, garbage, garbage};
  EXPECT_NE(taken(epl_session_predict(nullptr, w.inputs, 1, nullptr, outputs, 3)), EPL_OK);
  for (epl_tensor* one : outputs) EXPECT_EQ(one, nullptr);
  epl_dataset* dataset = nullptr;
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8}"), nullptr, &dataset));
  const epl_tensor* batch[3] = {garbage, garbage, garbage};
  EXPECT_NE(taken(epl_dataset_next(dataset, nullptr, batch, 3)), EPL_OK);
  for (const epl_tensor* one : batch) EXPECT_EQ(one, nullptr);
  epl_dataset_destroy(dataset);
}

TEST_F(HostApi, OutputsAreCheckedBeforeAnythingRuns) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{7}, uint64_t{5000}}) {
    epl_metrics metrics = EPL_METRICS_INIT;
    metrics.struct_size = size;
    EXPECT_EQ(taken(epl_session_step(w.session, w.inputs, 2, nullptr, &metrics)), EPL_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(taken(epl_session_evaluate(w.session, w.inputs, 2, nullptr, &metrics)), EPL_ERROR_INVALID_ARGUMENT);
  }
  EXPECT_EQ(epl_session_steps(w.session), 0);
}

TEST_F(HostApi, MessagesAreUtf8WhateverTheyEcho) {
  const std::string bad = "x\xff\xfe y\xe2\x82", euros = [] {
    std::string out = "[\"";
    for (int i = 0; i < 60; ++i) out += "\xe2\x82\xac";
    return out + "\"";
  }();
  const auto check = [](epl_error* error, const char* call) {
    const Failure failure(error);
    EXPECT_NE(failure.code, EPL_OK) << call;
    EXPECT_TRUE(epl::is_utf8(failure.message)) << call << ": " << failure.message;
  };
  epl_text* text = nullptr;
  epl_model* model = nullptr;
  epl_dataset* dataset = nullptr;
  epl_strategy* strategy = nullptr;
  epl_tensor* tensor = nullptr;
  check(epl_trainer_set(w.trainer, bad.data(), bad.size(), "1", 1), "trainer_set");
  check(epl_trainer_set(w.trainer, EPL_STR("clip_norm"), bad.data(), bad.size()), "trainer_set");
  check(epl_strategy_set(w.strategy, bad.data(), bad.size(), "1", 1), "strategy_set");
  check(epl_strategy_parse(w.engine, bad.data(), bad.size(), &strategy), "strategy_parse");
  check(epl_strategy_parse(w.engine, euros.data(), euros.size(), &strategy), "strategy_parse");
  check(epl_model_load(w.engine, bad.data(), bad.size(), nullptr, nullptr, &model), "model_load");
  check(epl_x_template_write(w.engine, bad.data(), bad.size(), nullptr, 0, "y", 1, nullptr), "template_write");
  check(epl_x_template_write(w.engine, EPL_STR("mlp"), euros.data(), euros.size(), "y", 1, nullptr), "template_write");
  check(epl_dataset_open(w.engine, EPL_STR("x.csv"), euros.data(), euros.size(), nullptr, &dataset), "dataset_open");
  check(epl_dataset_open(w.engine, bad.data(), bad.size(), nullptr, 0, nullptr, &dataset), "dataset_open");
  check(epl_plan_describe(w.plan, bad.data(), bad.size(), nullptr, &text), "plan_describe");
  check(epl_session_get(w.session, bad.data(), bad.size(), nullptr, &tensor), "session_get");
  check(epl_checkpoint_describe(w.engine, bad.data(), bad.size(), nullptr, &text), "checkpoint_describe");
}

TEST_F(HostApi, DeepAndDoubledJsonIsRefusedOnASmallStack) {
  std::string deep = "{\"seed\":" + std::string(300000, '[') + std::string(300000, ']') + "}";
  struct Work {
    world* w;
    std::string* deep;
  } work{&w, &deep};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, EPL_SANITIZED ? 4 << 20 : 256 << 10);
  pthread_t thread;
  ASSERT_EQ(pthread_create(
                &thread, &attributes,
                [](void* argument) -> void* {
                  auto* work = static_cast<Work*>(argument);
                  epl_dataset* dataset = nullptr;
                  epl_strategy* strategy = nullptr;
                  const std::string& deep = *work->deep;
                  EXPECT_EQ(taken(epl_x_template_write(work->w->engine, EPL_STR("mlp"), deep.data(), deep.size(),
                                                       EPL_STR("x.onnx"), nullptr)),
                            EPL_ERROR_INVALID_ARGUMENT);
                  EXPECT_EQ(taken(epl_dataset_open(work->w->engine, EPL_STR("x.csv"), deep.data(), deep.size(), nullptr,
                                                   &dataset)),
                            EPL_ERROR_INVALID_ARGUMENT);
                  EXPECT_EQ(taken(epl_strategy_parse(work->w->engine, deep.data(), deep.size(), &strategy)),
                            EPL_ERROR_INVALID_ARGUMENT);
                  return nullptr;
                },
                &work),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  epl_strategy* strategy = nullptr;
  const Failure twice(epl_strategy_parse(
      w.engine, EPL_STR("{\"pipeline.num_micro_batch\":1,\"pipeline.num_micro_batch\":2}"), &strategy));
  EXPECT_NE(twice.message.find("comes twice"), std::string::npos) << twice.message;
}

TEST_F(HostApi, TheSameMistakeHasTheSameCode) {
  epl_text* text = nullptr;
  epl_model* model = nullptr;
  epl_strategy* strategy = nullptr;
  for (epl_error* unknown : {epl_trainer_set(w.trainer, EPL_STR("nothing"), EPL_STR("1")),
                             epl_trainer_set(w.trainer, EPL_STR("loss"), EPL_STR("nothing")),
                             epl_trainer_set(w.trainer, EPL_STR("optimizer"), EPL_STR("nothing")),
                             epl_trainer_set(w.trainer, EPL_STR("schedule"), EPL_STR("nothing")),
                             epl_strategy_set(w.strategy, EPL_STR("nothing"), EPL_STR("1")),
                             epl_strategy_parse(w.engine, EPL_STR("{\"nothing\":1}"), &strategy),
                             epl_plan_describe(w.plan, EPL_STR("nothing"), nullptr, &text),
                             epl_model_load(w.engine, EPL_STR("/nowhere/model"), nullptr, nullptr, &model),
                             epl_model_load(w.engine, EPL_STR("/nowhere/model.onnx"), nullptr, nullptr, &model)}) {
    const Failure failure(unknown);
    EXPECT_EQ(failure.code, EPL_ERROR_NOT_FOUND) << failure.message;
  }
  EXPECT_EQ(Failure(epl_model_load(w.engine, EPL_STR("/etc/passwd"), nullptr, nullptr, &model)).code,
            EPL_ERROR_UNSUPPORTED);
  for (epl_error* wrong : {epl_trainer_set(w.trainer, EPL_STR("clip_norm"), EPL_STR("nan")),
                           epl_trainer_set(w.trainer, EPL_STR("clip_norm"), EPL_STR("inf")),
                           epl_trainer_set_number(w.trainer, EPL_STR("clip_norm"), HUGE_VAL),
                           epl_trainer_set(w.trainer, EPL_STR("schedule.warmup_steps"), EPL_STR("-1"))}) {
    EXPECT_EQ(Failure(wrong).code, EPL_ERROR_INVALID_ARGUMENT);
  }
  epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
  options.device = "abacus";
  options.device_length = 6;
  epl_plan* plan = nullptr;
  EXPECT_EQ(Failure(epl_plan_create(w.model, w.trainer, nullptr, &options, nullptr, &plan)).code, EPL_ERROR_NOT_FOUND);
}

TEST_F(HostApi, UserdataIsGivenBackOnceEachAndNotByAFailure) {
  static std::atomic<int> given_back;
  given_back = 0;
  int shared = 0;
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.allocator_userdata = options.log_userdata = &shared;
  options.allocator_destroy = [](void*) { ++given_back; };
  epl_engine* engine = nullptr;
  must(epl_engine_create(&options, &engine));
  epl_cancel* cancel = nullptr;
  must(epl_cancel_create(engine, &cancel));
  epl_engine_destroy(engine);
  EXPECT_EQ(given_back, 1);  // a token needs nothing of it
  epl_cancel_destroy(cancel);
  EXPECT_EQ(given_back, 1);
  options.log_destroy = options.allocator_destroy;
  options.threads = -1;
  EXPECT_EQ(taken(epl_engine_create(&options, &engine)), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(given_back, 1);
  options.threads = 1;
  must(epl_engine_create(&options, &engine));
  epl_engine_destroy(engine);
  EXPECT_EQ(given_back, 3);
}

TEST_F(HostApi, WithoutMemoryTheCallAndTheBytesAreNamed) {
  epl_tensor* tensor = nullptr;
  if (!EPL_SANITIZED) {  // a sanitizer's allocator ends the process where others say no
    const int64_t dims[1] = {int64_t{1} << 45};
    const Failure large(epl_tensor_create(w.engine, EPL_DTYPE_U8, dims, 1, &tensor));
    EXPECT_EQ(large.code, EPL_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(large.message, "tensor.create: there is no memory for 35,184,372,088,832 bytes");
  }
  // A host that gives little: tensors, what a session gets and a session are its memory.
  static std::atomic<size_t> most, given;
  most = SIZE_MAX;
  given = 0;
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.threads = 1;
  options.allocate = [](void*, size_t bytes, size_t alignment) -> void* {
    if (bytes > most) return nullptr;
    given += bytes;
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  };
  options.release = [](void*, void* memory, size_t, size_t) { std::free(memory); };
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  must(epl_engine_create(&options, &engine));
  must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
  must(epl_plan_create(model, w.trainer, nullptr, nullptr, nullptr, &plan));
  most = 16;
  const Failure created(epl_session_create(plan, nullptr, nullptr, &session));
  EXPECT_EQ(created.code, EPL_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(created.message.find("session.create: the host gave no "), 0u) << created.message;
  most = SIZE_MAX;
  must(epl_session_create(plan, nullptr, nullptr, &session));
  const size_t before = given;
  must(epl_session_get(session, EPL_STR("net.0.bias"), nullptr, &tensor));
  EXPECT_EQ(given - before, epl_tensor_bytes(tensor));
  epl_tensor_destroy(tensor);
  most = 16;
  const Failure got(epl_session_get(session, EPL_STR("net.0.bias"), nullptr, &tensor));
  EXPECT_EQ(got.message, "session.get: there is no memory for 32 bytes");
  EXPECT_EQ(tensor, nullptr);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  epl_model_destroy(model);
  epl_engine_destroy(engine);
}

TEST_F(HostApi, TheHostsRoundingModeNeitherMattersNorChanges) {
  const auto train = [&] {
    epl_session* session = nullptr;
    must(epl_session_create(w.plan, nullptr, nullptr, &session));
    for (int i = 0; i < 5; ++i) must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
    uint64_t hash = 0;
    must(epl_session_hash(session, nullptr, &hash));
    epl_session_destroy(session);
    must(epl_x_template_write(w.engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,8,2],\"seed\":9}"), TEXT(w.out),
                              nullptr));
    std::ifstream file(w.out, std::ios::binary);
    return std::to_string(hash) + std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string wanted = train();
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(mode);
    const std::string got = train();
    EXPECT_EQ(std::fegetround(), mode);
    std::fesetround(FE_TONEAREST);
    EXPECT_TRUE(got == wanted) << mode;
  }
#if defined(__x86_64__)
  const unsigned before = __builtin_ia32_stmxcsr(), flush = before | 0x8040;  // flush to zero, denormals are zero
  __builtin_ia32_ldmxcsr(flush);
  const std::string got = train();
  EXPECT_EQ(__builtin_ia32_stmxcsr() & 0x8040u, 0x8040u);
  __builtin_ia32_ldmxcsr(before);
  EXPECT_TRUE(got == wanted);
#endif
}

// Names and blocked signals of this process's threads, as the kernel has them.
std::vector<std::pair<std::string, uint64_t>> threads_of_this_process() {
  std::vector<std::pair<std::string, uint64_t>> out;
  for (const auto& entry : fs::directory_iterator("/proc/self/task")) {
    std::string line, name;
    uint64_t blocked = 0;
    std::ifstream status(entry.path() / "status");
    while (std::getline(status, line)) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      if (line.starts_with("SigBlk:\t")) blocked = std::stoull(line.substr(8), nullptr, 16);
    }
    out.emplace_back(name, blocked);
  }
  return out;
}

TEST_F(HostApi, ThreadsHaveNamesAndTakeNoSignals) {
  epl_dataset* dataset = nullptr;
  must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"prefetch\":1}"), nullptr, &dataset));
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));
  int workers = 0, readers = 0;
  for (const auto& [name, blocked] : threads_of_this_process()) {
    if (!name.starts_with("epl-")) continue;
    workers += name.starts_with("epl-w");
    readers += name == "epl-data";
    EXPECT_NE(blocked & (uint64_t{1} << (SIGUSR1 - 1)), 0u) << name;
    EXPECT_NE(blocked & (uint64_t{1} << (SIGTERM - 1)), 0u) << name;
  }
  EXPECT_EQ(workers, 1);  // with the caller, two
  EXPECT_EQ(readers, 1);
  sigset_t mine;
  pthread_sigmask(SIG_SETMASK, nullptr, &mine);
  EXPECT_EQ(sigismember(&mine, SIGTERM), 0);
  epl_dataset_destroy(dataset);
}

TEST_F(HostApi, SeekingIsCheckedAndLeavesTheBatchInHandAlone) {
  for (const char* options : {"{\"batch\":4,\"prefetch\":2}", "{\"batch\":4}"}) {
    epl_dataset* dataset = nullptr;
    const epl_tensor* batch[2];
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), TEXT(options), nullptr, &dataset));
    for (const int64_t position : {INT64_MAX, INT64_MAX - 1, (int64_t{1} << 62) + 1, int64_t{-1}, INT64_MIN}) {
      EXPECT_EQ(taken(epl_dataset_seek(dataset, position)), EPL_ERROR_INVALID_ARGUMENT) << position;
    }
    must(epl_dataset_seek(dataset, int64_t{1} << 62));
    must(epl_dataset_next(dataset, nullptr, batch, 2));
    must(epl_dataset_seek(dataset, 0));
    must(epl_dataset_next(dataset, nullptr, batch, 2));
    const auto* first = static_cast<const float*>(epl_tensor_data(batch[0]));
    ASSERT_EQ(first[0], 0);
    for (int64_t position : {2, 3, 5, 1, 0, 4, 6, 7}) must(epl_dataset_seek(dataset, position));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));  // for the thread that reads ahead
    EXPECT_EQ(first[0], 0);
    for (const int64_t position : {3, 3, 0, 7, 8, 1, 0, 0}) {
      must(epl_dataset_seek(dataset, position));
      must(epl_dataset_next(dataset, nullptr, batch, 2));
      EXPECT_EQ(static_cast<const float*>(epl_tensor_data(batch[0]))[0], static_cast<float>(position * 4)) << position;
      EXPECT_EQ(epl_dataset_position(dataset), position + 1);
    }
    epl_dataset_destroy(dataset);
  }
}

TEST_F(HostApi, TheLogTellsWhatHappens) {
  struct Log {
    std::mutex mutex;
    std::string text;
  } log;
  epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
  options.log_level = EPL_LOG_DEBUG;
  options.log_userdata = &log;
  options.log = [](void* userdata, int32_t, const char* message, size_t length) {
    auto* to = static_cast<Log*>(userdata);
    std::lock_guard lock(to->mutex);
    to->text.append(message, length) += '\n';
  };
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  epl_dataset* dataset = nullptr;
  must(epl_engine_create(&options, &engine));
  must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
  must(epl_plan_create(model, w.trainer, nullptr, nullptr, nullptr, &plan));
  must(epl_session_create(plan, nullptr, nullptr, &session));
  must(epl_dataset_open(engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8}"), nullptr, &dataset));
  must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
  must(epl_session_save(session, TEXT(w.checkpoint), nullptr, nullptr));
  must(epl_session_load(session, TEXT(w.checkpoint), nullptr, nullptr));
  must(epl_session_export_onnx(session, TEXT(w.out), nullptr));
  for (const char* word :
       {"EPL ", "model from ", "plan: ", "session: ", "dataset ", "step 1: ", "saved ", "loaded ", "exported "}) {
    EXPECT_NE(log.text.find(word), std::string::npos) << word << " in\n" << log.text;
  }
  epl_dataset_destroy(dataset);
  epl_session_destroy(session);
  epl_plan_destroy(plan);
  epl_model_destroy(model);
  epl_engine_destroy(engine);
}

// --- Files that change under the library
// ---------------------------------------------------------------------------------

class ChangingFiles : public HostApi {
 protected:
  void SetUp() override {
    ::world_make(&w, folder.c_str(), 1, 8000);  // 128 kB of weights, which stay in the file
  }
  void expect_io(epl_error* error, const char* what, const std::string& path) {
    const Failure failure(error);
    EXPECT_EQ(failure.code, EPL_ERROR_IO) << what << ": " << failure.message;
    EXPECT_NE(failure.message.find(path), std::string::npos) << what << ": " << failure.message;
  }
};

TEST_F(ChangingFiles, AModelThatShrinksIsAnErrorEverywhere) {
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));
  fs::resize_file(w.model_path, 100);
  epl_session* session = nullptr;
  epl_plan* plan = nullptr;
  expect_io(epl_session_create(w.plan, nullptr, nullptr, &session), "session_create", w.model_path);
  EXPECT_EQ(session, nullptr);
  static_cast<void>(
      taken(epl_plan_create(w.model, w.trainer, nullptr, nullptr, nullptr, &plan)));  // a plan needs no weights
  epl_plan_destroy(plan);
  epl_text* text = nullptr;
  must(epl_model_describe(w.model, &text));
  epl_text_destroy(text);
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));  // what runs goes on
  must(epl_session_save(w.session, TEXT(w.checkpoint), nullptr, nullptr));
}

TEST_F(ChangingFiles, AModelReplacedByRenamingIsStillTheOldOne) {
  const std::string other = folder + "/other.onnx";
  must(epl_x_template_write(w.engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,8000,2],\"seed\":77}"),
                            TEXT(other.c_str()), nullptr));
  fs::rename(other, w.model_path);
  epl_session* session = nullptr;
  must(epl_session_create(w.plan, nullptr, nullptr, &session));
  uint64_t ours = 0, first = 0;
  must(epl_session_hash(session, nullptr, &ours));
  must(epl_session_hash(w.session, nullptr, &first));
  EXPECT_EQ(ours, first);
  must(epl_session_export_onnx(session, TEXT(w.model_path), nullptr));  // onto the file it came from
  epl_session_destroy(session);
}

TEST_F(ChangingFiles, DataThatShrinksIsAnErrorAlsoReadAhead) {
  for (const char* options : {"{\"context\":512,\"batch\":2}", "{\"context\":512,\"batch\":2,\"prefetch\":3}"}) {
    world_write(w.text_path, std::string(65536, 'x').data(), 65536);
    epl_dataset* dataset = nullptr;
    must(epl_dataset_open(w.engine, TEXT(w.text_path), TEXT(options), nullptr, &dataset));
    const epl_tensor* batch[2];
    must(epl_dataset_next(dataset, nullptr, batch, 2));
    fs::resize_file(w.text_path, 10);
    must(epl_dataset_seek(dataset, 40));
    expect_io(epl_dataset_next(dataset, nullptr, batch, 2), options, w.text_path);
    EXPECT_EQ(epl_dataset_position(dataset), 40);
    epl_dataset_destroy(dataset);
  }
}

TEST_F(ChangingFiles, ACheckpointThatShrinksIsRefused) {
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));
  must(epl_session_save(w.session, TEXT(w.checkpoint), nullptr, nullptr));
  for (const auto& entry : fs::directory_iterator(w.checkpoint)) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 1000);
  }
  uint64_t before = 0, after = 0;
  must(epl_session_hash(w.session, nullptr, &before));
  EXPECT_EQ(taken(epl_session_load(w.session, TEXT(w.checkpoint), nullptr, nullptr)), EPL_ERROR_DATA_LOSS);
  must(epl_session_hash(w.session, nullptr, &after));
  EXPECT_EQ(before, after);
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));
}

}  // namespace
