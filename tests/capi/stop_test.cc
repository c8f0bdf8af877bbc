// Every function of the header that takes epl_call_options, with a token that was triggered and with a deadline that
// has passed: it says so, gives no handle, writes no file and changes nothing. A function that is missing here fails
// the test. And calls that a token meets at work: what they have done by then is undone.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

template <class R, class... A> constexpr bool takes_call(R (*)(A...)) {
  return (... || std::is_same_v<A, const epl_call_options*>);
}

std::set<std::string> blocking_functions() {
  std::set<std::string> out;
#define EPL_FALLIBLE(name) \
  if (takes_call(&name)) out.insert(#name);
#define EPL_OTHER(name) EPL_FALLIBLE(name)
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
  return out;
}

std::set<std::string> files_in(const std::string& folder) {
  std::set<std::string> out;
  for (const auto& one : std::filesystem::recursive_directory_iterator(folder)) out.insert(one.path().string());
  return out;
}

// What a handle's place holds where the call has left it alone.
template <class T> T* untouched() { return reinterpret_cast<T*>(static_cast<uintptr_t>(0xdead0)); }

using Blocking = std::function<epl_error*(const epl_call_options* call)>;

// A call that makes a handle, which must be NULL afterwards.
template <class T, class F> Blocking makes(F f) {
  return [f](const epl_call_options* call) {
    T* made = untouched<T>();
    epl_error* error = f(call, &made);
    EXPECT_EQ(made, nullptr);
    return error;
  };
}

// A handle, or an error and none.
template <class T, class F> Blocking either(F f, void (*destroy)(T*)) {
  return [f, destroy](const epl_call_options* call) {
    T* made = untouched<T>();
    epl_error* error = f(call, &made);
    EXPECT_EQ(made == nullptr, error != nullptr);
    destroy(made);
    return error;
  };
}

epl_error* discard(void* /*userdata*/, const void* /*data*/, size_t /*bytes*/) { return nullptr; }
epl_error* refuse_to_read(void* /*userdata*/, uint64_t /*offset*/, void* /*target*/, size_t /*bytes*/) {
  return epl_error_create(EPL_ERROR_IO, EPL_STR("nothing can be read"));
}

class Stopping : public testing::Test {
 protected:
  void SetUp() override {
    world_make(&w, temporary.path().c_str(), 2, 8);
    must(epl_trainer_set(w.trainer, EPL_STR("keep_gradients"), EPL_STR("true")));
    must(epl_plan_create(w.model, w.trainer, nullptr, nullptr, nullptr, &plan));
    must(epl_session_create(plan, nullptr, nullptr, &session));
    must(epl_session_step(session, w.inputs, 2, nullptr, nullptr));
    must(epl_session_save(session, TEXT(w.checkpoint), nullptr, nullptr));
    must(epl_plan_save(plan, TEXT(plan_path.c_str()), nullptr));
    must(epl_predictor_create(session, nullptr, nullptr, &predictor));
    must(epl_evaluation_create(plan, nullptr, 0, &evaluation));
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"classes\":true}"), nullptr, &dataset));
    must(epl_dataset_bind(dataset, plan, EPL_ENTRY_TRAIN));
    must(epl_job_create(w.engine, EPL_STR("{\"steps\": 9}"), &job));
    must(epl_job_start(job, session, dataset, nullptr, nullptr));
    epl_tensor_info field = EPL_TENSOR_INFO_INIT;
    field.name = "x", field.name_length = 1, field.dtype = EPL_DTYPE_F32, field.ndim = 2;
    field.dims[0] = 8, field.dims[1] = 4;
    must(epl_feed_create(w.engine, &field, 1, 1, &feed));
    const int64_t dims[] = {world_batch, 2}, eight[] = {8};
    must(epl_tensor_create(w.engine, EPL_DTYPE_F32, dims, 2, &room));
    must(epl_tensor_create(w.engine, EPL_DTYPE_F32, eight, 1, &bias));
    must(epl_session_step_async(session, w.inputs, 2, nullptr, &event));
    must(epl_event_wait(event, nullptr, nullptr));
    must(epl_trainer_add_adapter(w.trainer, EPL_STR("net.*"), nullptr));
    epl_plan* with_adapters = nullptr;
    must(epl_plan_create(w.model, w.trainer, nullptr, nullptr, nullptr, &with_adapters));
    must(epl_session_create(with_adapters, nullptr, nullptr, &adapted));
    epl_plan_destroy(with_adapters);
  }
  void TearDown() override {
    epl_job_destroy(job);
    epl_event_destroy(event);
    epl_tensor_destroy(room);
    epl_tensor_destroy(bias);
    epl_feed_destroy(feed);
    epl_dataset_destroy(dataset);
    epl_evaluation_destroy(evaluation);
    epl_predictor_destroy(predictor);
    epl_session_destroy(adapted);
    epl_session_destroy(session);
    epl_plan_destroy(plan);
    world_end(&w);
    EXPECT_EQ(epl_live_handles(), 0);
  }

  std::map<std::string, Blocking> calls() {
    using Call = const epl_call_options*;
    std::map<std::string, Blocking> out;
    out["epl_model_load"] =
        makes<epl_model>([&](Call c, auto p) { return epl_model_load(w.engine, TEXT(w.model_path), nullptr, c, p); });
    out["epl_model_load_bytes"] =
        makes<epl_model>([&](Call c, auto p) { return epl_model_load_bytes(w.engine, "x", 1, nullptr, c, p); });
    out["epl_model_load_from"] = makes<epl_model>([&](Call c, auto p) {
      epl_source source = EPL_SOURCE_INIT;
      source.bytes = 10, source.read = refuse_to_read;
      return epl_model_load_from(w.engine, &source, nullptr, c, p);
    });
    out["epl_x_template_write"] = [&](Call c) {
      return epl_x_template_write(w.engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,8,2]}"), TEXT(w.out), c);
    };
    out["epl_plan_create"] =
        makes<epl_plan>([&](Call c, auto p) { return epl_plan_create(w.model, w.trainer, nullptr, nullptr, c, p); });
    out["epl_plan_save"] = [&](Call c) { return epl_plan_save(plan, TEXT(w.out), c); };
    out["epl_plan_save_to"] = [&](Call c) { return epl_plan_save_to(plan, discard, nullptr, c); };
    out["epl_plan_load"] = makes<epl_plan>([&](Call c, auto p) {
      return epl_plan_load(w.model, w.trainer, nullptr, nullptr, TEXT(plan_path.c_str()), c, p);
    });
    out["epl_plan_load_bytes"] = makes<epl_plan>(
        [&](Call c, auto p) { return epl_plan_load_bytes(w.model, w.trainer, nullptr, nullptr, "x", 1, c, p); });
    out["epl_plan_compare"] = makes<epl_text>([&](Call c, auto p) {
      return epl_plan_compare(w.engine, TEXT(plan_path.c_str()), TEXT(plan_path.c_str()), c, p);
    });
    out["epl_plan_print"] =
        makes<epl_text>([&](Call c, auto p) { return epl_plan_print(plan, EPL_STR("explain"), c, p); });
    out["epl_plan_describe"] =
        makes<epl_text>([&](Call c, auto p) { return epl_plan_describe(plan, EPL_STR("overview"), c, p); });
    out["epl_plan_export_onnx"] = [&](Call c) { return epl_plan_export_onnx(plan, TEXT(w.out), c); };
    out["epl_dataset_open"] = makes<epl_dataset>(
        [&](Call c, auto p) { return epl_dataset_open(w.engine, TEXT(w.csv_path), nullptr, 0, c, p); });
    out["epl_dataset_open_within"] = makes<epl_dataset>([&](Call c, auto p) {
      return epl_dataset_open_within(w.engine, TEXT(w.csv_path), EPL_STR("/"), nullptr, 0, c, p);
    });
    out["epl_dataset_check"] = [&](Call c) { return epl_dataset_check(dataset, plan, EPL_ENTRY_TRAIN, c); };
    out["epl_dataset_next"] = [&](Call c) {
      const epl_tensor* batch[2] = {untouched<epl_tensor>(), untouched<epl_tensor>()};
      epl_error* error = epl_dataset_next(dataset, c, batch, 2);
      EXPECT_EQ(batch[0], nullptr);
      return error;
    };
    out["epl_feed_push"] = [&](Call c) { return epl_feed_push(feed, w.inputs, 1, c); };
    out["epl_session_create"] =
        makes<epl_session>([&](Call c, auto p) { return epl_session_create(plan, nullptr, c, p); });
    out["epl_session_step"] = [&](Call c) { return epl_session_step(session, w.inputs, 2, c, nullptr); };
    out["epl_session_gradients"] = [&](Call c) { return epl_session_gradients(session, w.inputs, 2, c, nullptr); };
    out["epl_session_apply"] = [&](Call c) { return epl_session_apply(session, c, nullptr); };
    out["epl_session_evaluate"] = [&](Call c) { return epl_session_evaluate(session, w.inputs, 2, c, nullptr); };
    out["epl_session_predict"] =
        makes<epl_tensor>([&](Call c, auto p) { return epl_session_predict(session, w.inputs, 1, c, p, 1); });
    out["epl_session_predict_into"] = [&](Call c) {
      return epl_session_predict_into(session, w.inputs, 1, c, &room, 1);
    };
    out["epl_session_step_async"] =
        makes<epl_event>([&](Call c, auto p) { return epl_session_step_async(session, w.inputs, 2, c, p); });
    out["epl_session_evaluate_async"] =
        makes<epl_event>([&](Call c, auto p) { return epl_session_evaluate_async(session, w.inputs, 2, c, p); });
    out["epl_session_predict_async"] = makes<epl_event>(
        [&](Call c, auto p) { return epl_session_predict_async(session, w.inputs, 1, c, &room, 1, p); });
    out["epl_event_wait"] = [&](Call c) { return epl_event_wait(event, c, nullptr); };
    out["epl_session_give_up"] = [&](Call c) { return epl_session_give_up(session, EPL_STR("why"), c); };
    out["epl_session_agree"] = [&](Call c) { return epl_session_agree(session, nullptr, 0, nullptr, c); };
    out["epl_session_hash"] = [&](Call c) {
      uint64_t hash = 0;
      return epl_session_hash(session, c, &hash);
    };
    out["epl_session_get"] =
        makes<epl_tensor>([&](Call c, auto p) { return epl_session_get(session, EPL_STR("net.0.bias"), c, p); });
    out["epl_session_set"] = [&](Call c) { return epl_session_set(session, EPL_STR("net.0.bias"), bias, c); };
    out["epl_session_save"] = [&](Call c) { return epl_session_save(session, TEXT(w.out), nullptr, c); };
    out["epl_session_load"] = [&](Call c) { return epl_session_load(session, TEXT(w.checkpoint), nullptr, c); };
    out["epl_session_save_to"] = [&](Call c) { return epl_session_save_to(session, discard, nullptr, nullptr, c); };
    out["epl_session_load_from"] = [&](Call c) {
      epl_source source = EPL_SOURCE_INIT;
      source.bytes = 10, source.read = refuse_to_read;
      return epl_session_load_from(session, &source, nullptr, c);
    };
    out["epl_session_load_bytes"] = [&](Call c) { return epl_session_load_bytes(session, "x", 1, nullptr, c); };
    out["epl_session_compare"] = makes<epl_text>(
        [&](Call c, auto p) { return epl_session_compare(session, TEXT(w.checkpoint), nullptr, c, p); });
    out["epl_checkpoint_describe"] =
        makes<epl_text>([&](Call c, auto p) { return epl_checkpoint_describe(w.engine, TEXT(w.checkpoint), c, p); });
    out["epl_session_export_onnx"] = [&](Call c) { return epl_session_export_onnx(session, TEXT(w.out), c); };
    out["epl_session_export_onnx_for_training"] = [&](Call c) {
      return epl_session_export_onnx_for_training(session, TEXT(w.out), c);
    };
    out["epl_session_export_adapters"] = [&](Call c) { return epl_session_export_adapters(adapted, TEXT(w.out), c); };
    out["epl_session_export_safetensors"] = [&](Call c) {
      return epl_session_export_safetensors(session, TEXT(w.out), c);
    };
    out["epl_session_export_to"] = [&](Call c) {
      return epl_session_export_to(session, EPL_STR("safetensors"), discard, nullptr, c);
    };
    out["epl_predictor_create"] =
        makes<epl_predictor>([&](Call c, auto p) { return epl_predictor_create(session, nullptr, c, p); });
    out["epl_predictor_refresh"] = [&](Call c) { return epl_predictor_refresh(predictor, c); };
    out["epl_predictor_predict"] =
        makes<epl_tensor>([&](Call c, auto p) { return epl_predictor_predict(predictor, w.inputs, 1, c, p, 1); });
    out["epl_predictor_predict_into"] = [&](Call c) {
      return epl_predictor_predict_into(predictor, w.inputs, 1, c, &room, 1);
    };
    out["epl_job_start"] = [&](Call c) {
      epl_job* own = nullptr;
      must(epl_job_create(w.engine, EPL_STR("{\"steps\": 9}"), &own));
      epl_error* error = epl_job_start(own, session, dataset, nullptr, c);
      epl_job_destroy(own);
      return error;
    };
    out["epl_job_next"] = [&](Call c) {
      epl_job_event happened = EPL_JOB_EVENT_INIT;
      return epl_job_next(job, c, &happened);
    };
    out["epl_evaluation_add"] = [&](Call c) { return epl_evaluation_add(evaluation, session, w.inputs, 2, c); };
    out["epl_evaluation_add_dataset"] = [&](Call c) {
      return epl_evaluation_add_dataset(evaluation, session, dataset, 0, c);
    };
    return out;
  }
  uint64_t hash(epl_session* of) {
    uint64_t value = 0;
    must(epl_session_hash(of, nullptr, &value));
    return value;
  }

  const epl::TemporaryFolder temporary;
  const std::string plan_path = temporary.path() + "/kept.plan";
  world w;
  epl_plan* plan = nullptr;
  epl_session *session = nullptr, *adapted = nullptr;
  epl_predictor* predictor = nullptr;
  epl_evaluation* evaluation = nullptr;
  epl_dataset* dataset = nullptr;
  epl_feed* feed = nullptr;
  epl_job* job = nullptr;
  epl_event* event = nullptr;
  epl_tensor *room = nullptr, *bias = nullptr;
};

