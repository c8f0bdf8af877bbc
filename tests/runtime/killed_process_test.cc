// A process of four is killed at a random moment, or hangs. The others end their calls in time with an error that says
// who is missing, and leave nothing behind; the job goes on from its newest checkpoint and ends with the weights of an
// undisturbed run. EPL_KILLS sets how many are killed of each layout and way.
#include <gtest/gtest.h>

#include "core/base/pack.h"
#include "tests/runtime/rank_processes.h"
#include "tests/thirds.h"

namespace epl::killed_process_test {
namespace {

namespace fs = std::filesystem;

constexpr int steps = 12, lost_a_peer = 3;
constexpr size_t world = 4;
constexpr double end_seconds = 30;  // of a busy machine; one that is not takes some milliseconds

struct Job {
  std::string name, strategy, transport;
};

constexpr std::string_view copies = "{}";
constexpr std::string_view stages = R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr std::string_view split_stages = R"({"pipeline.num_micro_batch": 2, "scopes": [
  {"name": "first", "split": 2, "match": ["h*", "a"]}, {"name": "second", "split": 2, "match": ["*"]}]})";

class Killed : public testing::TestWithParam<Job> {
 protected:
  // Starts the four, which train on from the checkpoint.
  void start(const std::string& checkpoint, const std::vector<std::string>& more = {}) {
    processes.new_job();
    std::vector<std::string> words = {"strategy",           GetParam().strategy, "transport",
                                      GetParam().transport, "survive",           checkpoint};
    words.insert(words.end(), more.begin(), more.end());
    for (int rank = 0; rank < static_cast<int>(world); ++rank) processes.start(rank, 1, world, steps, words);
  }
  void wait_for_start() {
    for (size_t rank = 0; rank < world; ++rank) {
      const double begin = seconds_now();
      while (!fs::exists(processes.result_of(rank) + ".begun") && seconds_now() < begin + end_seconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // To its end; the weights.
  std::string undisturbed(const std::string& checkpoint) {
    start(checkpoint);
    processes.expect_good_ends();
    for (size_t rank = 1; rank < world; ++rank)
      EXPECT_TRUE(processes.result(rank) == processes.result(0)) << "rank " << rank;
    return processes.result(0);
  }
  // A rank that has lost one says which, in which group and call.
  void expect_said(size_t rank, size_t victim) {
    const std::string said = processes.result(rank);
    EXPECT_NE(said.find(cat("rank ", victim)), std::string::npos) << "rank " << rank << ": " << said;
    EXPECT_NE(said.find("group "), std::string::npos) << said;
    EXPECT_NE(said.find("is missing"), std::string::npos) << said;
  }

  RankProcesses processes;
};

TEST_P(Killed, TheOthersSayWhoAndTheJobGoesOn) {
  EPL_ONE_OF_THREE();
  const char* wanted = std::getenv("EPL_KILLS");
  const int kills = wanted == nullptr ? 2 : std::atoi(wanted);
  const double begin = seconds_now();
  const std::string expected = undisturbed(processes.folder() + "/undisturbed");
  const double whole = seconds_now() - begin;
  ASSERT_FALSE(expected.empty());
  int met = 0;
  for (int k = 0; k < kills; ++k) {
    const std::string checkpoint = cat(processes.folder(), "/checkpoint", k);
    const auto draw = [&](uint64_t n) { return philox_uniform(static_cast<uint64_t>(k) + 17, n); };
    const auto victim = static_cast<size_t>(draw(0) * world);
    start(checkpoint);
    wait_for_start();
    std::this_thread::sleep_for(std::chrono::duration<double>(draw(1) * whole * 0.5));
    ASSERT_TRUE(processes.signal(victim, SIGKILL));
    const bool killed = WIFSIGNALED(processes.end_of(victim, end_seconds));
    for (size_t rank = 0; rank < world; ++rank) {
      if (rank == victim) continue;
      const int status = processes.end_of(rank, end_seconds);
      if (status == 0) continue;  // it was done before
      EXPECT_EQ(WEXITSTATUS(status), lost_a_peer) << "rank " << rank << ", victim " << victim;
      expect_said(rank, victim);
      met += killed;
    }
    EXPECT_TRUE(undisturbed(checkpoint) == expected) << "kill " << k << " of rank " << victim;
    fs::remove_all(checkpoint);
  }
  EXPECT_TRUE(met > 0 || kills < 10) << "no rank was killed while others were at work";
}

// One that hangs says nothing, and neither do those who wait for it, for whom others wait: all name the one. The others
// wait as long as they were told to, and then end as if it were gone. What they have saved goes on.
class Hung : public Killed {};
TEST_P(Hung, IsGivenUp) {
  EPL_ONE_OF_THREE();
  const std::string checkpoint = processes.folder() + "/checkpoint";
  const size_t victim = 2;
  start(checkpoint, {"silence", "0.5", "steps", "1000000"});
  wait_for_start();
  while (!fs::exists(checkpoint + "/manifest.epl")) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(processes.signal(victim, SIGSTOP));
  for (size_t rank = 0; rank < world; ++rank) {
    if (rank == victim) continue;
    EXPECT_EQ(WEXITSTATUS(processes.end_of(rank, end_seconds)), lost_a_peer) << "rank " << rank;
    expect_said(rank, victim);
    EXPECT_NE(processes.result(rank).find("it has said nothing for 0.5 s"), std::string::npos)
        << processes.result(rank);
  }
  // It wakes up to a job that has ended.
  ASSERT_TRUE(processes.signal(victim, SIGCONT));
  EXPECT_EQ(WEXITSTATUS(processes.end_of(victim, end_seconds)), lost_a_peer) << processes.result(victim);
  start(checkpoint, {"steps", "0"});
  processes.expect_good_ends();
  EXPECT_FALSE(processes.result(0).empty());
}

std::vector<Job> jobs() {
  std::vector<Job> out;
  const std::pair<std::string, std::string_view> strategies[] = {
      {"copies", copies}, {"stages", stages}, {"split_in_stages", split_stages}};
  for (const std::string transport : {"shared,sockets", "sockets", "gloo"}) {
    if (transport == "gloo" && !open_pack(EPL_PACK_FOLDER, "gloo").ok()) continue;
    for (const auto& [name, strategy] : strategies) {
      if (transport == "gloo" && name == "stages") continue;  // what split_in_stages does besides
      out.push_back(
          {cat(name, "_by_", transport == "shared,sockets" ? "shared" : transport), std::string(strategy), transport});
    }
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(, Killed, testing::ValuesIn(jobs()), [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(, Hung, testing::ValuesIn(jobs()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace epl::killed_process_test
