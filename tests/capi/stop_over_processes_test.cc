// Every function in which the processes of a job come together, with a token that one of them has triggered before, and
// with arguments that one of them refuses: it says so, the others are told instead of waiting for it, and the next call
// of all works. A function of the header that
// is missing here fails the test. Two threads with an engine and a session each stand for the processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace {

// The blocking functions of a session, but for those that make it or concern one process alone.
std::set<std::string> functions_of_all() {
  std::set<std::string> out;
  const auto add = [&]<class R, class... A>(const char* name, R (*)(A...)) {
    constexpr bool blocking = (... || std::is_same_v<A, const epl_call_options*>);
    if (blocking && (... || std::is_same_v<A, epl_session*>)) out.insert(name);
  };
#define EPL_FALLIBLE(name) add(#name, &name);
#define EPL_OTHER(name) EPL_FALLIBLE(name)
#include "epl_functions.inc"
#undef EPL_FALLIBLE
#undef EPL_OTHER
  for (const char* alone : {"epl_session_set", "epl_session_compare", "epl_session_give_up"}) out.erase(alone);
  out.erase("epl_job_start");  // a job over processes has tests of its own
  return out;
}

struct Layout {
  const char* name;
  const char* strategy;
  bool whole;  // each process has all of the weights
  std::string transport = "";
};

// One process of two.
class Side {
 public:
  using Call = const epl_call_options*;
  Side(const std::string& folder, int rank, const Layout& layout) : folder_(folder) {
    const std::string own = folder + "/" + std::to_string(rank), meet = "file://" + folder + "/meet";
    world_make(&w_, own.c_str(), 1, 8);
    must(epl_trainer_set(w_.trainer, EPL_STR("keep_gradients"), EPL_STR("true")));
    must(epl_trainer_add_adapter(w_.trainer, EPL_STR("net.2.weight"), nullptr));
    epl_strategy* strategy = nullptr;
    must(epl_strategy_parse(w_.engine, TEXT(layout.strategy), &strategy));
    epl_plan_options plan_options = EPL_PLAN_OPTIONS_INIT;
    plan_options.ranks = 2;
    plan_options.local_ranks = 1;
    must(epl_plan_create(w_.model, w_.trainer, strategy, &plan_options, nullptr, &plan_));
    epl_strategy_destroy(strategy);
    epl_session_options options = EPL_SESSION_OPTIONS_INIT;
    options.first_rank = rank;
    options.ranks = 1;
    options.rendezvous = meet.data();
    options.rendezvous_length = meet.size();
    options.transport = layout.transport.data();
    options.transport_length = layout.transport.size();
    must(epl_session_create(plan_, &options, nullptr, &session_));
    must(epl_evaluation_create(plan_, nullptr, 0, &evaluation_));
    must(epl_dataset_open(w_.engine, TEXT(w_.csv_path), EPL_STR("{\"batch\":8,\"classes\":true}"), nullptr, &dataset_));
    must(epl_dataset_bind(dataset_, plan_, EPL_ENTRY_TRAIN));
    const int64_t dims[] = {world_batch, 2};
    must(epl_tensor_create(w_.engine, EPL_DTYPE_F32, dims, 2, &room_));
    must(epl_cancel_create(w_.engine, &triggered_));
    epl_cancel_trigger(triggered_);
    const int64_t classes[world_batch] = {0, 1, 0, 1, 0, 2, 0, 1}, samples[] = {world_batch};
    must(epl_tensor_create_copy(w_.engine, EPL_DTYPE_I64, samples, 1, classes, sizeof classes, &label_));
  }
  Side(const Side&) = delete;
  ~Side() {
    epl_cancel_destroy(triggered_);
    epl_tensor_destroy(room_);
    epl_tensor_destroy(label_);
    epl_dataset_destroy(dataset_);
    epl_evaluation_destroy(evaluation_);
    epl_session_destroy(session_);
    epl_plan_destroy(plan_);
    world_destroy(&w_);
  }

  // What is wrong with a call.
  enum class Fault { none, cancelled, options, inputs, label, shape };
  int32_t call(const std::string& name, Fault fault) {
    const epl_tensor* const wrong[] = {fault == Fault::shape    ? w_.target
                                       : fault == Fault::inputs ? nullptr
                                                                : w_.x,
                                       fault == Fault::label ? label_ : w_.target};
    inputs_ = fault == Fault::none || fault == Fault::cancelled ? w_.inputs : wrong;
    const bool options = fault == Fault::options;
    const int32_t code =
        options ? with_wrong_options(name) : call(name, fault == Fault::cancelled ? triggered_ : nullptr);
    inputs_ = w_.inputs;
    return code;
  }
  int32_t with_wrong_options(const std::string& name) {
    epl_call_options options = EPL_CALL_OPTIONS_INIT;
    options.struct_size = 4;
    return taken(calls().at(name)(&options));
  }
  int32_t call(const std::string& name, epl_cancel* token) {
    epl_call_options options = EPL_CALL_OPTIONS_INIT;
    options.timeout_nanoseconds = 60'000'000'000;  // who waits for a peer that does not come is found out
    options.cancel = token;
    return taken(calls().at(name)(&options));
  }
  // A call that another thread cancels, it may be at work by then.
  int32_t call_cancelled_after(const std::string& name, std::chrono::microseconds delay) {
    epl_cancel* token = nullptr;
    must(epl_cancel_create(w_.engine, &token));
    std::thread canceller([&] {
      std::this_thread::sleep_for(delay);
      epl_cancel_trigger(token);
    });
    const int32_t code = call(name, token);
    canceller.join();
    epl_cancel_destroy(token);
    return code;
  }

