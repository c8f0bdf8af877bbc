// What a process needs is what epl plan says, item by item, with saving, exporting and the pages of files.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/temporary_folder.h"
#include "tests/thirds.h"
#include "tools/json.h"

namespace epl::tools::memory_test {
namespace {

namespace fs = std::filesystem;

// Bytes of files that a process has in memory; -1: it has ended, or this system does not say it.
int64_t pages_of_files(pid_t process) {
  std::ifstream rollup("/proc/" + std::to_string(process) + "/smaps_rollup");
  int64_t all = -1, anonymous = -1, number = 0;
  for (std::string word; rollup >> word;) {
    if (word == "Rss:" && rollup >> number) all = number << 10;
    if (word == "Anonymous:" && rollup >> number) anonymous = number << 10;
  }
  return all < 0 || anonymous < 0 ? -1 : all - anonymous;
}

// The most memory that a command has had, in bytes; -1 when it fails. `pages`, if not null: the most pages of files
// that were seen in it; 0: none were.
int64_t peak_of(const std::vector<std::string>& words, int64_t* pages = nullptr) {
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
  pid_t ended = 0;
  while (pages != nullptr && (ended = ::wait4(child, &status, WNOHANG, &usage)) == 0) {
    *pages = std::max(*pages, pages_of_files(child));
    ::usleep(2000);
  }
  if (pages == nullptr) ended = ::wait4(child, &status, 0, &usage);
  if (ended != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) return -1;
  return static_cast<int64_t>(usage.ru_maxrss) << 10;
}

std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char buffer[4096];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  return ::pclose(pipe) == 0 ? text : "";
}

// What epl plan says of the memory of a job.
Json plan_memory(const std::vector<std::string>& job) {
  std::string command = std::string(EPL_TOOL) + " plan --json";
  for (const std::string& word : job) command += " '" + word + "'";
  return try_parse_json(output_of(command));
}

int64_t sum_of(const Json& items) {
  int64_t sum = 0;
  for (const Json& item : items) sum += item.at("bytes").get<int64_t>();
  return sum;
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
    job.insert(job.end(), {"--threads", "2"});
    const Json memory = plan_memory(job);
    ASSERT_TRUE(memory.is_object());
    planned = memory.at("process_bytes");
    EXPECT_GT(planned, memory.at("peak_bytes").get<int64_t>());
    // Planning allocates none of it: the weights stay in their file.
    std::vector<std::string> plan = {EPL_TOOL, "plan"},
                             train = {EPL_TOOL, "train", "--steps", "2", "--out", folder_ / "run"};
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

// Of a small model most of it lies around the ranks' memory: code, graphs and programs of many layers, results on the
// host. What is measured is within 15 % of the sum of the items, and the pages of files within a quarter of theirs.
class Around : public ::testing::TestWithParam<std::vector<std::string>> {};

TEST_P(Around, EveryItemIsThere) {
  EPL_ONE_OF_THREE();
  if (EPL_SANITIZED) GTEST_SKIP() << "a sanitizer needs memory of its own";
  const TemporaryFolder folder;
  const std::string model = folder / "m.onnx";
  std::vector<std::string> words = {EPL_TOOL, "template", "gpt2", "--out", model};
  words.insert(words.end(), GetParam().begin(), GetParam().end());
  ASSERT_GE(peak_of(words), 0);
  std::ofstream text(folder / "t.txt");
  for (int i = 0; i < 3000; ++i) text << "line " << i << " the quick brown fox\n";
  text.close();
  const std::vector<std::string> job = {model, "--text", folder / "t.txt", "--batch", "4", "--threads", "2"};
  const Json memory = plan_memory(job);
  ASSERT_TRUE(memory.is_object());
  const Json& items = memory.at("process_items");
  const auto planned = memory.at("process_bytes").get<int64_t>();
  EXPECT_EQ(sum_of(items), planned);
  std::vector<std::string> train = {EPL_TOOL, "train", "--steps", "20", "--out", folder / "run"};
  train.insert(train.end(), job.begin(), job.end());
  int64_t pages = 0;
  const int64_t used = peak_of(train, &pages);
  ASSERT_GT(used, 0);
  RecordProperty("used", static_cast<int>(used >> 10));
  EXPECT_LE(used, planned + planned * 15 / 100);
  EXPECT_GE(used, planned - planned * 15 / 100);
  if (pages == 0) GTEST_SKIP() << "this system does not say which pages are those of files";
  int64_t code = 0;
  for (const Json& item : items) {
    if (item.at("what").get<std::string>().starts_with("code of ")) code = item.at("bytes").get<int64_t>();
  }
  EXPECT_LE(pages, code + code / 4);
  EXPECT_GE(pages, code - code / 4);
}

INSTANTIATE_TEST_SUITE_P(Models, Around,
                         ::testing::Values(std::vector<std::string>{"--layers", "2", "--width", "32", "--heads", "2",
                                                                    "--context", "32", "--vocab", "256"},
                                           std::vector<std::string>{"--layers", "12", "--width", "32", "--heads", "2",
                                                                    "--context", "32", "--vocab", "256"},
                                           std::vector<std::string>{"--layers", "2", "--width", "64", "--heads", "2",
                                                                    "--context", "64", "--vocab", "20000"}));

// Beside adapters there is one copy of the weights: merged, compared with their file and written by pieces.
TEST_F(Memory, AdaptersNeedTheWeightsOnce) {
  int64_t planned = 0, used = 0;
  measure({"--lora", "net.*", "--rank", "4"}, planned, used);
  EXPECT_LT(planned, 49'000'000 + (40 << 20));
}

}  // namespace
}  // namespace epl::tools::memory_test
