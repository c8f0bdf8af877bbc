// Jobs: the loop around steps gives what the same calls by hand give, whatever ends it in between.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

struct Event {
  int32_t kind = 0, ended = 0;
  int64_t step = 0, best_step = 0, samples = 0;
  double loss = 0, held_out_loss = 0;
  bool best = false;
  std::string text;
};

class Jobs : public testing::Test {
 protected:
  void SetUp() override {
    ::world_make(&w, folder.c_str(), 1, 8);
    fresh();
  }
  void TearDown() override {
    epl_job_destroy(job);
    epl_dataset_destroy(data);
    epl_dataset_destroy(held_out);
    epl_session_destroy(session);
    failures = 0;
    ::world_end(&w);
    EXPECT_EQ(failures, 0);
  }
  epl_dataset* open(const std::string& options) {
    epl_dataset* made = nullptr;
    must(epl_dataset_open(w.engine, TEXT(w.csv_path), options.data(), options.size(), nullptr, &made));
    return made;
  }
  // A session that has made no step, and data from its start.
  void fresh() {
    epl_job_destroy(job);
    epl_dataset_destroy(data);
    epl_dataset_destroy(held_out);
    epl_session_destroy(session);
    job = nullptr;
    must(epl_session_create(w.plan, nullptr, nullptr, &session));
    data = open(R"({"batch": 8, "classes": true, "order": "shuffled", "seed": 5, "split": "train"})");
    held_out = open(R"({"batch": 8, "classes": true, "split": "held_out", "partial": true})");
  }
  epl_error* begin(const std::string& settings) {
    epl_job_destroy(job);
    job = nullptr;
    must(epl_job_create(w.engine, settings.data(), settings.size(), &job));
    return epl_job_start(job, session, data, held_out, nullptr);
  }
  epl_error* next(Event& out, const epl_call_options* call = nullptr) {
    epl_job_event e = EPL_JOB_EVENT_INIT;
    epl_error* error = epl_job_next(job, call, &e);
    out = {e.kind,          e.ended,     e.step,
           e.best_step,     e.samples,   e.loss,
           e.held_out_loss, e.best != 0, e.text ? std::string(e.text, e.text_length) : ""};
    return error;
  }
  // All events until the job is done.
  std::vector<Event> run(const std::string& settings) {
    must(begin(settings));
    return rest();
  }
  std::vector<Event> rest() {
    std::vector<Event> all;
    do must(next(all.emplace_back()));
    while (all.back().kind != EPL_JOB_DONE);
    return all;
  }
  uint64_t hash() {
    uint64_t out = 0;
    must(epl_session_hash(session, nullptr, &out));
    return out;
  }
  // So many steps by hand.
  uint64_t by_hand(int64_t steps) {
    fresh();
    must(epl_dataset_bind(data, w.plan, EPL_ENTRY_TRAIN));
    const epl_tensor* batch[2];
    for (int64_t i = 0; i < steps; ++i) {
      must(epl_dataset_next(data, nullptr, batch, 2));
      must(epl_session_step(session, batch, 2, nullptr, nullptr));
    }
    return hash();
  }
  std::string message(epl_error* error) {
    const std::string out = epl_error_message(error, nullptr);
    epl_error_destroy(error);
    return out;
  }
  std::string in_folder(const std::string& more) const { return "{\"folder\": \"" + out + "\"" + more + "}"; }

  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path(), out = folder + "/run";
  world w;
  epl_session* session = nullptr;
  epl_dataset *data = nullptr, *held_out = nullptr;
  epl_job* job = nullptr;
};

std::vector<int64_t> steps_of(const std::vector<Event>& all, int32_t kind) {
  std::vector<int64_t> steps;
  for (const Event& e : all) {
    if (e.kind == kind) steps.push_back(e.step);
  }
  return steps;
}

using Steps = std::vector<int64_t>;