TEST_F(Stopping, EveryCallSaysItBeforeItDoesAnything) {
  epl_cancel* token = nullptr;
  must(epl_cancel_create(w.engine, &token));
  epl_cancel_trigger(token);
  const std::map<std::string, Blocking> all = calls();
  const std::set<std::string> files = files_in(temporary.path());
  const uint64_t weights = hash(session);
  const int64_t alive = epl_live_handles(), steps = epl_session_steps(session);
  for (const std::string& name : blocking_functions()) {
    SCOPED_TRACE(name);
    const auto found = all.find(name);
    ASSERT_NE(found, all.end()) << "the header has a blocking function that this test does not call";
    epl_call_options cancelled = EPL_CALL_OPTIONS_INIT, late = EPL_CALL_OPTIONS_INIT;
    cancelled.cancel = token;
    late.timeout_nanoseconds = 1;
    // An event that is ready has been waited for.
    const bool done = name == "epl_event_wait";
    EXPECT_EQ(taken(found->second(&cancelled)), done ? EPL_OK : EPL_ERROR_CANCELLED);
    const int32_t code = taken(found->second(&late));
    if (!done) {
      EXPECT_EQ(code, EPL_ERROR_DEADLINE_EXCEEDED);
    }
    EXPECT_EQ(epl_live_handles(), alive);
  }
  EXPECT_EQ(files_in(temporary.path()), files);
  EXPECT_EQ(hash(session), weights);
  EXPECT_EQ(epl_session_steps(session), steps);
  EXPECT_EQ(epl_dataset_position(dataset), 0);
  EXPECT_EQ(epl_evaluation_samples(evaluation), 0);
  epl_cancel_destroy(token);
}

