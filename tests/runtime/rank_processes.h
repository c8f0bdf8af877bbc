// The processes of a job, each a rank_process, in a folder of their own. Whoever is still there at the end is killed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/runtime/two_processes.h"
#include "tests/temporary_folder.h"

namespace epl {

class RankProcesses {
 public:
  RankProcesses() = default;
  ~RankProcesses() {
    for (const pid_t child : children_) {
      if (child > 0) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    }
  }
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  const std::string& folder() const { return folder_.path(); }
  // Where the processes of the job meet; another rendezvous for each job.
  const std::string& rendezvous() const { return rendezvous_; }
  void new_job() {
    rendezvous_ = folder_ / cat("meet", ++jobs_);
    children_.clear();
  }
  // The next process of the job, with ranks [first, first + ranks); it writes to `result_of` its number.
  size_t start(int first, int ranks, int world, int steps, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {
        RANK_PROCESS,          rendezvous_,           std::to_string(first),      std::to_string(ranks),
        std::to_string(world), std::to_string(steps), result_of(children_.size())};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
    children_.push_back(child);
    return children_.size() - 1;
  }
  size_t count() const { return children_.size(); }
  bool signal(size_t process, int number) const { return ::kill(children_[process], number) == 0; }
  // What became of a process, if it ends in time; else -1.
  int end_of(size_t process, double seconds = 60) {
    pid_t& child = children_[process];
    for (const double begin = seconds_now(); seconds_now() < begin + seconds;) {
      int status = -1;
      if (::waitpid(child, &status, WNOHANG) == child) return child = -1, status;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "process " << process << " has not ended within " << seconds << " s";
    return -1;
  }
  void expect_good_ends() {
    for (size_t p = 0; p < count(); ++p) EXPECT_EQ(end_of(p), 0) << "process " << p;
  }
  std::string result_of(size_t process) const { return cat(rendezvous_, ".result", process); }
  std::string result(size_t process) const { return read(result_of(process)); }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  const TemporaryFolder folder_;
  std::string rendezvous_;
  int jobs_ = 0;
  std::vector<pid_t> children_;
};

inline std::vector<double> train(Session& session, int steps) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    StepMetrics metrics;
    const Status status = session.step(mlp_batch(step), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    losses.push_back(metrics.loss);
  }
  return losses;
}

}  // namespace epl
