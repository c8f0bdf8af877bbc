// What the processes of a job must have in common is compared, and what differs is named by its key and rank: weights,
// options, numbers that are set, batches, checkpoints, calls, and copies that something has damaged. Threads with a
// session each stand for the processes.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "core/net/rendezvous.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/two_processes.h"
#include "tests/temporary_folder.h"

namespace epl::in_common_test {
namespace {

struct Layout {
  const char* name;
  const char* strategy;
  const char* transport;
};

// What a process is told. Ranks are as many as there are processes.
struct Told {
  uint64_t weights = 1, seed = 7;
  double rate = 0.01;
  std::string transport;
  SessionOptions options;
};

class InCommon : public testing::TestWithParam<Layout> {
 protected:
  static constexpr int world = 2;
  // Makes the sessions at the same time; gives what became of each.
  std::vector<Status> make(const std::function<void(Told&, int)>& tell = nullptr) {
    sessions.clear(), sessions.resize(world);
    const auto rendezvous = memory_rendezvous();
    return each([&](int r) -> Status {
      Told told;
      told.transport = GetParam().transport;
      if (tell) tell(told, r);
      PlanOptions options = mlp_options(world, "2").value();
      options.model = GraphModel::parse(skip_mlp, told.weights);
      options.train.optimizer_options = {{"lr", told.rate}};
      options.train.freezable = true;
      options.strategy = parse_strategy(GetParam().strategy).value();
      SessionOptions& own = told.options;
      own.seed = told.seed;
      own.first_rank = r;
      own.ranks = 1;
      own.rendezvous = rendezvous;
      own.secret = "secret";
      own.transport = told.transport;
      own.join_seconds = own.silence_seconds = 20;
      EPL_ASSIGN(auto plan, CompiledPlan::create(host, options));
      EPL_ASSIGN(sessions[r], Session::create(host, std::move(plan), own));
      return {};
    });
  }
  std::vector<Status> each(const std::function<Status(int)>& f) const {
    std::vector<Status> out(world);
    std::vector<std::thread> threads;
    for (int r = 0; r < world; ++r) threads.emplace_back([&, r] { out[r] = f(r); });
    for (std::thread& thread : threads) thread.join();
    return out;
  }
  Status step(int r, int64_t batch) const {
    StepMetrics metrics;
    EPL_TRY(sessions[r]->step(mlp_batch(batch), metrics));
    return metrics.skipped;
  }
  std::vector<Status> step_all(int64_t batch = 0) const {
    return each([&](int r) { return step(r, batch); });
  }
  // All say the same code and these words, in time.
  void expect_all(const std::vector<Status>& statuses, Code code, const std::vector<std::string>& words) const {
    for (const Status& status : statuses) {
      EXPECT_EQ(status.code(), code) << status.to_string();
      for (const std::string& word : words)
        EXPECT_NE(status.message().find(word), std::string::npos) << word << ": " << status.to_string();
    }
    EXPECT_LT(seconds_now() - began, 15) << "nobody waits for long";
  }
  void expect_good(const std::vector<Status>& statuses) const {
    for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.to_string();
  }
  // Nothing has happened, and all go on once they have it in common again.
  void expect_they_go_on(int64_t steps) const {
    for (int r = 0; r < world; ++r) EXPECT_EQ(sessions[r]->host_state().steps_done(), steps);
    expect_good(step_all(steps));
  }
  bool copies() const { return std::string_view(GetParam().strategy) == "{}"; }

