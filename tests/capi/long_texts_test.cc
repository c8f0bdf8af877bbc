// What a message repeats of its caller's text is cut and without control characters, in every function that takes one
// and for every option that is a name or a text. The functions are read from the header, so a new one is tried by
// itself.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/base/json.h"
#include "include/epl.h"
#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace epl::long_texts_test {
namespace {

// As a stranger gives it: a name of one part, and a path whose parts a file system takes, below what is no folder.
const std::string& long_name() {
  static const std::string text = "no\nsuch\x01\x1b[2J\x7f" + std::string(5000, 'x');
  return text;
}
const std::string& long_path() {
  static const std::string text = [] {
    std::string path = "/dev/null/no\nsuch\x01\x1b[2J\x7f";
    for (int i = 0; i < 15; ++i) path += std::string(200, 'x') + "/";
    return path + "end.onnx";
  }();
  return text;
}

// An object of one key, in JSON.
std::string with_value(const std::string& key) { return "{\"" + key + "\": " + print_json(Json(long_name())) + "}"; }
std::string with_key() { return "{" + print_json(Json(long_name())) + ": 1}"; }

// Of every type that functions with texts take.
struct Handles {
  explicit Handles(const TemporaryFolder& folder) {
    world_make(&w, (folder / "world").c_str(), 1, 8);
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), EPL_STR("{\"batch\": 8}"), nullptr, &dataset));
    must(epl_evaluation_create(w.plan, EPL_STR("accuracy"), &evaluation));
    must(epl_job_create(w.engine, EPL_STR("{\"steps\": 3}"), &job));
  }
  ~Handles() {
    epl_job_destroy(job);
    epl_evaluation_destroy(evaluation);
    epl_dataset_destroy(dataset);
    world_end(&w);
  }
  template <class T> T* get() {
    if constexpr (std::is_same_v<T, epl_engine>) return w.engine;
    if constexpr (std::is_same_v<T, epl_model>) return w.model;
    if constexpr (std::is_same_v<T, epl_trainer>) return w.trainer;
    if constexpr (std::is_same_v<T, epl_strategy>) return w.strategy;
    if constexpr (std::is_same_v<T, epl_plan>) return w.plan;
    if constexpr (std::is_same_v<T, epl_session>) return w.session;
    if constexpr (std::is_same_v<T, epl_tensor>) return w.x;
    if constexpr (std::is_same_v<T, epl_dataset>) return dataset;
    if constexpr (std::is_same_v<T, epl_evaluation>) return evaluation;
    if constexpr (std::is_same_v<T, epl_job>) return job;
    return nullptr;
  }
  world w{};
  epl_dataset* dataset = nullptr;
  epl_evaluation* evaluation = nullptr;
  epl_job* job = nullptr;
};

// Takes the error.
void expect_short(epl_error* error, const std::string& what) {
  const std::string message = error == nullptr ? "" : epl_error_message(error, nullptr);
  epl_error_destroy(error);
  EXPECT_LT(message.size(), 2000u) << what << ": " << message;
  EXPECT_EQ(message.find("no\nsuch"), std::string::npos) << what << ": " << message;
  for (const char c : message)
    ASSERT_TRUE((static_cast<unsigned char>(c) >= ' ' && c != '\x7f') || c == '\n') << what << ": " << message;
  EXPECT_EQ(message.find(std::string(700, 'x')), std::string::npos) << what << ": " << message;
}
void expect_refused(epl_error* error, const std::string& what) {
  EXPECT_NE(error, nullptr) << what << " is taken";
  expect_short(error, what);
}

