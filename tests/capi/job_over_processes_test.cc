// A job over two processes: both do the same whichever of them is told to end, is cancelled or cannot go on, and what
// was trained is in the folder. Two threads with an engine and a session each stand for the processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace {

namespace fs = std::filesystem;

struct Told {
  int32_t kind = 0, ended = 0;
  int64_t step = 0, best_step = 0;
  double loss = 0, held_out_loss = 0;
  std::string text;
};

std::string message_of(epl_error* error) {
  const std::string out = error == nullptr ? "" : epl_error_message(error, nullptr);
  epl_error_destroy(error);
  return out;
}

// One process of two.
class JobSide {
 public:
  JobSide(const std::string& folder, const std::string& meet, int rank, const char* layout) {
    world_make(&w_, (folder + "/" + std::to_string(rank)).c_str(), 1, 8);
    epl_strategy* strategy = nullptr;
    must(epl_strategy_parse(w_.engine, TEXT(layout), &strategy));
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
    must(epl_session_create(plan_, &options, nullptr, &session_));
    data_ = open(R"({"batch": 8, "classes": true, "order": "shuffled", "seed": 5, "split": "train"})");
    held_out_ = open(R"({"batch": 8, "classes": true, "split": "held_out", "partial": true})");
    must(epl_cancel_create(w_.engine, &triggered_));
    epl_cancel_trigger(triggered_);
  }
  JobSide(const JobSide&) = delete;
  ~JobSide() {
    epl_job_destroy(job_);
    epl_cancel_destroy(triggered_);
    epl_dataset_destroy(data_);
    epl_dataset_destroy(held_out_);
    epl_session_destroy(session_);
    epl_plan_destroy(plan_);
    world_destroy(&w_);
  }
  // A job that waits for a process that does not come is found out.
  epl_call_options call(epl_cancel* cancel = nullptr) const {
    epl_call_options options = EPL_CALL_OPTIONS_INIT;
    options.timeout_nanoseconds = 60'000'000'000;
    options.cancel = cancel;
    return options;
  }
  std::string begin(const std::string& settings, bool measures = true) {
    must(epl_job_create(w_.engine, settings.data(), settings.size(), &job_));
    const epl_call_options options = call();
    return message_of(epl_job_start(job_, session_, data_, measures ? held_out_ : nullptr, &options));
  }
  int32_t next(Told& out, epl_cancel* cancel = nullptr) {
    epl_job_event e = EPL_JOB_EVENT_INIT;
    const epl_call_options options = call(cancel);
    epl_error* error = epl_job_next(job_, &options, &e);
    out = {e.kind,
           e.ended,
           e.step,
           e.best_step,
           e.loss,
           e.held_out_loss,
           std::string(e.text ? e.text : "", e.text_length)};
    if (error != nullptr) out.text = epl_error_message(error, nullptr);
    return taken(error);
  }
  // What a host does: whatever fails ends the job, and what is left is done.
  std::vector<Told> rest(const std::function<epl_cancel*(const Told&)>& token = nullptr) {
    std::vector<Told> all(1);
    for (bool failed = false; all.back().kind != EPL_JOB_DONE; all.emplace_back()) {
      epl_cancel* const cancel = token && !failed && all.size() > 1 ? token(all[all.size() - 2]) : nullptr;
      const int32_t code = next(all.back(), cancel);
      if (code == EPL_OK && all.back().kind == EPL_JOB_DONE) break;
      if (code == EPL_OK) continue;
      if (failed) break;
      failed = true;
      must(epl_job_end(job_, code == EPL_ERROR_CANCELLED ? EPL_JOB_ENDED_CANCELLED : EPL_JOB_ENDED_FAILED,
                       TEXT(all.back().text.c_str())));
    }
    return all;
  }
  void end(int32_t how, const char* reason) { must(epl_job_end(job_, how, TEXT(reason))); }
  uint64_t hash() {
    uint64_t out = 0;
    must(epl_session_hash(session_, nullptr, &out));
    return out;
  }
  int64_t steps() const { return epl_session_steps(session_); }
  void learning_rate(double rate) { must(epl_session_set_number(session_, EPL_STR("learning_rate"), rate)); }
  epl_cancel* triggered() const { return triggered_; }

 private:
  epl_dataset* open(const char* options) {
    epl_dataset* made = nullptr;
    must(epl_dataset_open(w_.engine, TEXT(w_.csv_path), TEXT(options), nullptr, &made));
    return made;
  }
  world w_;
  epl_plan* plan_ = nullptr;
  epl_session* session_ = nullptr;
  epl_dataset *data_ = nullptr, *held_out_ = nullptr;
  epl_job* job_ = nullptr;
  epl_cancel* triggered_ = nullptr;
};

struct JobLayout {
  const char *name, *strategy;
};