  std::map<std::string, std::function<epl_error*(Call)>> calls() {
    std::map<std::string, std::function<epl_error*(Call)>> out;
    const std::string checkpoint = folder_ + "/checkpoint";
    out["epl_session_step"] = [&](Call c) { return epl_session_step(session_, inputs_, 2, c, nullptr); };
    out["epl_session_gradients"] = [&](Call c) { return epl_session_gradients(session_, inputs_, 2, c, nullptr); };
    out["epl_session_apply"] = [&](Call c) {  // each time by gradients of its own
      epl_error* error = epl_session_gradients(session_, w_.inputs, 2, nullptr, nullptr);
      return error != nullptr ? error : epl_session_apply(session_, c, nullptr);
    };
    out["epl_session_evaluate"] = [&](Call c) { return epl_session_evaluate(session_, inputs_, 2, c, nullptr); };
    out["epl_session_predict"] = [&](Call c) {
      epl_tensor* output = nullptr;
      epl_error* error = epl_session_predict(session_, inputs_, 1, c, &output, 1);
      epl_tensor_destroy(output);
      return error;
    };
    out["epl_session_predict_into"] = [&](Call c) {
      return epl_session_predict_into(session_, inputs_, 1, c, &room_, 1);
    };
    out["epl_session_step_async"] = [&](Call c) {
      epl_event* event = nullptr;
      epl_error* error = epl_session_step_async(session_, inputs_, 2, c, &event);
      return ended(error, event);
    };
    out["epl_session_evaluate_async"] = [&](Call c) {
      epl_event* event = nullptr;
      epl_error* error = epl_session_evaluate_async(session_, inputs_, 2, c, &event);
      return ended(error, event);
    };
    out["epl_session_predict_async"] = [&](Call c) {
      epl_event* event = nullptr;
      epl_error* error = epl_session_predict_async(session_, inputs_, 1, c, &room_, 1, &event);
      return ended(error, event);
    };
    out["epl_session_agree"] = [&](Call c) { return epl_session_agree(session_, EPL_STR("{\"a\": 1}"), dataset_, c); };
    out["epl_session_hash"] = [&](Call c) { return epl_session_hash(session_, c, &hash_); };
    out["epl_session_get"] = [&](Call c) {
      epl_tensor* value = nullptr;
      epl_error* error = epl_session_get(session_, EPL_STR("net.2.weight"), c, &value);
      epl_tensor_destroy(value);
      return error;
    };
    out["epl_session_save"] = [&, checkpoint](Call c) {
      return epl_session_save(session_, TEXT(checkpoint.c_str()), nullptr, c);
    };
    out["epl_session_load"] = [&, checkpoint](Call c) {
      return epl_session_load(session_, TEXT(checkpoint.c_str()), nullptr, c);
    };
    out["epl_session_save_to"] = [&](Call c) { return epl_session_save_to(session_, keep, this, nullptr, c); };
    out["epl_session_load_bytes"] = [&](Call c) {
      return epl_session_load_bytes(session_, kept_->data(), kept_->size(), nullptr, c);
    };
    out["epl_session_load_from"] = [&](Call c) {
      epl_source source = EPL_SOURCE_INIT;
      source.bytes = kept_->size();
      source.userdata = this;
      source.read = [](void* side, uint64_t offset, void* target, size_t bytes) -> epl_error* {
        std::memcpy(target, static_cast<Side*>(side)->kept_->data() + offset, bytes);
        return nullptr;
      };
      return epl_session_load_from(session_, &source, nullptr, c);
    };
    out["epl_session_export_onnx"] = [&](Call c) { return epl_session_export_onnx(session_, TEXT(w_.out), c); };
    out["epl_session_export_onnx_for_training"] = [&](Call c) {
      return epl_session_export_onnx_for_training(session_, TEXT(w_.out), c);
    };
    out["epl_session_export_adapters"] = [&, adapters = folder_ + "/adapters"](Call c) {
      return epl_session_export_adapters(session_, TEXT(adapters.c_str()), c);
    };
    out["epl_session_export_safetensors"] = [&](Call c) {
      return epl_session_export_safetensors(session_, TEXT(w_.out), c);
    };
    out["epl_session_export_to"] = [&](Call c) {
      return epl_session_export_to(session_, EPL_STR("safetensors"), keep, this, c);
    };
    out["epl_evaluation_add"] = [&](Call c) { return epl_evaluation_add(evaluation_, session_, inputs_, 2, c); };
    out["epl_evaluation_add_dataset"] = [&](Call c) {
      return epl_evaluation_add_dataset(evaluation_, session_, dataset_, 0, c);
    };
    return out;
  }
  int64_t steps() const { return epl_session_steps(session_); }
  uint64_t hash() const { return hash_; }
  int64_t samples() const { return epl_evaluation_samples(evaluation_); }
  void take(const std::string* kept) { kept_ = kept; }
  std::string written;