// A model that is large enough to be met at work, and a token that another thread triggers once the call has begun.
TEST_F(Stopping, ACallAtWorkEndsAndIsUndone) {
  const std::string path = temporary.path() + "/large.onnx", target = temporary.path() + "/target";
  epl_model* model = nullptr;
  epl_plan* large = nullptr;
  epl_session* trained = nullptr;
  epl_trainer* trainer = nullptr;
  must(epl_x_template_write(w.engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,3000,3000,2]}"), TEXT(path.c_str()),
                            nullptr));
  must(epl_model_load(w.engine, TEXT(path.c_str()), nullptr, nullptr, &model));
  must(epl_trainer_create(w.engine, &trainer));
  must(epl_trainer_set(trainer, EPL_STR("optimizer"), EPL_STR("adam")));
  must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), world_batch));
  must(epl_plan_create(model, trainer, nullptr, nullptr, nullptr, &large));
  must(epl_session_create(large, nullptr, nullptr, &trained));
  must(epl_session_step(trained, w.inputs, 2, nullptr, nullptr));
  const std::string old = temporary.path() + "/old";
  must(epl_session_save(trained, TEXT(old.c_str()), nullptr, nullptr));
  const uint64_t weights = hash(trained);
  const std::string table = temporary.path() + "/long.csv";
  std::ofstream rows(table);
  rows << "a,b,target\n";
  for (int row = 0; row < 50'000; ++row) rows << row << ",0.5," << row % 7 << "\n";
  rows.close();
  const std::map<std::string, Blocking> long_calls = {
      {"save over another", [&](auto* c) { return epl_session_save(trained, TEXT(old.c_str()), nullptr, c); }},
      {"save", [&](auto* c) { return epl_session_save(trained, TEXT(target.c_str()), nullptr, c); }},
      {"load", [&](auto* c) { return epl_session_load(trained, TEXT(old.c_str()), nullptr, c); }},
      {"model for inference", [&](auto* c) { return epl_session_export_onnx(trained, TEXT(target.c_str()), c); }},
      {"model for training",
       [&](auto* c) { return epl_session_export_onnx_for_training(trained, TEXT(target.c_str()), c); }},
      {"model of the plan", [&](auto* c) { return epl_plan_export_onnx(large, TEXT(target.c_str()), c); }},
      {"template",
       [&](auto* c) {
         return epl_x_template_write(w.engine, EPL_STR("mlp"), EPL_STR("{\"sizes\":[4,1000,1000,1000,2]}"),
                                     TEXT(target.c_str()), c);
       }},
      {"table", either<epl_dataset>(
                    [&](auto* c, auto p) {
                      return epl_dataset_open(w.engine, TEXT(table.c_str()), EPL_STR("{\"batch\":8}"), c, p);
                    },
                    epl_dataset_destroy)},
      {"weights", [&](auto* c) { return epl_session_export_safetensors(trained, TEXT(target.c_str()), c); }},
      {"session", either<epl_session>([&](auto* c, auto p) { return epl_session_create(large, nullptr, c, p); },
                                      epl_session_destroy)},
      {"plan",
       either<epl_plan>([&](auto* c, auto p) { return epl_plan_create(model, trainer, nullptr, nullptr, c, p); },
                        epl_plan_destroy)},
  };
  for (const auto& [name, run] : long_calls) {
    SCOPED_TRACE(name);
    const std::set<std::string> files = files_in(temporary.path());
    // Later and later, until the call is over by then: one of these triggers meets it at work. On a busy machine the
    // other thread may wake too late, and it all begins again.
    int rounds = 0;
    int met = 0;
    for (double milliseconds = 0.25; milliseconds < 1000 && met < 2; milliseconds *= 2) {
      epl_cancel* token = nullptr;
      must(epl_cancel_create(w.engine, &token));
      epl_call_options call = EPL_CALL_OPTIONS_INIT;
      call.cancel = token;
      std::atomic<bool> begun{false};
      std::thread other([&] {
        while (!begun.load()) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(milliseconds));
        epl_cancel_trigger(token);
      });
      begun = true;
      const int32_t code = taken(run(&call));
      other.join();
      epl_cancel_destroy(token);
      if (code == EPL_OK) {  // what is later comes too late as well
        if (met > 0 || ++rounds == 50) break;
        milliseconds = 0.125;
        std::filesystem::remove_all(target);
        std::filesystem::remove_all(target + ".data");
        continue;
      }
      ++met;
      EXPECT_EQ(code, EPL_ERROR_CANCELLED);
      EXPECT_EQ(files_in(temporary.path()), files);
      EXPECT_EQ(hash(trained), weights);
    }
    EXPECT_GT(met, 0);
    std::filesystem::remove_all(target);
    std::filesystem::remove_all(target + ".data");
  }
  epl_session_destroy(trained);
  epl_plan_destroy(large);
  epl_trainer_destroy(trainer);
  epl_model_destroy(model);
}

