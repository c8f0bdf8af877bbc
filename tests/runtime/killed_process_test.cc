// A process of four is killed at a random moment. The others end their calls in time with an error that says who is
// missing, and leave nothing behind; the job goes on from its newest checkpoint and ends with the weights of an
// undisturbed run. EPL_KILLS sets how many are killed of each layout and way.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/runtime/sockets_device.h"
#include "tests/runtime/two_processes.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

constexpr int processes = 4, steps = 12, lost_a_peer = 3;
constexpr double end_seconds = 30;  // of a busy machine; one that is not takes some milliseconds

struct Job {
  std::string name, strategy, device;
};

constexpr std::string_view copies = "{}";
constexpr std::string_view stages = R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr std::string_view split_stages = R"({"pipeline.num_micro_batch": 2, "scopes": [
  {"name": "first", "split": 2, "match": ["h*", "a"]}, {"name": "second", "split": 2, "match": ["*"]}]})";

class Killed : public testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / ("epl_killed_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override {
    for (const pid_t child : children) {
      if (child > 0) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    }
    fs::remove_all(folder);
  }
  // Starts the four, which train on from the checkpoint.
  void start(const std::string& checkpoint) {
    meet = cat(folder, "/meet", ++jobs);
    children.clear();
    for (int rank = 0; rank < processes; ++rank) {
      std::vector<std::string> words = {
          RANK_PROCESS,    meet,       std::to_string(rank), "1",      std::to_string(processes), std::to_string(steps),
          result_of(rank), "strategy", GetParam().strategy,  "device", GetParam().device,         "survive",
          checkpoint};
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      const pid_t child = ::fork();
      if (child == 0) {
        ::execv(pointers[0], pointers.data());
        ::_exit(127);
      }
      children.push_back(child);
    }
  }
  // What became of a process, if it ends in time.
  int end_of(int rank) {
    int status = -1;
    pid_t& child = children[static_cast<size_t>(rank)];
    for (const double begin = seconds_now(); seconds_now() < begin + end_seconds;) {
      if (::waitpid(child, &status, WNOHANG) == child) {
        child = -1;
        return status;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "rank " << rank << " has not ended within " << end_seconds << " s";
    return -1;
  }
  void wait_for_start() {
    for (int rank = 0; rank < processes; ++rank) {
      const double begin = seconds_now();
      while (!fs::exists(result_of(rank) + ".begun") && seconds_now() < begin + end_seconds)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::string result_of(int rank) const { return cat(meet, ".result", rank); }
  std::string read(int rank) const {
    std::ifstream in(result_of(rank), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // To its end; the weights.
  std::string undisturbed(const std::string& checkpoint) {
    start(checkpoint);
    for (int rank = 0; rank < processes; ++rank) EXPECT_EQ(end_of(rank), 0) << "rank " << rank;
    for (int rank = 1; rank < processes; ++rank) EXPECT_TRUE(read(rank) == read(0)) << "rank " << rank;
    return read(0);
  }

  std::string folder, meet;
  int jobs = 0;
  std::vector<pid_t> children;
};

TEST_P(Killed, TheOthersSayWhoAndTheJobGoesOn) {
  const char* wanted = std::getenv("EPL_KILLS");
  const int kills = wanted == nullptr ? 2 : std::atoi(wanted);
  const double begin = seconds_now();
  const std::string expected = undisturbed(folder + "/undisturbed");
  const double whole = seconds_now() - begin;
  ASSERT_FALSE(expected.empty());
  int met = 0;
  for (int k = 0; k < kills; ++k) {
    const std::string checkpoint = cat(folder, "/checkpoint", k);
    const auto draw = [&](uint64_t n) { return philox_uniform(static_cast<uint64_t>(k) + 17, n); };
    const int victim = static_cast<int>(draw(0) * processes);
    start(checkpoint);
    wait_for_start();
    std::this_thread::sleep_for(std::chrono::duration<double>(draw(1) * whole * 0.5));
    ASSERT_EQ(::kill(children[static_cast<size_t>(victim)], SIGKILL), 0);
    const bool killed = WIFSIGNALED(end_of(victim));
    for (int rank = 0; rank < processes; ++rank) {
      if (rank == victim) continue;
      const int status = end_of(rank);
      if (status == 0) continue;  // it was done before
      EXPECT_EQ(WEXITSTATUS(status), lost_a_peer) << "rank " << rank << ", victim " << victim;
      const std::string said = read(rank);
      EXPECT_NE(said.find(cat("rank ", victim)), std::string::npos) << "rank " << rank << ": " << said;
      EXPECT_NE(said.find("group "), std::string::npos) << said;
      EXPECT_TRUE(said.find("is missing") != std::string::npos) << said;
      met += killed;
    }
    EXPECT_TRUE(undisturbed(checkpoint) == expected) << "kill " << k << " of rank " << victim;
    fs::remove_all(checkpoint);
  }
  EXPECT_TRUE(met > 0 || kills < 10) << "no rank was killed while others were at work";
}

INSTANTIATE_TEST_SUITE_P(, Killed,
                         testing::Values(Job{"copies_sharing", std::string(copies), "cpu"},
                                         Job{"stages_sharing", std::string(stages), "cpu"},
                                         Job{"split_in_stages_sharing", std::string(split_stages), "cpu"},
                                         Job{"copies_over_sockets", std::string(copies), std::string(sockets_device)},
                                         Job{"stages_over_sockets", std::string(stages), std::string(sockets_device)},
                                         Job{"split_in_stages_over_sockets", std::string(split_stages),
                                             std::string(sockets_device)}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace epl