 private:
  static epl_error* ended(epl_error* error, epl_event* event) {
    if (error == nullptr) error = epl_event_wait(event, nullptr, nullptr);
    epl_event_destroy(event);
    return error;
  }
  static epl_error* keep(void* side, const void* data, size_t bytes) {
    static_cast<Side*>(side)->written.append(static_cast<const char*>(data), bytes);
    return nullptr;
  }

  const std::string folder_;
  world w_;
  epl_plan* plan_ = nullptr;
  epl_session* session_ = nullptr;
  epl_evaluation* evaluation_ = nullptr;
  epl_dataset* dataset_ = nullptr;
  epl_tensor *room_ = nullptr, *label_ = nullptr;  // a class that the model lacks
  const epl_tensor* const* inputs_ = w_.inputs;
  epl_cancel* triggered_ = nullptr;
  const std::string* kept_ = nullptr;
  uint64_t hash_ = 0;
};

class StopOverProcesses : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    both([&](int rank) { sides[rank] = std::make_unique<Side>(temporary.path(), rank, GetParam()); });
  }
  template <class F> static void both(const F& f) {
    std::thread other([&] { f(1); });
    f(0);
    other.join();
  }
  using Fault = Side::Fault;
  // The codes of both; `wrong`: whose call is, -1 for none.
  std::pair<int32_t, int32_t> call(const std::string& name, int wrong, Fault fault = Fault::cancelled) {
    int32_t codes[2];
    both([&](int rank) { codes[rank] = sides[rank]->call(name, rank == wrong ? fault : Fault::none); });
    return {codes[0], codes[1]};
  }

  const epl::TemporaryFolder temporary;
  std::unique_ptr<Side> sides[2];
};

TEST_P(StopOverProcesses, ACallIsCancelledAtAnyMoment) {
  EPL_ONE_OF_THREE();
  const std::pair<int32_t, int32_t> well{EPL_OK, EPL_OK};
  std::mt19937 random(7);
  for (const char* first : {"epl_session_step", "epl_session_save", "epl_session_save_to"})
    ASSERT_EQ(call(first, -1), well) << first;
  const std::string kept = sides[0]->written;
  for (auto& side : sides) side->take(&kept);
  std::set<std::string> names = functions_of_all();
  names.erase("epl_session_apply");                                                       // needs gradients of its own
  if (GetParam().whole) names.erase("epl_session_get"), names.erase("epl_session_hash");  // of one process alone
  for (int round = 0; round < 8; ++round) {
    for (const std::string& name : names) {
      SCOPED_TRACE(name);
      const int cancelled = static_cast<int>(random() % 2);
      const std::chrono::microseconds delay(random() % 400);
      int32_t codes[2];
      both([&](int rank) {
        codes[rank] =
            rank == cancelled ? sides[rank]->call_cancelled_after(name, delay) : sides[rank]->call(name, Fault::none);
      });
      const int32_t own = codes[cancelled], other = codes[1 - cancelled];
      ASSERT_TRUE(own == EPL_OK || own == EPL_ERROR_CANCELLED) << own;
      ASSERT_TRUE(other == EPL_OK || (own != EPL_OK && other == EPL_ERROR_PEER_FAILED)) << other;
      // Who was done before it heard of that hears of it in its next call.
      int32_t next = EPL_OK;
      if (own != EPL_OK && other == EPL_OK) {
        both([&](int rank) {
          if (rank == cancelled) return;
          next = sides[rank]->call("epl_session_evaluate", Fault::none);
        });
      }
      ASSERT_TRUE(next == EPL_OK || next == EPL_ERROR_PEER_FAILED) << next;
      ASSERT_EQ(call("epl_session_hash", -1), well);
      ASSERT_EQ(sides[0]->hash(), sides[1]->hash());
      ASSERT_EQ(sides[0]->steps(), sides[1]->steps());
      ASSERT_EQ(call("epl_session_step", -1), well);
    }
  }
}