  Host host = process_host();
  std::vector<std::unique_ptr<Session>> sessions;
  const double began = seconds_now();
};

TEST_P(InCommon, other_weights_in_a_models_file_are_refused_by_name) {
  expect_all(
      make([](Told& told, int r) { told.weights = 1 + static_cast<uint64_t>(r); }), Code::invalid_argument,
      {"rank 1 has other weights than rank 0", "first differs \"b1\", of 4 that do", "take_weights", "--take-weights"});
}

// What one process alone has found, a label out of range for example, all say: who looks at rank 0 is told as well.
TEST_P(InCommon, a_reason_of_one_process_is_said_by_all) {
  expect_good(make());
  const std::string why = "field target, row 37 (counted from 0), holds 7, which is not a class of 4";
  const std::vector<Status> statuses = each([&](int r) -> Status {
    const Status own = r == 1 ? Status(Code::invalid_argument, why) : Status();
    return sessions[static_cast<size_t>(r)]->world().agree(own);
  });
  EXPECT_EQ(statuses[1].code(), Code::invalid_argument);
  EXPECT_EQ(statuses[1].message(), why);
  EXPECT_EQ(statuses[0].code(), Code::peer_failed);
  EXPECT_EQ(statuses[0].message(), cat("another process of the job has failed: rank 1: ", why));
  EXPECT_EQ(statuses[0].rank(), 1);
  expect_they_go_on(0);
}

// The same of a batch that one process alone is given, in a step.
TEST_P(InCommon, a_bad_label_of_one_process_is_named_by_all) {
  expect_good(make());
  expect_good(step_all());
  const std::vector<Status> statuses = each([&](int r) -> Status {
    std::vector<Tensor> batch = mlp_batch(1);
    if (r == 1) batch[1].set_int(5, 70);
    StepMetrics metrics;
    return sessions[static_cast<size_t>(r)]->step(batch, metrics);
  });
  for (const Status& status : statuses) {
    EXPECT_NE(status.message().find("input target holds 70, which is not a class of "), std::string::npos)
        << status.to_string();
  }
  expect_they_go_on(1);
}

TEST_P(InCommon, weights_of_rank_0_are_taken_on_request) {
  expect_good(make());
  expect_good(step_all());
  std::vector<std::string> expected(world), found(world);
  const auto read = [&](std::vector<std::string>& into) {
    expect_good(each([&](int r) -> Status {
      EPL_ASSIGN(into[r], gathered_state(*sessions[r], {}));
      return {};
    }));
  };
  read(expected);
  expect_good(make([](Told& told, int r) {
    told.weights = 1 + static_cast<uint64_t>(r);
    told.options.take_weights = true;
  }));
  expect_good(step_all());
  read(found);
  EXPECT_EQ(found, expected);
}

TEST_P(InCommon, options_are_compared_by_name) {
  expect_all(make([](Told& told, int r) { told.rate = r == 0 ? 0.01 : 0.02; }), Code::invalid_argument,
             {"does not do the same job: its optimizer.lr is"});
  expect_all(make([](Told& told, int r) { told.seed = 7 + static_cast<uint64_t>(r); }), Code::invalid_argument,
             {"does not do the same job: its seed is"});
  expect_all(make([](Told& told, int r) { told.options.compare_every = 10 + r; }), Code::invalid_argument,
             {"does not do the same job: its compare_every is"});
  expect_all(make([](Told& told, int r) { told.options.signs_frames = r == 1; }), Code::invalid_argument,
             {"does not do the same job: its signed frames is"});
  const std::string other = std::string_view(GetParam().transport) == "sockets" ? "shared,sockets" : "sockets";
  expect_all(make([&](Told& told, int r) {
               if (r == 1) told.transport = other;
             }),
             Code::invalid_argument, {"does not do the same job: its transport is"});
}

// Each of the calls that change what a step does, made by one process alone; then by the other one too.
TEST_P(InCommon, what_one_process_alone_sets_is_named_at_the_next_call) {
  struct Case {
    std::string words;
    std::function<Status(Session&)> set;
  };
  const std::vector<Case> cases = {
      {"learning_rate_scale is", [](Session& s) { return s.host_state().set_number("learning_rate_scale", 0.5); }},
      {"rate.groups is", [](Session& s) { return s.host_state().set_number("learning_rate", 0.003); }},
      {"frozen is", [](Session& s) { return s.host_state().set_number("frozen:w2", 1); }},
      {"the value set for w1, as a hash is",
       [](Session& s) {
         Tensor value(TensorType{DType::f32, {12, 16}});
         value.set(3, 0.25);
         return s.state().set_checked("w1", value);
       }},
  };
  expect_good(make());
  int64_t steps = 0;
  for (const Case& one : cases) {
    EXPECT_TRUE(one.set(*sessions[1]).ok());
    expect_all(step_all(steps), Code::invalid_argument,
               {"the processes do not do the same: " + one.words, "at rank 0", "at rank 1"});
    EXPECT_TRUE(one.set(*sessions[0]).ok());
    expect_they_go_on(steps++);
  }
}

TEST_P(InCommon, other_batches_are_named) {
  expect_good(make());
  expect_all(each([&](int r) { return step(r, r); }), Code::invalid_argument, {"input x of the batch"});
  expect_they_go_on(0);
}

TEST_P(InCommon, processes_in_other_calls_are_told) {
  const TemporaryFolder folder;
  expect_good(make());
  expect_good(step_all());
  expect_all(each([&](int r) {
               if (r == 0) return step(0, 1);
               const CallScope saving(sessions[1]->world().call(), "epl_session_save");
               return save_session(*sessions[1], folder / "checkpoint");
             }),
             Code::misuse, {"rank 0 is in step, rank 1 in save"});
  expect_they_go_on(1);
}

TEST_P(InCommon, other_checkpoints_are_refused_before_anything_changes) {
  const TemporaryFolder folder;
  const auto save = [&](const std::string& to) {
    expect_good(each([&](int r) { return save_session(*sessions[r], to); }));
  };
  expect_good(make());
  expect_good(step_all());
  save(folder / "one");
  expect_good(make());
  expect_good(step_all(5));
  save(folder / "other");
  expect_all(each([&](int r) { return load_session(*sessions[r], folder / (r == 0 ? "one" : "other")); }),
             Code::invalid_argument, {"the checkpoint's hash is"});
  expect_they_go_on(1);
}

// Data is changed behind the session's back, as by memory that fails.
TEST_P(InCommon, damaged_copies_are_noticed_and_named) {
  if (!copies()) GTEST_SKIP() << "each rank has weights of its own";
  const TemporaryFolder folder;
  for (const bool at_a_save : {false, true}) {
    expect_good(make([](Told& told, int) { told.options.compare_every = 3; }));
    expect_good(step_all(0));
    const Tensor view = sessions[1]->state().view("w2").value();
    const_cast<std::byte*>(static_cast<const std::byte*>(view.data()))[37] ^= std::byte{1};
    std::vector<Status> statuses(world);
    if (at_a_save) {
      statuses = each([&](int r) { return save_session(*sessions[r], folder / "checkpoint"); });
    } else {
      expect_good(step_all(1));
      expect_good(step_all(2));
      statuses = step_all(3);
      for (int r = 0; r < world; ++r) EXPECT_EQ(sessions[r]->host_state().steps_done(), 3);
    }
    expect_all(statuses, Code::state_lost, {"has other values of", "\"w2", "memory or a connection"});
    expect_all(step_all(3), Code::state_lost, {"the session from a checkpoint"});
  }
}

TEST_P(InCommon, good_copies_go_on) {
  expect_good(make([](Told& told, int) { told.options.compare_every = 1; }));
  for (int64_t i = 0; i < 5; ++i) expect_good(step_all(i));
}

TEST_P(InCommon, lines_of_the_host_are_compared) {
  expect_good(make());
  expect_good(each([&](int r) { return sessions[r]->world().compare("steps: 10\n"); }));
  expect_all(each([&](int r) { return sessions[r]->world().compare(cat("steps: 10\nevery: ", r + 4, "\n")); }),
             Code::invalid_argument, {"every is \"4\" at rank 0 and \"5\" at rank 1"});
  expect_they_go_on(0);
}

constexpr char stages[] = R"({"pipeline.num_micro_batch": 2, "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr char split[] = R"({"default": {"split": 2}})";
constexpr char zero[] = R"({"zero.level": "v0"})";

INSTANTIATE_TEST_SUITE_P(, InCommon,
                         testing::Values(Layout{"copies_shared", "{}", "shared,sockets"},
                                         Layout{"copies_sockets", "{}", "sockets"}, Layout{"stages", stages, "sockets"},
                                         Layout{"split", split, "shared,sockets"},
                                         Layout{"zero", zero, "shared,sockets"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace epl::in_common_test
