// Every function of the header that works on a session, made to fail at each check that it has. After an error nothing
// differs from a session that never made the call: state, gradients, counters, rates, outputs of the last step, the
// place in the data. Then both train on, and still nothing differs. A function that is missing here fails the test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

std::set<std::string> functions_of_a_session() {
  std::set<std::string> out;
  const auto add = [&]<class R, class... A>(const char* name, R (*)(A...)) {
    if ((... || std::is_same_v<A, epl_session*>)) out.insert(name);
  };
#define EPL_FALLIBLE(name) add(#name, &name);
#define EPL_OTHER(name) EPL_FALLIBLE(name)
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
  out.erase("epl_session_destroy");
  return out;
}

struct Layout {
  const char* name;
  const char* strategy;
  int64_t ranks;
};

// One of two that are made alike.
struct Side {
  epl_session* session = nullptr;
  epl_dataset* dataset = nullptr;
  epl_evaluation* evaluation = nullptr;
};

class AtomicCallsOfTheApi : public testing::TestWithParam<Layout> {
 protected:
  using Call = const epl_call_options*;
  using Failing = std::function<epl_error*()>;

  void SetUp() override {
    world_make(&w, temporary.path().c_str(), 2, 8);
    for (const auto& [key, value] : std::map<std::string, std::string>{{"keep_gradients", "true"},
                                                                       {"freezable", "true"},
                                                                       {"clip_norm", "1"},
                                                                       {"schedule", "linear"},
                                                                       {"schedule.total_steps", "1000"}})
      must(epl_trainer_set(w.trainer, TEXT(key.c_str()), TEXT(value.c_str())));
    plan = make_plan(w.trainer);
    for (Side* side : {&tried, &twin}) {
      must(epl_session_create(plan, nullptr, nullptr, &side->session));
      must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\":8,\"classes\":true}"), nullptr,
                            &side->dataset));
      must(epl_dataset_bind(side->dataset, plan, EPL_ENTRY_TRAIN));
      must(epl_evaluation_create(plan, nullptr, 0, &side->evaluation));
    }
    must(epl_trainer_set(w.trainer, EPL_STR("optimizer"), EPL_STR("momentum")));
    epl_plan* another = make_plan(w.trainer);
    must(epl_session_create(another, nullptr, nullptr, &other));
    epl_plan_destroy(another);
    must(epl_session_step(other, w.inputs, 2, nullptr, nullptr));
    must(epl_session_save(other, TEXT(foreign.c_str()), nullptr, nullptr));
    must(epl_cancel_create(w.engine, &token));
    epl_cancel_trigger(token);
    const int64_t samples[] = {8}, seven[] = {7}, x_dims[] = {8, 4}, wide[] = {8, 5}, out[] = {8, 2}, three[] = {8, 3};
    const int64_t classes[] = {0, 1, 0, 1, 0, 2, 0, 1};
    const float zeros[40] = {};
    float nan[32] = {};
    nan[5] = NAN;
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_I64, samples, 1, classes, sizeof classes, &label));
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_I64, seven, 1, classes, 7 * 8, &fewer));
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, samples, 1, zeros, 32, &floats));
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, wide, 2, zeros, 160, &wider));
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, x_dims, 2, nan, sizeof nan, &not_numbers));
    must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, samples, 1, nan, 32, &not_finite));
    must(epl_tensor_create(w.engine, EPL_DTYPE_F32, out, 2, &room));
    must(epl_tensor_create(w.engine, EPL_DTYPE_F32, three, 2, &wrong_room));
  }
  void TearDown() override {
    for (epl_tensor* one : {label, fewer, floats, wider, not_numbers, not_finite, room, wrong_room})
      epl_tensor_destroy(one);
    for (Side* side : {&tried, &twin}) {
      epl_evaluation_destroy(side->evaluation);
      epl_dataset_destroy(side->dataset);
      epl_session_destroy(side->session);
    }
    epl_session_destroy(other);
    epl_plan_destroy(plan);
    epl_cancel_destroy(token);
    world_end(&w);
    EXPECT_EQ(epl_live_handles(), 0);
  }

  epl_plan* make_plan(epl_trainer* trainer) const {
    epl_strategy* strategy = nullptr;
    epl_plan* made = nullptr;
    must(epl_strategy_parse(w.engine, TEXT(GetParam().strategy), &strategy));
    epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
    options.ranks = GetParam().ranks;
    must(epl_plan_create(w.model, trainer, strategy, &options, nullptr, &made));
    epl_strategy_destroy(strategy);
    return made;
  }

  // Everything that can be asked of a side, by what it is.
  static std::map<std::string, std::string> everything(const Side& side) {
    std::map<std::string, std::string> out;
    const auto put = [&](const std::string& name, double value) {
      out[name] = std::string(reinterpret_cast<const char*>(&value), sizeof value);
    };
    for (int32_t kind = 0; kind <= EPL_STATE_GRADIENT; ++kind) {
      for (int64_t i = 0; i < epl_session_state_count(side.session, kind); ++i) {
        epl_tensor_info info = EPL_TENSOR_INFO_INIT;
        epl_tensor* value = nullptr;
        must(epl_session_state_port(side.session, kind, i, &info));
        must(epl_session_get(side.session, info.name, info.name_length, nullptr, &value));
        out[std::string(info.name, info.name_length)] =
            std::string(static_cast<const char*>(epl_tensor_data(value)), epl_tensor_bytes(value));
        epl_tensor_destroy(value);
        if (kind != EPL_STATE_PARAMETER) continue;
        double frozen = 0;
        const std::string number = "frozen:" + std::string(info.name, info.name_length);
        must(epl_session_get_number(side.session, TEXT(number.c_str()), &frozen));
        put(number, frozen);
      }
    }
    for (const char* number : {"learning_rate", "learning_rate_scale"}) {
      double value = 0;
      must(epl_session_get_number(side.session, TEXT(number), &value));
      put(number, value);
    }
    for (const char* metric : {"loss", "gradient_norm"}) {
      double value = 0;
      must(epl_session_metric(side.session, TEXT(metric), &value));
      put(std::string("metric ") + metric, value);
    }
    epl_tensor* evaluated = nullptr;  // the loss of the last evaluation, where there was one
    if (taken(epl_session_output(side.session, EPL_ENTRY_EVALUATE, EPL_STR("loss"), &evaluated)) == EPL_OK)
      put("evaluated", *static_cast<const float*>(epl_tensor_data(evaluated)));
    epl_tensor_destroy(evaluated);
    epl_metrics progress = EPL_METRICS_INIT;
    epl_session_progress(side.session, &progress);
    put("steps", static_cast<double>(epl_session_steps(side.session)));
    put("progress.step", static_cast<double>(progress.step));
    put("progress.loss", progress.loss);
    put("progress.rate", progress.learning_rate);
    put("position", static_cast<double>(epl_dataset_position(side.dataset)));
    put("samples", static_cast<double>(epl_evaluation_samples(side.evaluation)));
    epl_text* json = nullptr;
    must(epl_evaluation_describe(side.evaluation, &json));
    out["evaluation"] = epl_text_data(json, nullptr);
    epl_text_destroy(json);
    return out;
  }
  // A step that met a NaN was carried out and then left the state alone: its numbers are those of the last step.
  void expect_alike(const std::string& said, bool met_nan = false) {
    const auto one = everything(tried), other = everything(twin);
    ASSERT_EQ(one.size(), other.size()) << said;
    for (const auto& [name, value] : other) {
      if (met_nan && name.starts_with("metric ")) continue;
      EXPECT_TRUE(one.at(name) == value) << said << " has changed " << name;
    }
  }
  // What follows depends on everything.
  void train_on(const std::string& said) {
    for (const Side* side : {&tried, &twin}) {
      const epl_tensor* batch[2] = {};
      must(epl_dataset_next(side->dataset, nullptr, batch, 2));
      must(epl_session_step(side->session, batch, 2, nullptr, nullptr));
      must(epl_session_evaluate(side->session, w.inputs, 2, nullptr, nullptr));
      must(epl_session_gradients(side->session, w.inputs, 2, nullptr, nullptr));
    }
    expect_alike(said + ", and training on,");
  }

  static epl_error* ended(epl_error* error, epl_event* event) {
    if (error == nullptr) error = epl_event_wait(event, nullptr, nullptr);
    epl_event_destroy(event);
    return error;
  }
  static epl_error* predicted(epl_session* session, const epl_tensor* const* inputs, size_t count, Call call) {
    epl_tensor* output = nullptr;
    epl_error* error = epl_session_predict(session, inputs, count, call, &output, 1);
    epl_tensor_destroy(output);
    return error;
  }

  // Calls that take inputs, by their names.
  using OfInputs = std::function<epl_error*(const epl_tensor* const* inputs, size_t count, Call call)>;
  std::map<std::string, OfInputs> calls_of_inputs() {
    epl_session* s = tried.session;
    using In = const epl_tensor* const*;
    return {
        {"epl_session_step", [s](In in, size_t n, Call c) { return epl_session_step(s, in, n, c, nullptr); }},
        {"epl_session_gradients", [s](In in, size_t n, Call c) { return epl_session_gradients(s, in, n, c, nullptr); }},
        {"epl_session_evaluate", [s](In in, size_t n, Call c) { return epl_session_evaluate(s, in, n, c, nullptr); }},
        {"epl_session_predict", [s](In in, size_t n, Call c) { return predicted(s, in, n, c); }},
        {"epl_session_predict_into",
         [this](In in, size_t n, Call c) { return epl_session_predict_into(tried.session, in, n, c, &room, 1); }},
        {"epl_session_step_async",
         [s](In in, size_t n, Call c) {
           epl_event* event = nullptr;
           epl_error* error = epl_session_step_async(s, in, n, c, &event);
           return ended(error, event);
         }},
        {"epl_session_evaluate_async",
         [s](In in, size_t n, Call c) {
           epl_event* event = nullptr;
           epl_error* error = epl_session_evaluate_async(s, in, n, c, &event);
           return ended(error, event);
         }},
        {"epl_session_predict_async",
         [this](In in, size_t n, Call c) {
           epl_event* event = nullptr;
           epl_error* error = epl_session_predict_async(tried.session, in, n, c, &room, 1, &event);
           return ended(error, event);
         }},
        {"epl_evaluation_add",
         [this](In in, size_t n, Call c) { return epl_evaluation_add(tried.evaluation, tried.session, in, n, c); }}};
  }

  // Calls that take options and need nothing else.
  std::map<std::string, std::function<epl_error*(Call)>> calls_of_options() {
    std::map<std::string, std::function<epl_error*(Call)>> out;
    for (const auto& [name, call] : calls_of_inputs()) {
      const bool predicts = name.find("predict") != std::string::npos;
      out[name] = [this, call = call, predicts](Call c) { return call(w.inputs, predicts ? 1 : 2, c); };
    }
    epl_session* s = tried.session;
    out["epl_session_apply"] = [s](Call c) { return epl_session_apply(s, c, nullptr); };
    out["epl_session_hash"] = [s](Call c) {
      uint64_t hash = 0;
      return epl_session_hash(s, c, &hash);
    };
    out["epl_session_get"] = [s](Call c) { return got(s, "net.0.bias", c); };
    out["epl_session_set"] = [this](Call c) {
      return epl_session_set(tried.session, EPL_STR("net.0.bias"), floats, c);
    };
    out["epl_session_save"] = [this](Call c) { return epl_session_save(tried.session, TEXT(w.out), nullptr, c); };
    out["epl_session_load"] = [this](Call c) {
      return epl_session_load(tried.session, TEXT(foreign.c_str()), nullptr, c);
    };
    out["epl_session_save_to"] = [s](Call c) { return epl_session_save_to(s, discard, nullptr, nullptr, c); };
    out["epl_session_load_bytes"] = [this](Call c) {
      return epl_session_load_bytes(tried.session, kept.data(), kept.size(), nullptr, c);
    };
    out["epl_session_load_from"] = [this](Call c) { return load_kept(c, kept.size()); };
    out["epl_session_compare"] = [this](Call c) { return compared(foreign, c); };
    out["epl_session_export_onnx"] = [this](Call c) { return epl_session_export_onnx(tried.session, TEXT(w.out), c); };
    out["epl_session_export_onnx_for_training"] = [this](Call c) {
      return epl_session_export_onnx_for_training(tried.session, TEXT(w.out), c);
    };
    out["epl_session_export_adapters"] = [this](Call c) {
      return epl_session_export_adapters(tried.session, TEXT(w.out), c);
    };
    out["epl_session_export_safetensors"] = [this](Call c) {
      return epl_session_export_safetensors(tried.session, TEXT(w.out), c);
    };
    out["epl_session_export_to"] = [s](Call c) {
      return epl_session_export_to(s, EPL_STR("safetensors"), discard, nullptr, c);
    };
    out["epl_session_give_up"] = [s](Call c) { return epl_session_give_up(s, EPL_STR("why"), c); };
    out["epl_evaluation_add_dataset"] = [this](Call c) {
      return epl_evaluation_add_dataset(tried.evaluation, tried.session, tried.dataset, 2, c);
    };
    return out;
  }

  static epl_error* got(epl_session* session, const std::string& name, Call call) {
    epl_tensor* value = nullptr;
    epl_error* error = epl_session_get(session, TEXT(name.c_str()), call, &value);
    epl_tensor_destroy(value);
    return error;
  }
  epl_error* compared(const std::string& path, Call call) const {
    epl_text* json = nullptr;
    epl_error* error = epl_session_compare(tried.session, TEXT(path.c_str()), nullptr, call, &json);
    epl_text_destroy(json);
    return error;
  }
  static epl_error* discard(void* /*userdata*/, const void* /*data*/, size_t /*bytes*/) { return nullptr; }
  // Writes so many bytes, and then no more.
  static epl_error* write_some(void* left, const void* /*data*/, size_t bytes) {
    auto& room = *static_cast<int64_t*>(left);
    room -= static_cast<int64_t>(bytes);
    return room >= 0 ? nullptr : epl_error_create(EPL_ERROR_EXHAUSTED, EPL_STR("no room is left"));
  }
  static epl_error* append(void* text, const void* data, size_t bytes) {
    static_cast<std::string*>(text)->append(static_cast<const char*>(data), bytes);
    return nullptr;
  }
  // What is behind `readable` cannot be read.
  epl_error* load_kept(Call call, size_t readable) {
    readable_ = readable;
    epl_source source = EPL_SOURCE_INIT;
    source.bytes = kept.size();
    source.userdata = this;
    source.read = [](void* of, uint64_t offset, void* target, size_t bytes) -> epl_error* {
      const auto* test = static_cast<AtomicCallsOfTheApi*>(of);
      if (offset + bytes > test->readable_) return epl_error_create(EPL_ERROR_IO, EPL_STR("it cannot be read"));
      std::memcpy(target, test->kept.data() + offset, bytes);
      return nullptr;
    };
    return epl_session_load_from(tried.session, &source, nullptr, call);
  }

  // Each function's ways to fail.
  std::map<std::string, std::vector<Failing>> failures_of_all() {
    std::map<std::string, std::vector<Failing>> out;
    epl_session* s = tried.session;
    bad_size.struct_size = 4;
    cancelled.cancel = token;
    late.timeout_nanoseconds = 1;
    bad_metrics.struct_size = 3;
    for (const auto& [name, call] : calls_of_options()) {
      for (Call options : {&bad_size, &cancelled, &late})
        out[name].push_back([call = call, options] { return call(options); });
    }
    for (const auto& [name, call] : calls_of_inputs()) {
      const bool predicts = name.find("predict") != std::string::npos;
      const size_t n = predicts ? 1 : 2;
      const auto add = [&](const epl_tensor* x, const epl_tensor* target, size_t count) {
        out[name].push_back([call = call, x, target, count] {
          const epl_tensor* const inputs[] = {x, target, x};
          return call(inputs, count, nullptr);
        });
      };
      out[name].push_back([call = call, n] { return call(nullptr, n, nullptr); });
      add(nullptr, w.target, n), add(w.x, w.target, 0), add(w.x, w.target, 3);
      add(wider, w.target, n), add(w.target, w.target, n),
          add(reinterpret_cast<const epl_tensor*>(w.engine), w.target, n);
      if (predicts) continue;
      add(w.x, nullptr, n), add(w.x, floats, n), add(w.x, fewer, n), add(w.x, label, n);
      if (name.find("evalua") == std::string::npos) add(not_numbers, w.target, n);
    }
    out["epl_session_step"].push_back([=, this] { return epl_session_step(s, w.inputs, 2, nullptr, &bad_metrics); });
    out["epl_session_gradients"].push_back(
        [=, this] { return epl_session_gradients(s, w.inputs, 2, nullptr, &bad_metrics); });
    out["epl_session_apply"].push_back([=, this] { return epl_session_apply(s, nullptr, &bad_metrics); });
    out["epl_session_evaluate"].push_back(
        [=, this] { return epl_session_evaluate(s, w.inputs, 2, nullptr, &bad_metrics); });
    for (epl_tensor* const* rooms :
         {static_cast<epl_tensor* const*>(nullptr), static_cast<epl_tensor* const*>(&wrong_room)})
      out["epl_session_predict_into"].push_back(
          [=, this] { return epl_session_predict_into(s, w.inputs, 1, nullptr, rooms, 1); });
    out["epl_session_predict_async"].push_back([=, this] {
      epl_event* event = nullptr;
      epl_error* error = epl_session_predict_async(s, w.inputs, 1, nullptr, &wrong_room, 1, &event);
      return ended(error, event);
    });
    add_failures_of_state(out);
    add_failures_of_files(out);
    return out;
  }

  void add_failures_of_state(std::map<std::string, std::vector<Failing>>& out) {
    epl_session* s = tried.session;
    const auto set = [=](const char* name, const epl_tensor* value) {
      return [=] { return epl_session_set(s, TEXT(name), value, nullptr); };
    };
    out["epl_session_set"].insert(out["epl_session_set"].end(),
                                  {set("net.0.bias", wider), set("net.0.bias", w.target), set("net.0.bia", floats),
                                   set("net.0.bias", nullptr), set("net.0.bias.gradient", not_finite)});
    for (const auto& [name, value] : std::vector<std::pair<const char*, double>>{{"learning_rate", -1},
                                                                                 {"learning_rate", NAN},
                                                                                 {"learning_rate:4", 1},
                                                                                 {"learning_rate_scale", -1},
                                                                                 {"frozen:net.*", 0.5},
                                                                                 {"frozen:nothing", 1},
                                                                                 {"no such number", 1}})
      out["epl_session_set_number"].push_back([=] { return epl_session_set_number(s, TEXT(name), value); });
    out["epl_session_get_number"].push_back([=] {
      double value = 0;
      return epl_session_get_number(s, EPL_STR("no such number"), &value);
    });
    out["epl_session_get_number"].push_back(
        [=] { return epl_session_get_number(s, EPL_STR("learning_rate"), nullptr); });
    out["epl_session_metric"].push_back([=] {
      double value = 0;
      return epl_session_metric(s, EPL_STR("no such output"), &value);
    });
    out["epl_session_output"].push_back([=] {
      epl_tensor* output = nullptr;
      return epl_session_output(s, EPL_ENTRY_TRAIN, EPL_STR("no such output"), &output);
    });
    for (const char* settings : {"{}", R"({"steps": 2, "patience": 3})", R"({"steps": 2, "resume": "nowhere"})"}) {
      out["epl_job_start"].push_back([=, this] {
        epl_job* job = nullptr;
        must(epl_job_create(w.engine, TEXT(settings), &job));
        epl_error* error = epl_job_start(job, s, tried.dataset, nullptr, nullptr);
        epl_job_destroy(job);
        return error;
      });
    }
    for (const char* facts : {"[", R"(["a"])", R"({"a": {}})"})
      out["epl_session_agree"].push_back([=] { return epl_session_agree(s, TEXT(facts), nullptr, nullptr); });
    out["epl_session_observe"].push_back([=] { return epl_session_observe(s, 1, 0); });  // nothing watches
    for (int64_t steps : {int64_t{-1}, INT64_MAX})
      out["epl_session_record"].push_back([=] { return epl_session_record(s, steps); });
    out["epl_session_trace"].push_back([=] { return epl_session_trace(s, nullptr); });
    out["epl_session_get"].push_back([=] { return got(s, "no such state", nullptr); });
    out["epl_session_hash"].push_back([=] { return epl_session_hash(s, nullptr, nullptr); });
    out["epl_evaluation_add_dataset"].push_back(
        [this] { return epl_evaluation_add_dataset(tried.evaluation, tried.session, tried.dataset, -1, nullptr); });
    out["epl_evaluation_add_dataset"].push_back(
        [this] { return epl_evaluation_add_dataset(tried.evaluation, tried.session, nullptr, 1, nullptr); });
    out["epl_evaluation_add"].push_back([=, this] { return epl_evaluation_add(nullptr, s, w.inputs, 2, nullptr); });
  }

  void add_failures_of_files(std::map<std::string, std::vector<Failing>>& out) {
    epl_session* s = tried.session;
    const std::string missing = temporary.path() + "/nothing", file = w.csv_path;
    for (const std::string& path : {missing, file, foreign}) {
      out["epl_session_load"].push_back([=] { return epl_session_load(s, TEXT(path.c_str()), nullptr, nullptr); });
      // Of another optimizer; and for a dataset, of which it says nothing.
      out["epl_session_load"].push_back(
          [=, this] { return epl_session_load(s, TEXT(path.c_str()), tried.dataset, nullptr); });
      if (path != foreign) out["epl_session_compare"].push_back([=, this] { return compared(path, nullptr); });
    }
    out["epl_session_load"].push_back(
        [=, this] { return epl_session_load(s, TEXT(without_data.c_str()), tried.dataset, nullptr); });
    out["epl_session_save"].push_back(
        [=] { return epl_session_save(s, TEXT((file + "/under").c_str()), nullptr, nullptr); });
    constexpr size_t cuts = EPL_SANITIZED ? 5 : 23;
    for (size_t cut = 0; cut < kept.size(); cut += std::max<size_t>(1, kept.size() / cuts)) {
      out["epl_session_load_bytes"].push_back(
          [=, this] { return epl_session_load_bytes(s, kept.data(), cut, nullptr, nullptr); });
      out["epl_session_load_from"].push_back([=, this] { return load_kept(nullptr, cut); });
      out["epl_session_save_to"].push_back([=] {
        int64_t left = static_cast<int64_t>(cut);
        return epl_session_save_to(s, write_some, &left, nullptr, nullptr);
      });
    }
    for (const char* format : {"safetensors", "onnx", "no such format"}) {
      out["epl_session_export_to"].push_back([=] {
        int64_t left = 10;
        return epl_session_export_to(s, TEXT(format), write_some, &left, nullptr);
      });
    }
    const std::string under = file + "/under";
    out["epl_session_export_onnx"].push_back([=] { return epl_session_export_onnx(s, TEXT(under.c_str()), nullptr); });
    out["epl_session_export_onnx_for_training"].push_back(
        [=] { return epl_session_export_onnx_for_training(s, TEXT(under.c_str()), nullptr); });
    out["epl_session_export_safetensors"].push_back(
        [=] { return epl_session_export_safetensors(s, TEXT(under.c_str()), nullptr); });
    out["epl_session_export_adapters"].push_back(
        [=] { return epl_session_export_adapters(s, TEXT(under.c_str()), nullptr); });
  }

  const epl::TemporaryFolder temporary;
  const std::string foreign = temporary.path() + "/foreign", without_data = temporary.path() + "/without_data";
  std::string kept;  // a checkpoint of `tried`
  size_t readable_ = 0;
  world w;
  epl_plan* plan = nullptr;
  Side tried, twin;
  epl_session* other = nullptr;  // with another optimizer
  epl_cancel* token = nullptr;
  epl_tensor *label = nullptr, *fewer = nullptr, *floats = nullptr, *wider = nullptr, *not_numbers = nullptr,
             *not_finite = nullptr, *room = nullptr, *wrong_room = nullptr;
  epl_call_options bad_size = EPL_CALL_OPTIONS_INIT, cancelled = EPL_CALL_OPTIONS_INIT, late = EPL_CALL_OPTIONS_INIT;
  epl_metrics bad_metrics = EPL_METRICS_INIT;
};