TEST_P(StopOverProcesses, NobodyWaitsForWhoWasCancelled) {
  EPL_ONE_OF_THREE();
  const std::pair<int32_t, int32_t> well{EPL_OK, EPL_OK};
  for (const char* first : {"epl_session_gradients", "epl_session_apply", "epl_session_step", "epl_session_save",
                            "epl_session_save_to", "epl_session_hash"})
    ASSERT_EQ(call(first, -1), well) << first;
  const std::string kept = sides[0]->written;
  for (auto& side : sides) side->take(&kept);
  const int64_t steps = sides[0]->steps();
  const uint64_t hash = sides[0]->hash();
  const auto all = sides[0]->calls();
  for (const std::string& name : functions_of_all()) {
    SCOPED_TRACE(name);
    ASSERT_TRUE(all.contains(name)) << "the header has a function of all processes that this test does not call";
    for (const int cancelled : {0, 1}) {
      const auto [first, second] = call(name, cancelled);
      EXPECT_EQ(cancelled == 0 ? first : second, EPL_ERROR_CANCELLED);
      const int32_t other = cancelled == 0 ? second : first;
      EXPECT_TRUE(other == EPL_OK || other == EPL_ERROR_PEER_FAILED) << other;  // it may need no other process
    }
    ASSERT_EQ(call("epl_session_hash", -1), well);
    EXPECT_EQ(sides[0]->hash(), hash) << "a call that was given up has done nothing";
    EXPECT_EQ(sides[1]->hash(), hash);
    EXPECT_EQ(sides[0]->steps(), steps);
    EXPECT_EQ(sides[1]->steps(), steps);
    ASSERT_EQ(call(name, -1), well) << "the next call of all works";
    ASSERT_EQ(call("epl_session_load", -1), well);
  }
  EXPECT_EQ(sides[0]->samples(), sides[1]->samples());
}

// What one process is given wrong, whatever else the other one is given: no call waits for who has refused, nothing has
// changed in either, and all make the same call again.
TEST_P(StopOverProcesses, NobodyWaitsForWhoRefuses) {
  EPL_ONE_OF_THREE();
  const std::pair<int32_t, int32_t> well{EPL_OK, EPL_OK};
  for (const char* first : {"epl_session_step", "epl_session_save", "epl_session_save_to", "epl_session_hash"})
    ASSERT_EQ(call(first, -1), well) << first;
  const std::string kept = sides[0]->written;
  for (auto& side : sides) side->take(&kept);
  const std::set<std::string> with_inputs = {
      "epl_session_step",           "epl_session_gradients",     "epl_session_evaluate",
      "epl_session_predict",        "epl_session_predict_into",  "epl_session_step_async",
      "epl_session_evaluate_async", "epl_session_predict_async", "epl_evaluation_add"};
  for (const std::string& name : functions_of_all()) {
    std::vector<Fault> faults = {Fault::options};
    if (with_inputs.contains(name)) faults.insert(faults.end(), {Fault::inputs, Fault::shape});
    if (with_inputs.contains(name) && name.find("predict") == std::string::npos) faults.push_back(Fault::label);
    for (const Fault fault : faults) {
      for (const int wrong : {0, 1}) {
        SCOPED_TRACE(name + ", fault " + std::to_string(static_cast<int>(fault)) + " of " + std::to_string(wrong));
        ASSERT_EQ(call("epl_session_hash", -1), well);
        const uint64_t hash = sides[0]->hash();
        const int64_t steps = sides[0]->steps(), samples = sides[0]->samples();
        const auto [first, second] = call(name, wrong, fault);
        EXPECT_EQ(wrong == 0 ? first : second, EPL_ERROR_INVALID_ARGUMENT);
        const int32_t other = wrong == 0 ? second : first;
        EXPECT_TRUE(other == EPL_OK || other == EPL_ERROR_PEER_FAILED) << other;  // it may need no other process
        ASSERT_EQ(call("epl_session_hash", -1), well);
        for (const auto& side : sides) {
          EXPECT_EQ(side->hash(), hash);
          EXPECT_EQ(side->steps(), steps);
          EXPECT_EQ(side->samples(), samples);
        }
        ASSERT_EQ(call(name, -1), well) << "all make the same call again";
        ASSERT_EQ(call("epl_session_step", -1), well);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, StopOverProcesses,
                         testing::Values(Layout{"copies", R"({"zero.level":"off"})", true},
                                         Layout{"zero", R"({"zero.level":"v0"})", true},
                                         Layout{"split", R"({"default":{"split":2}})", false},
                                         Layout{"stages", R"({"pipeline.num_stages":2})", false},
                                         Layout{"copies_by_sockets", R"({"zero.level":"off"})", true, "sockets"},
                                         Layout{"split_by_sockets", R"({"default":{"split":2}})", false, "sockets"}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