TEST_F(Jobs, AJobIsTheLoopByHand) {
  const uint64_t wanted = by_hand(10);
  fresh();
  const auto all =
      run(in_folder(R"(, "steps": 10, "evaluate_every": 4, "checkpoint_every": 5, "metrics": "accuracy")"));
  EXPECT_EQ(hash(), wanted);
  EXPECT_EQ(steps_of(all, EPL_JOB_STEP), (Steps{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(steps_of(all, EPL_JOB_MEASURED), (Steps{4, 8, 10}));
  EXPECT_EQ(all.back().ended, EPL_JOB_ENDED_STEPS);
  EXPECT_EQ(epl_dataset_position(data), 10);
  // What was measured is what an evaluation by hand says.
  epl_evaluation* evaluation = nullptr;
  double loss = 0;
  must(epl_evaluation_create(w.plan, EPL_STR("accuracy"), &evaluation));
  must(epl_evaluation_add_dataset(evaluation, session, held_out, 0, nullptr));
  must(epl_evaluation_result(evaluation, EPL_STR("loss"), &loss));
  EXPECT_EQ(all.back().held_out_loss, loss);
  EXPECT_EQ(epl_evaluation_samples(evaluation), epl_dataset_samples(held_out));
  for (const Event& e : all) {
    if (e.kind == EPL_JOB_MEASURED) {
      EXPECT_EQ(e.samples, epl_dataset_samples(held_out));
      EXPECT_NE(e.text.find("\"accuracy\":"), std::string::npos) << e.text;
    }
  }
  epl_evaluation_destroy(evaluation);
  EXPECT_TRUE(fs::exists(out + "/checkpoint/manifest.epl"));
  EXPECT_TRUE(fs::exists(out + "/history.jsonl"));
}

// A job that is cancelled at each of its calls in turn, and asked again, does what one that is not does.
TEST_F(Jobs, ACancelledCallIsMadeAgain) {
  const std::string settings =
      in_folder(R"(, "steps": 7, "evaluate_every": 2, "checkpoint_every": 3, "overwrite": true)");
  const auto wanted = run(settings);
  const uint64_t bits = hash();
  fresh();
  must(begin(settings));
  std::vector<Event> all;
  do {
    epl_cancel* token = nullptr;
    must(epl_cancel_create(w.engine, &token));
    epl_call_options call = EPL_CALL_OPTIONS_INIT;
    call.cancel = token;
    epl_cancel_trigger(token);
    Event ignored;
    const int64_t steps = epl_session_steps(session), position = epl_dataset_position(data);
    EXPECT_EQ(taken(next(ignored, &call)), EPL_ERROR_CANCELLED);
    EXPECT_EQ(epl_session_steps(session), steps);
    EXPECT_EQ(epl_dataset_position(data), position);
    epl_cancel_destroy(token);
    // The deadline passes within the call, wherever that is.
    call = EPL_CALL_OPTIONS_INIT;
    call.timeout_nanoseconds = 1;
    epl_error* late = next(all.emplace_back(), &call);
    if (late != nullptr) must(next(all.back()));
    epl_error_destroy(late);
  } while (all.back().kind != EPL_JOB_DONE);
  EXPECT_EQ(hash(), bits);
  ASSERT_EQ(all.size(), wanted.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].kind, wanted[i].kind);
    EXPECT_EQ(all[i].step, wanted[i].step);
    if (all[i].kind == EPL_JOB_STEP) {
      EXPECT_EQ(all[i].loss, wanted[i].loss);
    }
  }
}

TEST_F(Jobs, AJobThatIsEndedGoesOnToTheBit) {
  const std::string rest_of = R"(, "steps": 12, "evaluate_every": 3, "patience": 50)";
  run("{\"steps\": 12, \"evaluate_every\": 3, \"patience\": 50}");
  const uint64_t wanted = hash();
  for (const int32_t how : {EPL_JOB_ENDED_STOPPED, EPL_JOB_ENDED_CANCELLED, EPL_JOB_ENDED_FAILED}) {
    for (int64_t at = 1; at < 9; ++at) {
      fs::remove_all(out);
      fresh();
      must(begin(in_folder(rest_of)));
      Event e;
      do must(next(e));
      while (e.step < at);
      must(epl_job_end(job, how, EPL_STR("by hand")));
      const auto end = rest();
      EXPECT_EQ(end.back().ended, how);
      EXPECT_EQ(end.back().text, "by hand");
      EXPECT_EQ(epl_session_steps(session), at);
      EXPECT_EQ(steps_of(end, EPL_JOB_MEASURED).empty(), how != EPL_JOB_ENDED_STOPPED);
      fresh();
      const auto more = run(in_folder(rest_of + R"(, "resume": "auto")"));
      EXPECT_EQ(hash(), wanted) << "ended at " << at;
      EXPECT_EQ(more.front().step, at + 1);
      EXPECT_EQ(more.back().ended, EPL_JOB_ENDED_STEPS);
    }
  }
}

TEST_F(Jobs, PatienceEndsIt) {
  must(epl_session_set_number(session, EPL_STR("learning_rate"), 0));  // so that nothing gets better
  const auto all = run(in_folder(R"(, "steps": 100, "evaluate_every": 2, "patience": 3)"));
  EXPECT_EQ(all.back().ended, EPL_JOB_ENDED_PATIENCE);
  EXPECT_EQ(all.back().text, "no better loss in 3 measurements");
  EXPECT_EQ(epl_session_steps(session), 8);
  EXPECT_EQ(all.back().best_step, 2);
}

TEST_F(Jobs, TheBestWeightsAreKeptAndRestored) {
  must(epl_session_set_number(session, EPL_STR("learning_rate"), 2));  // so that it gets worse at some time
  const auto all = run(in_folder(R"(, "steps": 40, "evaluate_every": 1, "keep": 1, "restore_best": true)"));
  double best = INFINITY;
  int64_t best_step = 0;
  for (const Event& e : all) {
    if (e.kind == EPL_JOB_MEASURED && e.held_out_loss < best) {
      best = e.held_out_loss;
      best_step = e.step;
      EXPECT_TRUE(e.best);
    }
  }
  ASSERT_LT(best_step, 40) << "nothing to restore";
  EXPECT_EQ(all.back().best_step, best_step);
  EXPECT_EQ(epl_session_steps(session), best_step);
  const uint64_t restored = hash();
  EXPECT_EQ(fs::canonical(out + "/best").filename(),
            fs::path("step-000000" + std::string(best_step < 10 ? "0" : "") + std::to_string(best_step)));
  fresh();
  const std::string path = out + "/best";
  must(epl_session_load(session, path.data(), path.size(), nullptr, nullptr));
  EXPECT_EQ(hash(), restored);
}

// Whoever ends it right after a measurement: what was found to be the best is kept.
TEST_F(Jobs, AJobThatIsEndedAfterAMeasurementKeepsTheBest) {
  for (const int32_t how : {EPL_JOB_ENDED_STOPPED, EPL_JOB_ENDED_CANCELLED, EPL_JOB_ENDED_FAILED}) {
    fs::remove_all(out);
    fresh();
    must(begin(in_folder(R"(, "steps": 12, "evaluate_every": 2)")));
    Event e;
    do must(next(e));
    while (e.kind != EPL_JOB_MEASURED);
    ASSERT_TRUE(e.best);
    must(epl_job_end(job, how, nullptr, 0));
    rest();
    EXPECT_EQ(fs::canonical(out + "/best").filename(), "step-00000002");
  }
}

// The weights that were the best could not be written: older ones do not pass for them, now or in the run that goes on.
TEST_F(Jobs, TheBestWeightsThatWereNotSavedAreNotRestored) {
  const std::string settings = R"(, "steps": 40, "evaluate_every": 1, "keep": 1, "restore_best": true)";
  must(epl_session_set_number(session, EPL_STR("learning_rate"), 2));
  const auto first = run(in_folder(settings));
  const int64_t best_step = first.back().best_step;
  ASSERT_GT(best_step, 1);
  ASSERT_LT(best_step, 40);
  fs::remove_all(out);
  fresh();
  must(epl_session_set_number(session, EPL_STR("learning_rate"), 2));
  must(begin(in_folder(settings)));
  std::ofstream(out + "/checkpoints/step-" + std::string(best_step < 10 ? "0000000" : "000000") +
                std::to_string(best_step))
      << "in the way";
  const std::string words = "the best weights, those after step " + std::to_string(best_step) + ", could not be saved";
  for (const bool resumed : {false, true}) {
    if (resumed) {
      fresh();
      must(begin(in_folder(settings + R"(, "resume": "auto")")));
    }
    const auto all = rest();
    ASSERT_EQ(all[all.size() - 2].kind, EPL_JOB_WARNING);
    EXPECT_NE(all[all.size() - 2].text.find(words), std::string::npos) << all[all.size() - 2].text;
    EXPECT_EQ(epl_session_steps(session), 40);
    epl_text* text = nullptr;
    must(epl_job_describe(job, &text));
    EXPECT_NE(std::string(epl_text_data(text, nullptr)).find(R"("best_checkpoint": null)"), std::string::npos);
    epl_text_destroy(text);
  }
}

// What was best before counts on; numbers of other data do not.
TEST_F(Jobs, WhatWasMeasuredIsRemembered) {
  run(in_folder(R"(, "steps": 6, "evaluate_every": 2)"));
  fresh();
  must(begin(in_folder(R"(, "steps": 8, "evaluate_every": 2, "resume": "auto", "monitor": "accuracy")")));
  Event e;
  must(next(e));
  EXPECT_EQ(e.kind, EPL_JOB_WARNING);
  EXPECT_EQ(e.text, "monitor was loss, now it is accuracy");
  rest();
  fresh();
  epl_dataset_destroy(held_out);
  held_out = open(R"({"batch": 8, "classes": true})");
  must(begin(in_folder(R"(, "steps": 10, "evaluate_every": 2, "resume": "auto", "monitor": "accuracy")")));
  must(next(e));
  EXPECT_EQ(e.kind, EPL_JOB_WARNING);
  EXPECT_NE(e.text.find("this run was measured on other data until now: samples was "), std::string::npos) << e.text;
  EXPECT_EQ(e.best_step, -1);
  rest();
  epl_text* text = nullptr;
  must(epl_job_describe(job, &text));
  const std::string described = epl_text_data(text, nullptr);
  epl_text_destroy(text);
  for (const char* words : {"\"history\"", "\"event\": \"evaluation\"", "\"resumed_from\": \"", "\"ended\": \"steps\"",
                            "\"monitor\": \"accuracy\"", "\"earlier_seconds\""})
    EXPECT_NE(described.find(words), std::string::npos) << words << " in " << described;
}

// Scores are so far apart that gradients are past float16 at the first loss scale. A batch whose step overflows comes
// again, and the step that is made says how often that was.
TEST_F(Jobs, StepsThatOverflowAreInTheHistory) {
  epl_strategy* narrow = nullptr;
  epl_plan* plan = nullptr;
  epl_tensor* weight = nullptr;
  must(epl_strategy_parse(w.engine, EPL_STR(R"({"amp.level": "O1", "amp.type": "f16"})"), &narrow));
  must(epl_plan_create(w.model, w.trainer, narrow, nullptr, nullptr, &plan));
  epl_session_destroy(session);
  must(epl_session_create(plan, nullptr, nullptr, &session));
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = i < 8 ? 8 : -8;
  const int64_t dims[2] = {2, 8};
  must(epl_tensor_create_copy(w.engine, EPL_DTYPE_F32, dims, 2, values, sizeof values, &weight));
  must(epl_session_set(session, EPL_STR("net.2.weight"), weight, nullptr));
  EXPECT_EQ(steps_of(run(R"({"steps": 3})"), EPL_JOB_STEP), (Steps{1, 2, 3}));
  double skipped = 0, scale = 0;
  must(epl_session_get_number(session, EPL_STR("skipped_steps"), &skipped));
  must(epl_session_get_number(session, EPL_STR("loss_scale"), &scale));
  EXPECT_GE(skipped, 1);
  EXPECT_EQ(scale, std::ldexp(65536, -static_cast<int>(skipped)));
  epl_text* text = nullptr;
  must(epl_job_describe(job, &text));
  const std::string described = epl_text_data(text, nullptr);
  epl_text_destroy(text);
  const std::string last = "\"skipped_steps\": " + std::to_string(static_cast<int64_t>(skipped));
  for (const std::string& words : {last, std::string("\"loss_scale\": ")})
    EXPECT_NE(described.find(words), std::string::npos) << words << " in " << described;
  epl_job_destroy(job);
  epl_session_destroy(session);
  job = nullptr;
  session = nullptr;
  epl_tensor_destroy(weight);
  epl_plan_destroy(plan);
  epl_strategy_destroy(narrow);
}

TEST_F(Jobs, AFolderHasOneJob) {
  must(begin(in_folder(R"(, "steps": 4)")));
  epl_job* second = nullptr;
  const std::string settings = in_folder(R"(, "steps": 4)");
  must(epl_job_create(w.engine, settings.data(), settings.size(), &second));
  EXPECT_EQ(taken(epl_job_take_folder(second)), EPL_ERROR_BUSY);
  rest();
  epl_job_destroy(job);
  job = nullptr;
  EXPECT_EQ(taken(epl_job_take_folder(second)), EPL_ERROR_INVALID_ARGUMENT) << "an earlier run is replaced unasked";
  must(epl_job_set(second, EPL_STR("overwrite"), EPL_STR("true")));
  must(epl_job_take_folder(second));
  EXPECT_TRUE(fs::exists(out + "/checkpoint/manifest.epl")) << "it is gone before there is another one";
  epl_job_destroy(second);
  fresh();
  run(in_folder(R"(, "steps": 2, "evaluate_every": 9, "overwrite": true)"));
  EXPECT_EQ(std::distance(fs::directory_iterator(out + "/checkpoints"), {}), 1);
}

TEST_F(Jobs, WhatWouldFailLaterIsRefusedAtTheStart) {
  const auto refused = [&](const std::string& settings, const std::string& words, bool measured = true) {
    fresh();
    if (!measured) {
      epl_dataset_destroy(held_out);
      held_out = nullptr;
    }
    const std::string said = message(begin(settings));
    EXPECT_NE(said.find(words), std::string::npos) << settings << ": " << said;
    EXPECT_EQ(epl_session_steps(session), 0);
  };
  refused("{}", "give steps or epochs");
  refused(R"({"steps": 2, "patience": 3})", "patience needs data that is not trained on", false);
  refused(R"({"steps": 2, "restore_best": true})", "restore_best needs a folder");
  refused(R"({"steps": 2, "metrics": "acuracy"})", "did you mean accuracy?");
  refused(R"({"steps": 2, "monitor": "f1"})", "f1");
  refused(R"({"steps": 2, "resume": "auto"})", "no folder");
  refused(R"({"steps": 2, "resume": "nowhere"})", "nowhere");
  refused(R"({"steps": 2, "measured_on": [1]})", "measured_on is not an object");
  run(in_folder(R"(, "steps": 2)"));
  fresh();
  epl_dataset_destroy(data);
  data = open(R"({"batch": 8, "classes": true, "order": "shuffled", "seed": 6, "split": "train"})");
  EXPECT_EQ(message(begin(in_folder(R"(, "steps": 4, "resume": "auto")"))),
            "this would not go on with the run of " + out +
                "/checkpoint: data.seed was 5, now it is 6. Give what it began with, or resume_anyway = order");
  must(begin(in_folder(R"(, "steps": 4, "resume": "auto", "resume_anyway": "order")")));
}

// The disk may be full for a while: that is told, and does not end the job.
TEST_F(Jobs, ACheckpointThatCannotBeWrittenIsAWarning) {
  must(begin(in_folder(R"(, "steps": 4, "evaluate_every": 9, "checkpoint_every": 2)")));
  std::ofstream(out + "/checkpoints/step-00000002") << "in the way";
  const auto all = rest();
  ASSERT_EQ(steps_of(all, EPL_JOB_WARNING), (Steps{2}));
  EXPECT_EQ(steps_of(all, EPL_JOB_SAVED), (Steps{4}));
}

// The last one must be written: its error is the call's, the session keeps its weights, and the call may be made again.
TEST_F(Jobs, ALastCheckpointThatFailsIsTriedAgain) {
  const uint64_t wanted = by_hand(4);
  fresh();
  must(begin(in_folder(R"(, "steps": 4, "evaluate_every": 9)")));
  const std::string in_the_way = out + "/checkpoints/step-00000004";
  std::ofstream(in_the_way) << "in the way";
  Event e;
  epl_error* failure = nullptr;
  while ((failure = next(e)) == nullptr) ASSERT_NE(e.kind, EPL_JOB_DONE);
  EXPECT_NE(message(failure).find("step-00000004"), std::string::npos);
  must(epl_job_end(job, EPL_JOB_ENDED_FAILED, EPL_STR("the disk")));
  EXPECT_NE(message(next(e)).find("step-00000004"), std::string::npos);
  EXPECT_EQ(hash(), wanted);
  fs::remove(in_the_way);
  EXPECT_EQ(rest().back().ended, EPL_JOB_ENDED_STEPS);
  EXPECT_TRUE(fs::exists(out + "/checkpoint/manifest.epl"));
}

TEST_F(Jobs, AClockSavesInOneProcess) {
  const auto all = run(in_folder(R"(, "steps": 3, "evaluate_every": 9, "checkpoint_seconds": 1e-9)"));
  EXPECT_EQ(steps_of(all, EPL_JOB_SAVED).front(), 1);
  fresh();
  const auto none = run(in_folder(R"(, "steps": 3, "evaluate_every": 9, "checkpoint_seconds": 0, "overwrite": true)"));
  EXPECT_EQ(steps_of(none, EPL_JOB_SAVED).front(), 3);
}

// Batches that a host pushes: nobody knows how many, and one that a step could not take is not lost.
TEST_F(Jobs, AFeedEndsItsJob) {
  epl_tensor_info fields[2] = {EPL_TENSOR_INFO_INIT, EPL_TENSOR_INFO_INIT};
  for (int64_t i = 0; i < 2; ++i) must(epl_plan_port(w.plan, EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i, &fields[i]));
  epl_feed* feed = nullptr;
  must(epl_feed_create(w.engine, fields, 2, 4, &feed));
  epl_dataset_destroy(data);
  must(epl_dataset_of_feed(feed, &data));
  must(begin("{}"));
  for (int i = 0; i < 3; ++i) must(epl_feed_push(feed, w.inputs, 2, nullptr));
  must(epl_feed_finish(feed));
  epl_call_options call = EPL_CALL_OPTIONS_INIT;
  call.timeout_nanoseconds = 1;
  Event e;
  for (int i = 0; i < 3; ++i) {
    epl_error* late = next(e, &call);
    if (late != nullptr) must(next(e));
    epl_error_destroy(late);
    EXPECT_EQ(e.kind, EPL_JOB_STEP);
    EXPECT_EQ(e.step, i + 1);
  }
  EXPECT_EQ(rest().back().ended, EPL_JOB_ENDED_DATA);
  EXPECT_EQ(epl_session_steps(session), 3);
  epl_feed_destroy(feed);
}

// Between two events the host has the session, and its handles may go in any order.
TEST_F(Jobs, WhatAJobWorksWithIsTheHosts) {
  must(begin(R"({"steps": 5})"));
  Event e;
  must(next(e));
  must(epl_session_evaluate(session, w.inputs, 2, nullptr, nullptr));
  must(next(e));
  epl_dataset_destroy(held_out);
  held_out = nullptr;
  EXPECT_EQ(message(next(e)), "the dataset of this job was destroyed");
  epl_session_destroy(session);
  session = nullptr;
  EXPECT_EQ(message(next(e)), "the session of this job was destroyed");
}

}  // namespace
