// What a process needs is what epl plan says, saving and exporting included.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tools/json.h"

namespace epl::tools::memory_test {
namespace {

namespace fs = std::filesystem;

// The most memory that a command has had, in bytes; -1 when it fails.
int64_t peak_of(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stdout) == nullptr || std::freopen("/dev/null", "w", stderr) == nullptr)
      ::_exit(126);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  int status = 0;
  struct rusage usage{};
  if (::wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return -1;
  return static_cast<int64_t>(usage.ru_maxrss) << 10;
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  return ::pclose(pipe) == 0 ? text : "";
}

// A model of 49 MB of weights and a table for it, in a folder that goes with it.
class Memory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (EPL_SANITIZED) GTEST_SKIP() << "a sanitizer needs memory of its own";
    ASSERT_GE(peak_of({EPL_TOOL, "template", "mlp", "--sizes", "8,3400,3600,8", "--out", model_}), 0);
    std::ofstream table(folder_ / "t.csv");
    table << "a,b,c,d,e,f,g,h,y\n";
    for (int i = 0; i < 16; ++i) table << "1,2,3,4,5,6,7," << i % 3 << ',' << i % 8 << '\n';
  }

  // The plan's number for a job, and what two steps of it, a checkpoint and an export have used.
  void measure(std::vector<std::string> job, int64_t& planned, int64_t& used) {
    const std::vector<std::string> common = {
        model_, "--data", folder_ / "t.csv", "--data-options", R"({"classes": true})", "--batch", "4"};
    job.insert(job.begin(), common.begin(), common.end());
    std::string command = std::string(EPL_TOOL) + " plan --json";
    for (const std::string& word : job) command += " '" + word + "'";
    const Json memory = try_parse_json(output_of(command));
    ASSERT_TRUE(memory.is_object());
    planned = memory.at("process_bytes");
    EXPECT_GT(planned, memory.at("peak_bytes").get<int64_t>());
    // Planning allocates none of it: the weights stay in their file.
    std::vector<std::string> plan = {EPL_TOOL, "plan"},
                             train = {EPL_TOOL, "train", "--steps", "2", "--threads", "2", "--out", folder_ / "run"};
    plan.insert(plan.end(), job.begin(), job.end());
    train.insert(train.end(), job.begin(), job.end());
    EXPECT_LT(peak_of(plan), 40 << 20);
    used = peak_of(train);
    RecordProperty("used", static_cast<int>(used >> 10));
    EXPECT_GT(used, 0);
    EXPECT_LE(used, planned + planned / 10);
  }

  const TemporaryFolder folder_;
  const std::string model_ = folder_ / "m.onnx";
};

TEST_F(Memory, AProcessNeedsWhatItsPlanSays) {
  int64_t planned = 0, used = 0;
  measure({}, planned, used);
  EXPECT_GE(used, planned - planned / 10);
}

// Beside adapters there is one copy of the weights: merged, compared with their file and written by pieces.
TEST_F(Memory, AdaptersNeedTheWeightsOnce) {
  int64_t planned = 0, used = 0;
  measure({"--lora", "net.*", "--rank", "4"}, planned, used);
  EXPECT_LT(planned, 49'000'000 + (40 << 20));
}

}  // namespace
}  // namespace epl::tools::memory_test