TEST_P(AtomicCallsOfTheApi, AnErrorChangesNothing) {
  // The very first call may fail as well.
  for (const epl_tensor* target : {label, floats}) {
    const epl_tensor* const inputs[] = {w.x, target};
    EXPECT_NE(taken(epl_session_step(tried.session, inputs, 2, nullptr, nullptr)), EPL_OK);
    EXPECT_EQ(epl_session_steps(tried.session), 0);
  }
  EXPECT_EQ(taken(epl_session_apply(tried.session, nullptr, nullptr)), EPL_ERROR_MISUSE);
  train_on("failing first");
  for (Side* side : {&tried, &twin}) {
    must(epl_session_set_number(side->session, EPL_STR("frozen:net.2.bias"), 1));
    must(epl_session_set_number(side->session, EPL_STR("learning_rate_scale"), 0.5));
  }
  must(epl_session_save_to(tried.session, append, &kept, nullptr, nullptr));
  must(epl_session_save(tried.session, TEXT(without_data.c_str()), nullptr, nullptr));
  const std::map<std::string, std::vector<Failing>> all = failures_of_all();
  for (const std::string& name : functions_of_a_session()) {
    const auto found = all.find(name);
    ASSERT_NE(found, all.end()) << "the header has a function of a session that this test does not call: " << name;
    for (size_t i = 0; i < found->second.size(); ++i) {
      const std::string said = name + ", failure " + std::to_string(i);
      const int32_t code = taken(found->second[i]());
      ASSERT_NE(code, EPL_OK) << said;
      ASSERT_NE(code, EPL_ERROR_STATE_LOST) << said;
      ASSERT_NO_FATAL_FAILURE(expect_alike(said, code == EPL_ERROR_NOT_FINITE));
      if (code == EPL_ERROR_NOT_FINITE) train_on(said);
    }
    ASSERT_NO_FATAL_FAILURE(train_on(name));
    if (HasFailure()) return;
  }
}

