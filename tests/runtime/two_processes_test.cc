// One job in two processes: the same bits as in one, and an end that is told when one of them is gone.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "core/compile/plan_memory.h"
#include "core/net/rendezvous.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/rank_processes.h"

namespace epl::two_processes_test {
namespace {

namespace fs = std::filesystem;

class TwoProcesses : public testing::Test {
 protected:
  // The second process, with ranks [first, first + ranks).
  void start(int first, int ranks, int world, int steps, const std::vector<std::string>& more = {}) {
    processes.start(first, ranks, world, steps, more);
  }
  int wait() { return processes.end_of(0); }
  std::string result() const { return processes.result(0); }
  std::unique_ptr<Session> first_ranks(int ranks, int world) {
    plan = two_process_plan(host, world).value();
    auto made = Session::create(host, plan, {.seed = 7, .ranks = ranks, .rendezvous = rendezvous, .join_seconds = 30});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }

  Host host = process_host();
  RankProcesses processes;
  const std::string& folder = processes.folder();
  std::shared_ptr<Rendezvous> rendezvous = (processes.new_job(), folder_rendezvous(processes.rendezvous()).value());
  std::shared_ptr<const CompiledPlan> plan;
};

// What a job gives that this process runs by itself.
std::string alone(int64_t ranks, int steps, const std::string& micro_batches = "1") {
  const Host host = process_host();
  auto session = Session::create(host, two_process_plan(host, ranks, micro_batches).value(), {.seed = 7}).value();
  return answer(*session, train(*session, steps));
}

TEST_F(TwoProcesses, learn_the_same_bits_as_one) {
  const std::string expected = alone(1, 10);
  EXPECT_EQ(alone(2, 10), expected);
  start(1, 1, 2, 10);
  auto session = first_ranks(1, 2);
  ASSERT_TRUE(session);
  EXPECT_EQ(answer(*session, train(*session, 10)), expected);
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(result(), expected);
  EXPECT_EQ(session->memory_bytes_used(), PlanMemory(*plan).peak());
}

TEST_F(TwoProcesses, may_have_several_ranks_each) {
  const std::string expected = alone(4, 5);
  start(1, 3, 4, 5);
  auto session = first_ranks(1, 4);
  ASSERT_TRUE(session);
  EXPECT_EQ(answer(*session, train(*session, 5)), expected);
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(result(), expected);
}

TEST_F(TwoProcesses, one_that_dies_ends_the_others_step_and_not_its_state) {
  start(1, 1, 2, 10, {"die_in", "3"});
  auto session = first_ranks(1, 2);
  ASSERT_TRUE(session);
  StepMetrics metrics;
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(session->step(mlp_batch(step), metrics).ok());
  const std::string before = all_state(*session, {});
  const double began = seconds_now();
  const Status status = session->step(mlp_batch(3), metrics);
  EXPECT_EQ(status.code(), Code::peer_failed) << status.to_string();
  EXPECT_NE(status.message().find("rank 1 of 2 is missing"), std::string::npos) << status.message();
  EXPECT_EQ(status.rank(), 1);
  EXPECT_EQ(wait(), SIGKILL);
  EXPECT_LT(seconds_now() - began, 5);
  EXPECT_EQ(all_state(*session, {}), before);
  EXPECT_EQ(session->host_state().steps_done(), 3);
  const Status again = session->step(mlp_batch(3), metrics);
  EXPECT_EQ(again.code(), Code::peer_failed);
  EXPECT_NE(again.message().find("has lost a process"), std::string::npos) << again.message();
  EXPECT_EQ(again.rank(), 1);
  session.reset();
  EXPECT_LT(seconds_now() - began, 10);
}

// A step that one process gives up has happened in none, and can be made again.
TEST_F(TwoProcesses, go_on_when_one_gave_up_a_step) {
  const std::string expected = alone(1, 5);
  start(1, 1, 2, 5, {"late_at", "2"});
  auto session = first_ranks(1, 2);
  ASSERT_TRUE(session);
  std::vector<double> losses;
  for (int step = 0; step < 5; ++step) {
    StepMetrics metrics;
    if (step == 2) {
      const Status late = session->step(mlp_batch(step), metrics, {.stop = Stop::after(host.seconds, 0.05)});
      EXPECT_EQ(late.code(), Code::deadline_exceeded) << late.to_string();
      EXPECT_EQ(session->host_state().steps_done(), 2);
    }
    const Status status = session->step(mlp_batch(step), metrics);
    ASSERT_TRUE(status.ok()) << status.to_string();
    losses.push_back(metrics.loss);
  }
  EXPECT_EQ(expected.find(all_state(*session, losses)), 0u);
  std::vector<Tensor> outputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  const std::vector<Tensor> batch = mlp_batch(100);
  EXPECT_TRUE(session->predict(std::span(batch).first(1), outputs).ok());
  EXPECT_EQ(wait(), 0);
  EXPECT_EQ(result(), expected);
}

// They save one checkpoint, which goes on under any number of ranks; what one cannot, none can.
TEST_F(TwoProcesses, save_what_one_process_loads) {
  start(1, 1, 2, 3, {"save", folder + "/checkpoint"});
  auto session = first_ranks(1, 2);
  ASSERT_TRUE(session);
  StepMetrics metrics;
  for (int step = 0; step < 3; ++step) ASSERT_TRUE(session->step(mlp_batch(step), metrics).ok());
  const Status saved = save_session(*session, folder + "/checkpoint");
  ASSERT_TRUE(saved.ok()) << saved.to_string();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder + "/checkpoint"), {}), 3) << "a manifest and a file of each";
  const std::string expected = all_state(*session, {});
  for (const int64_t ranks : {1, 4}) {
    auto alone = Session::create(host, two_process_plan(host, ranks).value()).value();
    ASSERT_TRUE(load_session(*alone, folder + "/checkpoint").ok());
    EXPECT_EQ(all_state(*alone, {}), expected);
    EXPECT_EQ(alone->host_state().steps_done(), 3);
  }
  std::vector<Tensor> outputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  const std::vector<Tensor> batch = mlp_batch(100);
  EXPECT_TRUE(session->predict(std::span(batch).first(1), outputs).ok());
  EXPECT_EQ(wait(), 0);
}