class JobsOverProcesses : public testing::TestWithParam<JobLayout> {
 protected:
  void SetUp() override { fresh(); }
  template <class F> static void both(const F& f) {
    std::thread other([&] { f(1); });
    f(0);
    other.join();
  }
  // Both begin anew.
  void fresh() {
    both([&](int rank) { sides[rank].reset(); });
    const std::string meet = "file://" + temporary.path() + "/meet" + std::to_string(jobs++);
    both([&](int rank) { sides[rank] = std::make_unique<JobSide>(temporary.path(), meet, rank, GetParam().strategy); });
  }
  void begin(const std::string& settings) {
    std::string said[2];
    both([&](int rank) { said[rank] = sides[rank]->begin(settings); });
    ASSERT_EQ(said[0], "");
    ASSERT_EQ(said[1], "");
  }
  // Both to their end; they end alike.
  void run(const std::string& settings) {
    begin(settings);
    both([&](int rank) { told[rank] = sides[rank]->rest(); });
    expect_alike();
  }
  void expect_alike() {
    const Told &one = told[0].back(), &two = told[1].back();
    EXPECT_EQ(one.kind, EPL_JOB_DONE) << one.text;
    EXPECT_EQ(two.kind, EPL_JOB_DONE) << two.text;
    EXPECT_EQ(one.ended, two.ended);
    EXPECT_EQ(one.step, two.step);
    EXPECT_EQ(one.best_step, two.best_step);
    EXPECT_EQ(sides[0]->steps(), sides[1]->steps());
  }
  uint64_t hash() {
    uint64_t hashes[2];
    both([&](int rank) { hashes[rank] = sides[rank]->hash(); });
    EXPECT_EQ(hashes[0], hashes[1]);
    return hashes[0];
  }
  // The job, ended as it was, goes on to what one that was not ended has.
  void expect_goes_on(const std::string& settings, uint64_t wanted) {
    fresh();
    run(in_folder(settings + R"(, "resume": "auto")"));
    EXPECT_EQ(told[0].back().ended, EPL_JOB_ENDED_STEPS);
    EXPECT_EQ(hash(), wanted);
  }
  std::string in_folder(const std::string& more) const { return "{\"folder\": \"" + out + "\"" + more + "}"; }

  const epl::TemporaryFolder temporary;
  const std::string out = temporary.path() + "/run";
  int jobs = 0;
  std::unique_ptr<JobSide> sides[2];
  std::vector<Told> told[2];
};

constexpr const char* all_of_it = R"(, "steps": 9, "evaluate_every": 2, "checkpoint_every": 3, "metrics": "accuracy")";

TEST_P(JobsOverProcesses, BothAreToldTheSame) {
  EPL_ONE_OF_THREE();
  run(in_folder(all_of_it));
  ASSERT_EQ(told[0].size(), told[1].size());
  for (size_t i = 0; i < told[0].size(); ++i) {
    const Told &one = told[0][i], &two = told[1][i];
    EXPECT_EQ(one.kind, two.kind);
    EXPECT_EQ(one.step, two.step);
    EXPECT_EQ(one.text, two.text);
    EXPECT_EQ(one.loss, two.loss);
    if (one.kind == EPL_JOB_MEASURED) {
      EXPECT_EQ(one.held_out_loss, two.held_out_loss);
    }
  }
  EXPECT_EQ(told[0].back().ended, EPL_JOB_ENDED_STEPS);
  EXPECT_TRUE(fs::exists(out + "/best/manifest.epl"));
}

TEST_P(JobsOverProcesses, PatienceEndsBoth) {
  EPL_ONE_OF_THREE();
  both([&](int rank) { sides[rank]->learning_rate(0); });  // so that nothing gets better
  run(in_folder(R"(, "steps": 100, "evaluate_every": 2, "patience": 3, "restore_best": true)"));
  for (const auto& of_one : told) {
    EXPECT_EQ(of_one.back().ended, EPL_JOB_ENDED_PATIENCE);
    EXPECT_EQ(of_one.back().text, "no better loss in 3 measurements");
    EXPECT_EQ(of_one.back().step, 8);
    EXPECT_EQ(of_one.back().best_step, 2);
  }
  EXPECT_EQ(sides[0]->steps(), 2) << "the best weights are restored";
}