// What a call gave, by whatever destroys its type.
template <class T> void destroy_given(T* given) {
#define EPL_FALLIBLE(name)
#define EPL_OTHER(name)                                                                                           \
  if constexpr (std::is_same_v<decltype(&name), void (*)(T*)> && std::string_view(#name).ends_with("_destroy")) { \
    name(given);                                                                                                  \
  }
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
}

// Called with handles that live, `text` for each text, and nothing for all else.
template <class... A>
void try_function(const char* name, epl_error* (*function)(A...), Handles& handles, const std::string& text) {
  if constexpr ((... || std::is_same_v<A, const char*>)) {
    bool counts_text = false;  // the size behind a text
    std::tuple<std::remove_const_t<std::remove_pointer_t<A>>*...> places{};
    const auto value = [&]<class T>(T*, auto& place) -> T {
      const bool counts = std::exchange(counts_text, std::is_same_v<T, const char*>);
      if constexpr (std::is_same_v<T, const char*>) {
        return text.data();
      } else if constexpr (std::is_same_v<T, size_t>) {
        return counts ? text.size() : 0;
      } else if constexpr (std::is_pointer_v<T>) {
        using Of = std::remove_const_t<std::remove_pointer_t<T>>;
        if constexpr (std::is_pointer_v<Of>) {
          return reinterpret_cast<T>(&place);  // where a handle goes
        } else if constexpr (std::is_same_v<Of, double> || std::is_same_v<Of, int64_t>) {
          static Of out;
          return &out;
        } else if constexpr (requires { handles.get<Of>(); } && !std::is_void_v<Of> && !std::is_function_v<Of>) {
          return handles.get<Of>();
        } else {
          return nullptr;
        }
      } else {
        return T{};
      }
    };
    std::tuple<A...> given{};
    [&]<size_t... I>(std::index_sequence<I...>) {
      ((std::get<I>(given) = value(static_cast<A*>(nullptr), std::get<I>(places))), ...);
    }(std::index_sequence_for<A...>());
    expect_short(std::apply(function, given), name);
    const auto end = []<class T>(T* given) {
      if constexpr (std::is_pointer_v<T>) destroy_given(reinterpret_cast<T>(given));  // the place held what was given
    };
    std::apply([&](auto&... place) { (end(place), ...); }, places);
  }
}

TEST(LongTexts, are_cut_and_escaped_by_every_function) {
  const TemporaryFolder folder;
  Handles handles(folder);
  for (const std::string& text : {long_name(), long_path(), with_key()}) {
    // What makes an error of a caller's own message keeps it.
#define EPL_FALLIBLE(name) \
  if (std::string_view(#name) != "epl_error_create") try_function(#name, &name, handles, text);
#define EPL_OTHER(name)
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
  }
}

TEST(LongTexts, are_cut_and_escaped_as_keys_and_values_of_settings) {
  const TemporaryFolder folder;
  Handles handles(folder);
  epl_engine* const engine = handles.w.engine;
  const auto each = [](const char* what, const std::vector<std::string>& keys,
                       const std::function<epl_error*(const std::string&)>& make) {
    expect_refused(make(with_key()), std::string(what) + ", a key");
    for (const std::string& key : keys) expect_refused(make(with_value(key)), std::string(what) + ", " + key);
  };
  epl_trainer* trainer = nullptr;
  each("trainer", {"optimizer", "loss", "schedule", "optimizer.lr", "schedule.warmup_steps", "clip_norm", "precision"},
       [&](const std::string& json) { return epl_trainer_parse(engine, json.data(), json.size(), &trainer); });
  epl_strategy* strategy = nullptr;
  each("strategy", {"pipeline.strategy", "zero.level", "pipeline.num_micro_batch", "scopes", "default"},
       [&](const std::string& json) {
         epl_error* error = epl_strategy_parse(engine, json.data(), json.size(), &strategy);
         if (error == nullptr) {
           epl_plan* plan = nullptr;
           epl_plan_options options = EPL_PLAN_OPTIONS_INIT;
           options.ranks = 2;
           error = epl_plan_create(handles.w.model, handles.w.trainer, strategy, &options, nullptr, &plan);
           epl_strategy_destroy(std::exchange(strategy, nullptr));
         }
         return error;
       });
  epl_job* job = nullptr;
  each("job", {"resume_anyway", "steps"},
       [&](const std::string& json) { return epl_job_create(engine, json.data(), json.size(), &job); });
  epl_dataset* dataset = nullptr;
  each("data", {"order", "batch", "inputs", "target", "missing"}, [&](const std::string& json) {
    return epl_dataset_open(engine, TEXT(handles.w.csv_path), json.data(), json.size(), nullptr, &dataset);
  });
  for (const std::string family : {"mlp", "gpt2"}) {
    each(("template " + family).c_str(), {"sizes", "activation", "sequence", "seed"}, [&](const std::string& json) {
      const std::string path = folder / "made.onnx";
      epl_error* error =
          epl_x_template_write(engine, TEXT(family.c_str()), json.data(), json.size(), TEXT(path.c_str()), nullptr);
      return error;
    });
  }
}

TEST(LongTexts, are_cut_and_escaped_where_a_plan_or_a_session_looks_for_them) {
  const TemporaryFolder folder;
  Handles handles(folder);
  const std::string& name = long_name();
  using Set = std::function<epl_error*(epl_trainer*)>;
  const Set sets[] = {
      [&](epl_trainer* t) { return epl_trainer_train_only(t, name.data(), name.size()); },
      [&](epl_trainer* t) { return epl_trainer_set(t, EPL_STR("loss.output"), name.data(), name.size()); },
      [&](epl_trainer* t) { return epl_trainer_bind_symbol(t, name.data(), name.size(), 3); },
      [&](epl_trainer* t) { return epl_trainer_bind_batch_dim(t, name.data(), name.size(), 0); },
      [&](epl_trainer* t) { return epl_trainer_add_adapter(t, name.data(), name.size(), nullptr); },
      [&](epl_trainer* t) {
        int64_t group = 0;
        return epl_trainer_add_group(t, name.data(), name.size(), &group);
      },
  };
  int number = 0;
  for (const Set& set : sets) {
    const std::string what = "setting " + std::to_string(number++);
    epl_trainer* trainer = nullptr;
    must(epl_trainer_parse(handles.w.engine, EPL_STR("{\"optimizer\": \"adam\"}"), &trainer));
    must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 8));
    if (epl_error* error = set(trainer)) {
      expect_short(error, what);
    } else {
      epl_plan* plan = nullptr;
      expect_refused(epl_plan_create(handles.w.model, trainer, nullptr, nullptr, nullptr, &plan), what);
    }
    epl_trainer_destroy(trainer);
  }
  epl_plan_options plan_options = EPL_PLAN_OPTIONS_INIT;
  plan_options.device = name.data(), plan_options.device_length = name.size();
  epl_plan* plan = nullptr;
  expect_refused(epl_plan_create(handles.w.model, handles.w.trainer, nullptr, &plan_options, nullptr, &plan), "device");
  for (const auto& [text, length] :
       {std::pair(&epl_session_options::rendezvous, &epl_session_options::rendezvous_length),
        std::pair(&epl_session_options::transport, &epl_session_options::transport_length),
        std::pair(&epl_session_options::integrity, &epl_session_options::integrity_length),
        std::pair(&epl_session_options::address, &epl_session_options::address_length)}) {
    epl_session_options options = EPL_SESSION_OPTIONS_INIT;
    options.ranks = 1;
    const std::string place = "file://" + std::string(folder / "place");
    options.rendezvous = place.data(), options.rendezvous_length = place.size();
    options.*text = name.data(), options.*length = name.size();
    epl_session* session = nullptr;
    expect_short(epl_session_create(handles.w.plan, &options, nullptr, &session), "an option of a session");
    epl_session_destroy(session);
  }
  epl_store_options store_options = EPL_STORE_OPTIONS_INIT;
  store_options.address = name.data(), store_options.address_length = name.size();
  epl_store* store = nullptr;
  expect_refused(epl_store_create(handles.w.engine, &store_options, &store), "the address of a store");
}

}  // namespace
}  // namespace epl::long_texts_test
