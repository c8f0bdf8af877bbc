// Every layout over processes: stages, weights in pieces and copies of them, whose ranks live in several processes,
// give the bits that one process gives, and what one layout has saved goes on under another.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/runtime/export.h"
#include "core/runtime/session_state.h"
#include "tests/runtime/two_processes.h"

namespace epl {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view two_stages = R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr std::string_view split_stages = R"({"pipeline.num_micro_batch": 2, "scopes": [
  {"name": "first", "split": 2, "match": ["h*", "a"]}, {"name": "second", "split": 2, "match": ["*"]}]})";

struct Layout {
  std::string name, strategy;
  std::vector<int> ranks;  // of each process
  int world() const {
    int all = 0;
    for (const int of_process : ranks) all += of_process;
    return all;
  }
};

using Words = std::vector<std::string>;

// A job whose first process is this one.
class OverProcesses : public testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    folder = (fs::temp_directory_path() / ("epl_layouts_" + std::to_string(::getpid()))).string();
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override {
    for (const pid_t child : children) ::kill(child, SIGKILL), ::waitpid(child, nullptr, 0);
    fs::remove_all(folder);
  }
  std::unique_ptr<Session> start(const Layout& layout, int steps, const Words& more = {}) {
    meet = cat(folder, "/meet", ++jobs);
    int first = layout.ranks.front();
    for (size_t p = 1; p < layout.ranks.size(); ++p) {
      Words words = {RANK_PROCESS,
                     meet,
                     std::to_string(first),
                     std::to_string(layout.ranks[p]),
                     std::to_string(layout.world()),
                     std::to_string(steps),
                     result_of(p),
                     "strategy",
                     layout.strategy};
      words.insert(words.end(), more.begin(), more.end());
      std::vector<char*> pointers;
      for (std::string& word : words) pointers.push_back(word.data());
      pointers.push_back(nullptr);
      const pid_t child = ::fork();
      if (child == 0) {
        ::execv(pointers[0], pointers.data());
        ::_exit(127);
      }
      children.push_back(child);
      first += layout.ranks[p];
    }
    plan = strategy_plan(host, layout.world(), layout.strategy).value();
    auto made = Session::create(
        host, plan,
        {.seed = 7, .ranks = layout.ranks.front(), .rendezvous = folder_rendezvous(meet).value(), .join_seconds = 30});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }
  void expect_others_end_well() {
    for (const pid_t child : children) {
      int status = -1;
      EXPECT_GT(::waitpid(child, &status, 0), 0);
      EXPECT_EQ(status, 0);
    }
    children.clear();
  }
  std::string result_of(size_t process) const { return cat(meet, ".result", process); }
  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  Host host = process_host();
  std::string folder, meet;
  int jobs = 0;
  std::shared_ptr<const CompiledPlan> plan;
  std::vector<pid_t> children;
};

std::vector<double> train(Session& session, int steps) {
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    StepMetrics metrics;
    const Status status = session.step(mlp_batch(step), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    losses.push_back(metrics.loss);
  }
  return losses;
}

// Losses, state and a prediction.
std::string answer(Session& session, const std::vector<double>& losses) {
  std::vector<Tensor> outputs = {Tensor(TensorType{DType::f32, {8, 4}})};
  const std::vector<Tensor> batch = mlp_batch(100);
  const Status status = session.predict(std::span(batch).first(1), outputs);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return all_state(session, losses)
      .append(static_cast<const char*>(outputs[0].data()), static_cast<size_t>(outputs[0].bytes()));
}

TEST_P(OverProcesses, LearnsTheSameBitsAsOneProcess) {
  const Layout& layout = GetParam();
  auto alone = Session::create(host, *strategy_plan(host, layout.world(), layout.strategy), 7).value();
  const std::string expected = answer(*alone, train(*alone, 4));
  auto session = start(layout, 4);
  ASSERT_TRUE(session);
  EXPECT_TRUE(answer(*session, train(*session, 4)) == expected);
  expect_others_end_well();
  for (size_t p = 1; p < layout.ranks.size(); ++p) EXPECT_TRUE(read(result_of(p)) == expected) << "process " << p;
}

// What processes save together, one process and processes of another layout go on with, and what is exported is the
// same.
TEST_P(OverProcesses, SavesWhatOtherLayoutsLoad) {
  const std::string saved = folder + "/checkpoint", exported = folder + "/weights.safetensors";
  auto session = start(GetParam(), 2, {"save", saved, "export", exported});
  ASSERT_TRUE(session);
  const std::vector<double> losses = train(*session, 2);
  Status status = save_session(*session, saved);
  ASSERT_TRUE(status.ok()) << status.to_string();
  status = export_weights(*session, exported);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const std::string state = answer(*session, losses);
  expect_others_end_well();

  auto alone = Session::create(host, *strategy_plan(host, 1, "{}"), 1).value();
  status = load_session(*alone, saved);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(alone->steps_done(), 2);
  const std::string whole = all_state(*alone, losses);
  EXPECT_TRUE(state.starts_with(whole));
  ASSERT_TRUE(export_weights(*alone, exported + ".alone").ok());
  EXPECT_TRUE(read(exported + ".alone") == read(exported));

  const Layout other = {
      "", GetParam().strategy == split_stages ? R"({"default": {"split": 2}})" : std::string(split_stages),
      GetParam().strategy == split_stages ? std::vector<int>{1, 1} : std::vector<int>{3, 1}};
  auto again = start(other, 0, {"load", saved});
  ASSERT_TRUE(again);
  status = load_session(*again, saved);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(answer(*again, losses).starts_with(whole));
  expect_others_end_well();
}

INSTANTIATE_TEST_SUITE_P(, OverProcesses,
                         testing::Values(Layout{"stages", std::string(two_stages), {1, 1}},
                                         Layout{"split", R"({"default": {"split": 2}})", {1, 1}},
                                         Layout{"split_beside_data", R"({"default": {"split": 2}})", {1, 3}},
                                         Layout{"stages_beside_data", std::string(two_stages), {1, 1, 1, 1}},
                                         Layout{"split_in_stages", std::string(split_stages), {1, 1, 1, 1}},
                                         Layout{
                                             "split_in_stages_beside_data", std::string(split_stages), {2, 2, 2, 2}}),
                         [](const auto& info) { return info.param.name; });

// Each process says where in its piece a weight is not a number, in the same words.
TEST_F(OverProcesses, SayTheSameOfAStepThatIsSkipped) {
  const Layout layout = {"", std::string(split_stages), {2, 2}};
  const auto skipped = [](Session& session) {
    Tensor weight = *session.state("w2");
    weight.set(3 * 16 + 13, NAN);
    EXPECT_TRUE(session.set_state("w2", weight).ok());
    StepMetrics metrics;
    EXPECT_TRUE(session.step(mlp_batch(0), metrics).ok());
    return metrics.skipped.message();
  };
  auto alone = Session::create(host, *strategy_plan(host, 4, layout.strategy), 7).value();
  const std::string expected = skipped(*alone);
  EXPECT_NE(expected.find("w2 itself holds nan"), std::string::npos) << expected;
  auto session = start(layout, 1, {"damage", "w2"});
  ASSERT_TRUE(session);
  EXPECT_EQ(skipped(*session), expected);
  expect_others_end_well();
  EXPECT_EQ(read(result_of(1)), expected);
  EXPECT_EQ(save_session(*session, folder + "/damaged").code(), Code::peer_failed);
}

}  // namespace
}  // namespace epl