// One host ends its job, the other knows nothing of that.
TEST_P(JobsOverProcesses, OneEndsAndBothEnd) {
  EPL_ONE_OF_THREE();
  run(in_folder(all_of_it));
  const uint64_t wanted = hash();
  for (const int32_t how : {EPL_JOB_ENDED_STOPPED, EPL_JOB_ENDED_CANCELLED, EPL_JOB_ENDED_FAILED}) {
    for (const int ending : {0, 1}) {
      for (const size_t after : {1u, 3u, 6u}) {
        SCOPED_TRACE("how " + std::to_string(how) + ", process " + std::to_string(ending) + ", event " +
                     std::to_string(after));
        fs::remove_all(out);
        fresh();
        begin(in_folder(all_of_it));
        both([&](int rank) {
          Told event;
          for (size_t i = 0; i < after; ++i) ASSERT_EQ(sides[rank]->next(event), EPL_OK) << event.text;
          if (rank == ending) sides[rank]->end(how, "the host of one has enough");
          told[rank] = sides[rank]->rest();
        });
        expect_alike();
        EXPECT_EQ(told[1 - ending].back().ended, how);
        EXPECT_EQ(told[1 - ending].back().text, "the host of one has enough");
        expect_goes_on(all_of_it, wanted);
      }
    }
  }
}

// One is cancelled in each phase in turn. Whether its host ends the job or calls again, nothing is lost.
TEST_P(JobsOverProcesses, OneIsCancelledInEachPhase) {
  EPL_ONE_OF_THREE();
  run(in_folder(all_of_it));
  const uint64_t wanted = hash();
  const size_t events = told[0].size();
  for (size_t at = 1; at + 1 < events; at += 2) {
    for (const int cancelled : {0, 1}) {
      SCOPED_TRACE("event " + std::to_string(at) + ", process " + std::to_string(cancelled));
      fs::remove_all(out);
      fresh();
      begin(in_folder(all_of_it));
      both([&](int rank) {
        size_t seen = 0;
        told[rank] = sides[rank]->rest(
            [&](const Told&) { return ++seen == at && rank == cancelled ? sides[rank]->triggered() : nullptr; });
      });
      expect_alike();
      expect_goes_on(all_of_it, wanted);
    }
  }
}

TEST_P(JobsOverProcesses, WhoIsCancelledMayCallAgain) {
  EPL_ONE_OF_THREE();
  run(in_folder(all_of_it));
  const uint64_t wanted = hash();
  for (const int cancelled : {0, 1}) {
    fs::remove_all(out);
    fresh();
    begin(in_folder(all_of_it));
    both([&](int rank) {
      Told event;
      for (int calls = 0; event.kind != EPL_JOB_DONE && calls < 200; ++calls) {
        if (rank == cancelled && sides[rank]->next(event, sides[rank]->triggered()) == EPL_OK) break;  // the end
        static_cast<void>(sides[rank]->next(event));  // the other is told that a process has failed, and calls again
      }
      told[rank] = {event};
    });
    expect_alike();
    EXPECT_EQ(told[0].back().ended, EPL_JOB_ENDED_STEPS);
    EXPECT_EQ(hash(), wanted);
  }
}

// A file stands where a checkpoint is to be: both say so, and both go on.
TEST_P(JobsOverProcesses, ACheckpointThatFailsIsAWarningInBoth) {
  EPL_ONE_OF_THREE();
  begin(in_folder(R"(, "steps": 6, "evaluate_every": 100, "checkpoint_every": 3)"));
  std::ofstream(out + "/checkpoints/step-00000003") << "in the way";
  both([&](int rank) { told[rank] = sides[rank]->rest(); });
  expect_alike();
  for (const auto& of_one : told) {
    EXPECT_EQ(of_one.back().ended, EPL_JOB_ENDED_STEPS);
    EXPECT_EQ(std::ranges::count(of_one, EPL_JOB_WARNING, &Told::kind), 1);
  }
  EXPECT_TRUE(fs::exists(out + "/checkpoint/manifest.epl"));
}

TEST_P(JobsOverProcesses, JobsThatDifferAreRefusedInBoth) {
  EPL_ONE_OF_THREE();
  const auto refused = [&](const std::string& other, const std::string& words, bool measures = true) {
    fresh();
    std::string said[2];
    both([&](int rank) {
      said[rank] =
          sides[rank]->begin(rank == 0 ? R"({"steps": 4, "evaluate_every": 2})" : other, rank == 0 || measures);
    });
    EXPECT_NE(said[0].find(words), std::string::npos) << said[0];
    EXPECT_NE(said[1].find(words), std::string::npos) << said[1];
  };
  refused(R"({"steps": 5, "evaluate_every": 2})", "steps is 4 in process 0 and 5 in process 1");
  refused(R"({"steps": 4, "evaluate_every": 3})", "evaluate_every is 2 in process 0 and 3 in process 1");
  refused(R"({"steps": 4, "evaluate_every": 2, "patience": 2})", "patience is 0 in process 0 and 2 in process 1");
  refused(R"({"steps": 4})", "held-out data is ", false);
}

INSTANTIATE_TEST_SUITE_P(Layouts, JobsOverProcesses,
                         testing::Values(JobLayout{"copies", R"({"zero.level":"off"})"},
                                         JobLayout{"split", R"({"default":{"split":2}})"}),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
