// Events: the same bits as the call, every way to wait, and every order in which things end. Predictors: weights of one
// step beside the steps themselves.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

class AsyncApi : public testing::Test {
 protected:
  void SetUp() override { ::world_make(&w, folder.c_str(), 2, 8); }
  void TearDown() override {
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }

  epl_session* new_session() const {
    epl_session* session = nullptr;
    must(epl_session_create(w.plan, nullptr, nullptr, &session));
    return session;
  }
  epl_event* begin_step(epl_session* session, const epl_call_options* call = nullptr) const {
    epl_event* event = nullptr;
    must(epl_session_step_async(session, w.inputs, 2, call, &event));
    return event;
  }
  static uint64_t hash(epl_session* session) {
    uint64_t value = 0;
    must(epl_session_hash(session, nullptr, &value));
    return value;
  }
  // Of the full batch, in the host's own memory.
  struct Room {
    explicit Room(const epl_engine* engine) {
      const int64_t dims[2] = {world_batch, 2};
      must(epl_tensor_create_borrow(engine, EPL_DTYPE_F32, dims, 2, values, sizeof values, 0, nullptr, nullptr,
                                    &tensor));
    }
    ~Room() { epl_tensor_destroy(tensor); }
    std::vector<float> now() const { return {std::begin(values), std::end(values)}; }
    float values[world_batch * 2] = {};
    epl_tensor* tensor = nullptr;
  };

  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
  world w;
};

TEST_F(AsyncApi, GivesTheBitsOfTheCall) {
  epl_session* other = new_session();
  for (int s = 0; s < 5; ++s) {
    epl_metrics expected = EPL_METRICS_INIT, metrics = EPL_METRICS_INIT;
    must(epl_session_step(w.session, w.inputs, 2, nullptr, &expected));
    epl_event* event = begin_step(other);
    must(epl_event_wait(event, nullptr, &metrics));
    EXPECT_EQ(epl_event_ready(event), 1);
    EXPECT_EQ(metrics.step, expected.step);
    EXPECT_EQ(metrics.loss, expected.loss);
    EXPECT_EQ(metrics.gradient_norm, expected.gradient_norm);
    EXPECT_EQ(metrics.learning_rate, expected.learning_rate);
    epl_metrics again = EPL_METRICS_INIT, progress = EPL_METRICS_INIT;
    must(epl_event_wait(event, nullptr, &again));
    EXPECT_EQ(std::memcmp(&again, &metrics, sizeof again), 0);
    epl_session_progress(other, &progress);
    EXPECT_EQ(std::memcmp(&progress, &metrics, sizeof progress), 0);
    epl_event_destroy(event);
  }
  EXPECT_EQ(hash(other), hash(w.session));
  epl_metrics expected = EPL_METRICS_INIT, metrics = EPL_METRICS_INIT;
  must(epl_session_evaluate(w.session, w.inputs, 2, nullptr, &expected));
  epl_event* event = nullptr;
  must(epl_session_evaluate_async(other, w.inputs, 2, nullptr, &event));
  must(epl_event_wait(event, nullptr, &metrics));
  EXPECT_EQ(metrics.loss, expected.loss);
  epl_event_destroy(event);
  Room into(w.engine), later(w.engine);
  must(epl_session_predict_into(w.session, w.inputs, 1, nullptr, &into.tensor, 1));
  must(epl_session_predict_async(other, w.inputs, 1, nullptr, &later.tensor, 1, &event));
  must(epl_event_wait(event, nullptr, nullptr));
  EXPECT_EQ(later.now(), into.now());
  EXPECT_NE(into.now(), std::vector<float>(world_batch * 2, 0));
  epl_event_destroy(event);
  epl_session_destroy(other);
}