// Gradients are applied once, and are of the weights that there are.
TEST_P(AtomicCallsOfTheApi, AnUpdateNeedsGradients) {
  epl_session* s = tried.session;
  const auto refused = [&](const char* why) {
    const auto before = everything(tried);
    epl_error* error = epl_session_apply(s, nullptr, nullptr);
    EXPECT_EQ(epl_error_code(error), EPL_ERROR_MISUSE);
    EXPECT_NE(std::string(epl_error_message(error, nullptr)).find(why), std::string::npos)
        << epl_error_message(error, nullptr);
    epl_error_destroy(error);
    EXPECT_TRUE(everything(tried) == before) << why;
  };
  const auto gradients = [&] { must(epl_session_gradients(s, w.inputs, 2, nullptr, nullptr)); };
  const auto apply = [&] { must(epl_session_apply(s, nullptr, nullptr)); };
  refused("none were computed yet");
  gradients();
  apply();
  refused("they were applied already");
  must(epl_session_step(s, w.inputs, 2, nullptr, nullptr));
  refused("they were applied already");
  must(epl_session_save(s, TEXT(w.checkpoint), nullptr, nullptr));
  gradients();
  must(epl_session_load(s, TEXT(w.checkpoint), nullptr, nullptr));
  refused("of other weights");
  gradients();
  must(epl_session_set(s, EPL_STR("net.0.bias"), floats, nullptr));
  refused("of other weights");
  // Of the host's own: all, or it says which is missing. A failed call takes none away.
  gradients();
  const epl_tensor* const wrong[] = {w.x, label};
  EXPECT_NE(taken(epl_session_gradients(s, wrong, 2, nullptr, nullptr)), EPL_OK);
  apply();
  std::vector<std::string> names;
  for (int64_t i = 0; i < epl_session_state_count(s, EPL_STATE_GRADIENT); ++i) {
    epl_tensor_info info = EPL_TENSOR_INFO_INIT;
    must(epl_session_state_port(s, EPL_STATE_GRADIENT, i, &info));
    names.emplace_back(info.name, info.name_length);
  }
  for (const std::string& name : names) {
    refused(name == names.front() ? "they were applied already" : "there is no gradient of ");
    epl_tensor* value = nullptr;
    must(epl_session_get(s, TEXT(name.c_str()), nullptr, &value));
    must(epl_session_set(s, TEXT(name.c_str()), value, nullptr));
    epl_tensor_destroy(value);
  }
  apply();
  refused("they were applied already");
}

