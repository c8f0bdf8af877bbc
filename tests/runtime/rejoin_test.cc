// Processes that come together again after a call that was given up: a call that waits for that sees its token and its
// deadline, says so to the others, and the next one goes on. Two threads with a session each stand for the processes.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "core/net/rendezvous.h"
#include "tests/runtime/two_processes.h"

namespace epl::rejoin_test {
namespace {

using std::chrono::milliseconds;

class Rejoin : public testing::Test {
 protected:
  void SetUp() override {
    host = process_host();
    auto made = two_process_plan(host, 2);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    std::thread other([&] { sessions[1] = make(*made, 1); });
    sessions[0] = make(*made, 0);
    other.join();
  }
  std::unique_ptr<Session> make(const std::shared_ptr<const CompiledPlan>& plan, int rank,
                                const Stop& stop = {}) const {
    auto session = Session::create(host, plan,
                                   {.seed = 7,
                                    .first_rank = rank,
                                    .ranks = 1,
                                    .rendezvous = rendezvous,
                                    .join_seconds = 30,
                                    .silence_seconds = 30,
                                    .stop = stop});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    return session.ok() ? std::move(*session) : nullptr;
  }
  Status step(int rank, const Stop& stop = {}) {
    StepMetrics metrics;
    return sessions[rank]->step(mlp_batch(sessions[rank]->host_state().steps_done()), metrics, {.stop = stop});
  }
  std::pair<Status, Status> step_both() {
    std::pair<Status, Status> out;
    std::thread other([&] { out.second = step(1); });
    out.first = step(0);
    other.join();
    return out;
  }

  Host host;
  std::shared_ptr<Rendezvous> rendezvous = memory_rendezvous();
  std::unique_ptr<Session> sessions[2];
};

TEST_F(Rejoin, ACallThatWaitsForTheOthersStops) {
  const std::function<double()> clock = seconds_now;
  ASSERT_TRUE(step_both().first.ok());
  for (int round = 0; round < 3; ++round) {
    ASSERT_FALSE(sessions[0]->world().give_up(error(Code::io, "no data")).ok());
    // The other one does not come yet.
    const auto start = std::chrono::steady_clock::now();
    const Status late = step(0, Stop::after(clock, 0.2));
    EXPECT_EQ(late.code(), Code::deadline_exceeded) << late.to_string();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    if (round > 0) {
      EXPECT_NE(late.message().find("rank 1 has not come yet"), std::string::npos) << late.message();
      EXPECT_EQ(late.rank(), 1);
    }
    StopToken token;
    std::thread cancels([&] {
      std::this_thread::sleep_for(milliseconds(50));
      token.cancel();
    });
    EXPECT_EQ(step(0, Stop(&token, nullptr, 0)).code(), Code::cancelled);
    cancels.join();
    // It comes, hears of that in as many calls as it needs, and then both go on.
    int told = 0;
    std::thread other([&] {
      Status status;
      do {
        status = step(1);
        told += !status.ok();
        EXPECT_TRUE(status.ok() || status.code() == Code::peer_failed) << status.to_string();
      } while (!status.ok() && told < 10);
    });
    Status status;
    int tries = 0;
    do {
      status = step(0);
      EXPECT_TRUE(status.ok() || status.code() == Code::peer_failed) << status.to_string();
    } while (!status.ok() && ++tries < 10);
    other.join();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_GE(told, 1);
    EXPECT_EQ(sessions[0]->host_state().steps_done(), sessions[1]->host_state().steps_done());
  }
  EXPECT_EQ(all_state(*sessions[0], {}), all_state(*sessions[1], {}));
}

TEST_F(Rejoin, ASessionThatGoesMeanwhileIsNotWaitedFor) {
  ASSERT_TRUE(step_both().first.ok());
  ASSERT_FALSE(sessions[0]->world().give_up(error(Code::io, "no data")).ok());
  StopToken token;
  token.cancel();
  EXPECT_EQ(step(0, Stop(&token, nullptr, 0)).code(), Code::cancelled);
  const auto start = std::chrono::steady_clock::now();
  sessions[0].reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  Status status;
  for (int i = 0; i < 3; ++i) status = step(1);
  EXPECT_EQ(status.code(), Code::peer_failed) << status.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(25)) << "less than a join waits";
}

TEST_F(Rejoin, ASessionThatIsMadeStops) {
  rendezvous = memory_rendezvous();
  StopToken token;
  std::thread cancels([&] {
    std::this_thread::sleep_for(milliseconds(50));
    token.cancel();
  });
  const auto start = std::chrono::steady_clock::now();
  const auto made =
      Session::create(host, *two_process_plan(host, 2),
                      {.first_rank = 1, .ranks = 1, .rendezvous = rendezvous, .stop = Stop(&token, nullptr, 0)});
  cancels.join();
  EXPECT_EQ(made.status().code(), Code::cancelled) << made.status().to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace epl::rejoin_test