// A source that is slow, and whose reader ends the call.
TEST_F(Stopping, AModelIsNotReadToItsEnd) {
  struct Slow {
    std::string bytes;
    epl_cancel* token = nullptr;
    int reads = 0;
  } slow;
  std::ifstream file(w.model_path, std::ios::binary);
  slow.bytes.assign(std::istreambuf_iterator<char>(file), {});
  // What comes behind the model's own fields and has no meaning for it: 64 MiB of a field that nobody knows.
  const size_t more = size_t{64} << 20;
  slow.bytes += "\xfa\x3f";  // field 1023, bytes
  for (size_t rest = more; rest > 0; rest >>= 7)
    slow.bytes += static_cast<char>((rest & 0x7f) | (rest >= 0x80 ? 0x80 : 0));
  slow.bytes.resize(slow.bytes.size() + more);
  must(epl_cancel_create(w.engine, &slow.token));
  epl_source source = EPL_SOURCE_INIT;
  source.bytes = slow.bytes.size(), source.userdata = &slow;
  source.read = [](void* userdata, uint64_t offset, void* target, size_t bytes) -> epl_error* {
    auto* self = static_cast<Slow*>(userdata);
    ++self->reads;
    epl_cancel_trigger(self->token);
    std::memcpy(target, self->bytes.data() + offset, bytes);
    return nullptr;
  };
  epl_model* model = untouched<epl_model>();
  must(epl_model_load_from(w.engine, &source, nullptr, nullptr, &model));  // without the token it is read
  epl_model_destroy(model);
  const int all = std::exchange(slow.reads, 0);
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  epl_cancel_destroy(slow.token);
  must(epl_cancel_create(w.engine, &slow.token));
  call.cancel = slow.token;
  EXPECT_EQ(taken(epl_model_load_from(w.engine, &source, nullptr, &call, &model)), EPL_ERROR_CANCELLED);
  EXPECT_EQ(model, nullptr);
  EXPECT_EQ(slow.reads, 1) << "of " << all;
  epl_cancel_destroy(slow.token);
}

}  // namespace