TEST_F(AsyncApi, ADescriptorAndCallbacksTellThatTheSessionIsFree) {
  struct Chain {
    const world* w = nullptr;
    epl_session* session = nullptr;
    std::atomic<int> called{0}, destroyed{0};
    std::atomic<int32_t> code{-1};
  } chain{&w, w.session};
  for (int s = 0; s < 20; ++s) {
    epl_event* event = begin_step(w.session);
    must(epl_event_on_ready(
        event,
        [](void* userdata) {
          auto* c = static_cast<Chain*>(userdata);
          c->code = taken(epl_session_evaluate(c->session, c->w->inputs, 2, nullptr, nullptr));
          ++c->called;
        },
        &chain, [](void* userdata) { ++static_cast<Chain*>(userdata)->destroyed; }));
    int32_t fd = -1;
    must(epl_event_fd(event, &fd));
    pollfd waited{fd, POLLIN, 0};
    ASSERT_EQ(::poll(&waited, 1, 20000), 1);
    ASSERT_EQ(::poll(&waited, 1, 0), 1);  // it stays so
    EXPECT_EQ(epl_event_ready(event), 1);
    while (chain.destroyed.load() <= s) std::this_thread::yield();
    EXPECT_EQ(chain.code.load(), EPL_OK);
    EXPECT_EQ(chain.called.load(), s + 1);
    // Of a ready one, at once.
    const std::thread::id here = std::this_thread::get_id();
    std::thread::id there;
    struct Seen {
      std::thread::id* id;
    } seen{&there};
    must(epl_event_on_ready(
        event, [](void* userdata) { *static_cast<Seen*>(userdata)->id = std::this_thread::get_id(); }, &seen, nullptr));
    EXPECT_EQ(there, here);
    epl_event_destroy(event);
  }
}