TEST_F(TwoProcesses, a_save_that_one_cannot_make_fails_for_both) {
  std::ofstream(folder + "/file") << "in the way";
  start(1, 1, 2, 1, {"save", folder + "/file"});
  auto session = first_ranks(1, 2);
  ASSERT_TRUE(session);
  StepMetrics metrics;
  ASSERT_TRUE(session->step(mlp_batch(0), metrics).ok());
  EXPECT_EQ(save_session(*session, folder + "/file").code(), Code::invalid_argument);
  EXPECT_EQ(wait(), 256) << "it must have said that another process failed";
}

TEST_F(TwoProcesses, of_other_plans_do_not_meet) {
  start(1, 1, 2, 1);
  plan = two_process_plan(host, 2, "2").value();
  auto made = Session::create(host, plan, {.seed = 7, .ranks = 1, .rendezvous = rendezvous, .join_seconds = 30});
  EXPECT_EQ(made.status().code(), Code::invalid_argument);
  EXPECT_NE(made.status().message().find("does not do the same job"), std::string::npos) << made.status().message();
  EXPECT_NE(wait(), 0);
}

TEST(SessionRanks, WhatCannotBeIsRefused) {
  const Host host = process_host();
  const auto plan = two_process_plan(host, 2).value();
  const auto refuse = [&](const SessionOptions& options) {
    const Status status = Session::create(host, plan, options).status();
    EXPECT_EQ(status.code(), Code::invalid_argument) << status.to_string();
    return status.message();
  };
  EXPECT_NE(refuse({.ranks = 1}).find("needs a rendezvous"), std::string::npos);
  EXPECT_NE(refuse({.first_rank = 1, .ranks = 2}).find("2 ranks from rank 1 on"), std::string::npos);
  refuse({.first_rank = 1});
  refuse({.first_rank = -1, .ranks = 1});
  refuse({.ranks = 3});
  const auto nobody =
      Session::create(host, plan, {.ranks = 1, .rendezvous = memory_rendezvous(), .join_seconds = 0.01});
  EXPECT_EQ(nobody.status().code(), Code::deadline_exceeded);
  EXPECT_NE(nobody.status().message().find("rank 1 has not come"), std::string::npos) << nobody.status().message();
}

}  // namespace
}  // namespace epl::two_processes_test