// Gradients of two batches, added up by the host, are those of both.
TEST_P(AtomicCallsOfTheApi, GradientsAreAddedUpOverCalls) {
  epl_session* s = tried.session;
  std::map<std::string, std::vector<float>> sums;
  for (int batch = 0; batch < 2; ++batch) {
    must(epl_session_gradients(s, w.inputs, 2, nullptr, nullptr));
    for (int64_t i = 0; i < epl_session_state_count(s, EPL_STATE_GRADIENT); ++i) {
      epl_tensor_info info = EPL_TENSOR_INFO_INIT;
      epl_tensor* value = nullptr;
      must(epl_session_state_port(s, EPL_STATE_GRADIENT, i, &info));
      must(epl_session_get(s, info.name, info.name_length, nullptr, &value));
      auto* numbers = static_cast<float*>(epl_tensor_data(value));
      std::vector<float>& sum = sums[std::string(info.name, info.name_length)];
      sum.resize(epl_tensor_bytes(value) / sizeof(float));
      for (size_t e = 0; e < sum.size(); ++e) numbers[e] = sum[e] += numbers[e] / 2;
      if (batch == 1) must(epl_session_set(s, info.name, info.name_length, value, nullptr));
      epl_tensor_destroy(value);
    }
  }
  must(epl_session_apply(s, nullptr, nullptr));
  must(epl_session_step(twin.session, w.inputs, 2, nullptr, nullptr));  // twice the same batch
  uint64_t one = 0, other_one = 1;
  must(epl_session_hash(s, nullptr, &one));
  must(epl_session_hash(twin.session, nullptr, &other_one));
  EXPECT_EQ(one, other_one);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AtomicCallsOfTheApi,
    testing::Values(Layout{"one_rank", "{}", 1}, Layout{"copies", R"({"default":{"replicate":1}})", 2},
                    Layout{"zero", R"({"default":{"replicate":1},"zero.level":"v0"})", 2},
                    Layout{"split", R"({"default":{"split":2}})", 2},
                    Layout{"stages", R"({"pipeline.num_stages":2,"pipeline.num_micro_batch":4})", 2}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