// A step that cannot end before it is let: its log waits.
struct Held {
  explicit Held(const world& w) {
    epl_engine_options options = EPL_ENGINE_OPTIONS_INIT;
    options.log_level = EPL_LOG_DEBUG;
    options.log_userdata = this;
    options.log = [](void* userdata, int32_t, const char* message, size_t length) {
      auto* held = static_cast<Held*>(userdata);
      if (std::string_view(message, length).find("step") != 0) return;
      held->there = true;
      while (!held->go) std::this_thread::yield();
      held->left = true;
    };
    must(epl_engine_create(&options, &engine));
    must(epl_model_load(engine, TEXT(w.model_path), nullptr, nullptr, &model));
    must(epl_plan_create(model, w.trainer, nullptr, nullptr, nullptr, &plan));
    must(epl_session_create(plan, nullptr, nullptr, &session));
    must(epl_session_step_async(session, w.inputs, 2, nullptr, &event));
    while (!there) std::this_thread::yield();
  }
  ~Held() {
    go = true;
    while (!left) std::this_thread::yield();
    epl_event_destroy(event);
    epl_session_destroy(session);
    epl_plan_destroy(plan);
    epl_model_destroy(model);
    epl_engine_destroy(engine);
    // What was destroyed beside its work goes when that has come to its end, a moment later.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (epl_live_handles() > before && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }
  const int64_t before = epl_live_handles();
  std::atomic<bool> there{false}, go{false}, left{false};
  epl_engine* engine = nullptr;
  epl_model* model = nullptr;
  epl_plan* plan = nullptr;
  epl_session* session = nullptr;
  epl_event* event = nullptr;
};

TEST_F(AsyncApi, OtherCallsAreRefusedMeanwhileAndWaitingHasItsOwnEnd) {
  Held held(w);
  EXPECT_EQ(epl_event_ready(held.event), 0);
  EXPECT_EQ(taken(epl_session_step(held.session, w.inputs, 2, nullptr, nullptr)), EPL_ERROR_BUSY);
  epl_event* second = nullptr;
  EXPECT_EQ(taken(epl_session_step_async(held.session, w.inputs, 2, nullptr, &second)), EPL_ERROR_BUSY);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(epl_session_steps(held.session), 1);  // it is done; what is left is to say so
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.timeout_nanoseconds = 5000000;
  EXPECT_EQ(taken(epl_event_wait(held.event, &call, nullptr)), EPL_ERROR_DEADLINE_EXCEEDED);
  epl_cancel* cancel = nullptr;
  must(epl_cancel_create(held.engine, &cancel));
  call = EPL_CALL_OPTIONS_INIT;
  call.cancel = cancel;
  std::thread trigger([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    epl_cancel_trigger(cancel);
  });
  EXPECT_EQ(taken(epl_event_wait(held.event, &call, nullptr)), EPL_ERROR_CANCELLED);
  trigger.join();
  EXPECT_EQ(epl_event_ready(held.event), 0);  // the step itself goes on
  held.go = true;
  must(epl_event_wait(held.event, nullptr, nullptr));
  must(epl_session_step(held.session, w.inputs, 2, nullptr, nullptr));
  epl_cancel_destroy(cancel);
}

TEST_F(AsyncApi, AStepThatIsStoppedHasNotHappened) {
  epl_cancel* cancel = nullptr;
  must(epl_cancel_create(w.engine, &cancel));
  epl_cancel_trigger(cancel);
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.cancel = cancel;
  epl_event* event = nullptr;
  EXPECT_EQ(taken(epl_session_step_async(w.session, w.inputs, 2, &call, &event)), EPL_ERROR_CANCELLED);
  EXPECT_EQ(event, nullptr);
  epl_cancel_destroy(cancel);
  call = EPL_CALL_OPTIONS_INIT;
  call.timeout_nanoseconds = 1;
  int stopped = 0;
  for (int s = 0; s < 20; ++s) {
    const int32_t code = taken(epl_session_step_async(w.session, w.inputs, 2, &call, &event));
    stopped += (code == EPL_OK ? taken(epl_event_wait(event, nullptr, nullptr)) : code) == EPL_ERROR_DEADLINE_EXCEEDED;
    epl_event_destroy(event);
  }
  EXPECT_EQ(stopped, 20);
  EXPECT_EQ(epl_session_steps(w.session), 0);
  // An error of the step's own is the event's.
  const epl_tensor* swapped[2] = {w.inputs[1], w.inputs[0]};
  must(epl_session_step_async(w.session, swapped, 2, nullptr, &event));
  EXPECT_EQ(taken(epl_event_wait(event, nullptr, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  EXPECT_EQ(taken(epl_event_wait(event, nullptr, nullptr)), EPL_ERROR_INVALID_ARGUMENT);
  epl_event_destroy(event);
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));
}

TEST_F(AsyncApi, ThingsMayBeDestroyedInAnyOrder) {
  const int64_t alive = epl_live_handles();
  for (int order = 0; order < 4; ++order) {
    Held held(w);
    if (order == 0) {  // the session, while it works: the event still tells
      epl_session_destroy(std::exchange(held.session, nullptr));
      held.go = true;
      epl_metrics metrics = EPL_METRICS_INIT;
      must(epl_event_wait(held.event, nullptr, &metrics));
      EXPECT_EQ(metrics.step, 1);
    } else if (order == 1) {  // the event, early: the step still happens
      epl_event_destroy(std::exchange(held.event, nullptr));
      held.go = true;
      while (epl_error* error = epl_session_step(held.session, w.inputs, 2, nullptr, nullptr)) {
        EXPECT_EQ(taken(error), EPL_ERROR_BUSY);
        std::this_thread::yield();
      }
      EXPECT_EQ(epl_session_steps(held.session), 2);
    } else if (order == 2) {  // both
      epl_session_destroy(std::exchange(held.session, nullptr));
      epl_event_destroy(std::exchange(held.event, nullptr));
      held.go = true;
    } else {  // the session, by a callback on its own thread
      std::atomic<bool> gone{false};
      struct Both {
        Held* held;
        std::atomic<bool>* gone;
      } both{&held, &gone};
      must(epl_event_on_ready(
          held.event,
          [](void* userdata) {
            auto* b = static_cast<Both*>(userdata);
            epl_session_destroy(std::exchange(b->held->session, nullptr));
            *b->gone = true;
          },
          &both, nullptr));
      held.go = true;
      while (!gone) std::this_thread::yield();
    }
  }
  // A step that nobody waited for ends by itself.
  for (int i = 0; i < 2000 && epl_live_handles() != alive; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(epl_live_handles(), alive);
}

TEST_F(AsyncApi, ACallbackCannotWaitForItsOwnThread) {
  struct Next {
    const world* w = nullptr;
    std::atomic<int32_t> code{-1};
    epl_event* event = nullptr;
  } next{&w};
  epl_event* event = begin_step(w.session);
  must(epl_event_on_ready(
      event,
      [](void* userdata) {
        auto* n = static_cast<Next*>(userdata);
        must(epl_session_step_async(n->w->session, n->w->inputs, 2, nullptr, &n->event));
        n->code = taken(epl_event_wait(n->event, nullptr, nullptr));
      },
      &next, nullptr));
  while (next.code == -1) std::this_thread::yield();
  if (epl_session_steps(w.session) > 0 && next.event != nullptr) must(epl_event_wait(next.event, nullptr, nullptr));
  // It was ready when the callback was added late, and this thread ran it; else it was refused.
  EXPECT_TRUE(next.code == EPL_ERROR_MISUSE || next.code == EPL_OK);
  EXPECT_EQ(epl_session_steps(w.session), 2);
  epl_event_destroy(event);
  epl_event_destroy(next.event);
}

TEST_F(AsyncApi, AChildOfForkIsRefusedAndNothingHangs) {
  Held held(w);
  epl_predictor* predictor = nullptr;
  must(epl_predictor_create(w.session, nullptr, nullptr, &predictor));
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    epl_event* event = nullptr;
    epl_predictor* own = nullptr;
    int32_t fd = 0;
    if (taken(epl_event_wait(held.event, nullptr, nullptr)) != EPL_ERROR_MISUSE) ::_exit(1);
    if (taken(epl_event_fd(held.event, &fd)) != EPL_ERROR_MISUSE || fd != -1) ::_exit(2);
    if (taken(epl_session_step_async(held.session, w.inputs, 2, nullptr, &event)) != EPL_ERROR_MISUSE) ::_exit(3);
    if (taken(epl_predictor_refresh(predictor, nullptr)) != EPL_ERROR_MISUSE) ::_exit(4);
    if (taken(epl_predictor_create(w.session, nullptr, nullptr, &own)) != EPL_ERROR_MISUSE) ::_exit(5);
    epl_event_destroy(held.event);
    epl_session_destroy(held.session);
    epl_predictor_destroy(predictor);
    if (!EPL_SANITIZED) {  // sanitizers start no threads in a child of fork
      epl_session* session = nullptr;
      must(epl_session_create(w.plan, nullptr, nullptr, &session));
      must(epl_session_step_async(session, w.inputs, 2, nullptr, &event));
      must(epl_event_wait(event, nullptr, nullptr));
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  epl_predictor_destroy(predictor);
}

// Two threads predict and refresh while a third one trains: what they see is what one of the steps had.
TEST_F(AsyncApi, PredictorsSeeTheWeightsOfOneStep) {
  constexpr int steps = 200;
  epl_session* other = new_session();
  std::vector<std::vector<float>> expected;
  Room room(w.engine);
  for (int s = 0; s <= steps; ++s) {
    must(epl_session_predict_into(other, w.inputs, 1, nullptr, &room.tensor, 1));
    expected.push_back(room.now());
    if (s < steps) must(epl_session_step(other, w.inputs, 2, nullptr, nullptr));
  }
  epl_session_destroy(other);
  std::atomic<bool> done{false};
  std::atomic<int> looked{0};
  const auto look = [&] {
    epl_predictor* predictor = nullptr;
    must(epl_predictor_create(w.session, nullptr, nullptr, &predictor));
    Room own(w.engine);
    while (!done) {
      must(epl_predictor_predict_into(predictor, w.inputs, 1, nullptr, &own.tensor, 1));
      EXPECT_EQ(own.now(), expected[static_cast<size_t>(epl_predictor_steps(predictor))]);
      must(epl_predictor_refresh(predictor, nullptr));
      ++looked;
    }
    epl_predictor_destroy(predictor);
  };
  std::thread one(look), two(look);
  for (int s = 0; s < steps; ++s) {
    epl_event* event = begin_step(w.session);
    must(epl_event_wait(event, nullptr, nullptr));
    epl_event_destroy(event);
    while (looked * 2 < s) std::this_thread::yield();
  }
  done = true;
  one.join();
  two.join();
  EXPECT_GE(looked.load(), steps / 2 - 1);
}

TEST_F(AsyncApi, APredictorHasItsOwnShapesAndOutlivesItsSession) {
  must(epl_session_step(w.session, w.inputs, 2, nullptr, nullptr));
  Room all(w.engine);
  must(epl_session_predict_into(w.session, w.inputs, 1, nullptr, &all.tensor, 1));
  epl_trainer* trainer = nullptr;
  epl_plan* plan = nullptr;
  must(epl_trainer_create(w.engine, &trainer));
  must(epl_trainer_set(trainer, EPL_STR("loss"), EPL_STR("none")));
  must(epl_trainer_bind_symbol(trainer, EPL_STR("batch"), 3));
  must(epl_plan_create(w.model, trainer, nullptr, nullptr, nullptr, &plan));
  epl_predictor *predictor = nullptr, *own = nullptr;
  must(epl_predictor_create(w.session, plan, nullptr, &predictor));
  must(epl_predictor_create(w.session, nullptr, nullptr, &own));
  epl_plan_destroy(plan);
  epl_trainer_destroy(trainer);
  EXPECT_GT(epl_predictor_memory_bytes(predictor), 4 * (4 * 8 + 8 + 8 * 2 + 2));
  EXPECT_LT(epl_predictor_memory_bytes(own), epl_session_memory_bytes_peak(w.session, 0));
  epl_text* memory = nullptr;
  must(epl_plan_describe(w.plan, EPL_STR("memory"), nullptr, &memory));
  const std::string said = std::string("\"predictor_bytes\":") + std::to_string(epl_predictor_memory_bytes(own));
  EXPECT_NE(std::string(epl_text_data(memory, nullptr)).find(said), std::string::npos)
      << said << " " << epl_text_data(memory, nullptr);
  epl_text_destroy(memory);
  epl_session_destroy(std::exchange(w.session, nullptr));
  const int64_t dims[2] = {3, 4};
  epl_tensor *x = nullptr, *y = nullptr;
  must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, dims, 2, epl_tensor_data(w.x), 3 * 4 * sizeof(float), &x));
  const epl_tensor* inputs[1] = {x};
  must(epl_predictor_predict(predictor, inputs, 1, nullptr, &y, 1));
  EXPECT_EQ(std::memcmp(epl_tensor_data(y), all.values, 3 * 2 * sizeof(float)), 0);
  epl_tensor_destroy(y);
  // Fewer samples than its plan's, into memory of their size; other sizes are refused.
  const int64_t two[2] = {3, 2}, wrong[2] = {2, 2};
  float values[6] = {};
  must(epl_tensor_create_borrow(w.engine, EPL_DTYPE_F32, two, 2, values, sizeof values, 0, nullptr, nullptr, &y));
  must(epl_predictor_predict_into(own, inputs, 1, nullptr, &y, 1));
  EXPECT_EQ(std::memcmp(values, all.values, sizeof values), 0);
  epl_tensor_destroy(y);
  must(epl_tensor_create(w.engine, EPL_DTYPE_F32, wrong, 2, &y));
  EXPECT_EQ(taken(epl_predictor_predict_into(own, inputs, 1, nullptr, &y, 1)), EPL_ERROR_INVALID_ARGUMENT);
  epl_tensor_destroy(y);
  must(epl_tensor_create_borrow(w.engine, EPL_DTYPE_F32, two, 2, values, sizeof values, EPL_TENSOR_READ_ONLY, nullptr,
                                nullptr, &y));
  EXPECT_EQ(taken(epl_predictor_predict_into(own, inputs, 1, nullptr, &y, 1)), EPL_ERROR_INVALID_ARGUMENT);
  epl_tensor_destroy(y);
  epl_tensor_destroy(x);
  EXPECT_EQ(taken(epl_predictor_refresh(predictor, nullptr)), EPL_ERROR_MISUSE);
  epl_predictor_destroy(predictor);
  epl_predictor_destroy(own);
}

}  // namespace
