// Every layout over processes: stages, weights in shards and copies of them, whose ranks live in several processes,
// give the bits that one process gives, and what one layout has saved goes on under another.
#include <gtest/gtest.h>

#include "core/net/rendezvous.h"
#include "core/runtime/export.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/rank_processes.h"

namespace epl::layouts_over_processes_test {
namespace {

constexpr std::string_view two_stages = R"({"pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", "scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}]})";
constexpr std::string_view compared = R"({"gradient_checkpoint.type": "collection",
  "gradient_checkpoint.tensors": "skip", "gradient_checkpoint.check_gradients": true})";
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

// A job whose first process is this one.
class OverProcesses : public testing::TestWithParam<Layout> {
 protected:
  std::unique_ptr<Session> start(const Layout& layout, int steps, const std::vector<std::string>& more = {}) {
    processes.new_job();
    std::vector<std::string> words = {"strategy", layout.strategy};
    words.insert(words.end(), more.begin(), more.end());
    int first = layout.ranks.front();
    for (size_t p = 1; p < layout.ranks.size(); ++p) {
      processes.start(first, layout.ranks[p], layout.world(), steps, words);
      first += layout.ranks[p];
    }
    plan = strategy_plan(host, layout.world(), layout.strategy).value();
    auto made = Session::create(host, plan,
                                {.seed = 7,
                                 .ranks = layout.ranks.front(),
                                 .rendezvous = folder_rendezvous(processes.rendezvous()).value(),
                                 .join_seconds = 30});
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }

  Host host = process_host();
  RankProcesses processes;
  std::shared_ptr<const CompiledPlan> plan;
};

TEST_P(OverProcesses, LearnsTheSameBitsAsOneProcess) {
  const Layout& layout = GetParam();
  auto alone = Session::create(host, *strategy_plan(host, layout.world(), layout.strategy), {.seed = 7}).value();
  const std::string expected = answer(*alone, train(*alone, 4));
  auto session = start(layout, 4);
  ASSERT_TRUE(session);
  EXPECT_TRUE(answer(*session, train(*session, 4)) == expected);
  processes.expect_good_ends();
  for (size_t p = 0; p < processes.count(); ++p) EXPECT_TRUE(processes.result(p) == expected) << "process " << p + 1;
}

// What processes save together, one process and processes of another layout go on with, and what is exported is the
// same.
TEST_P(OverProcesses, SavesWhatOtherLayoutsLoad) {
  const std::string saved = processes.folder() + "/checkpoint", exported = processes.folder() + "/weights.safetensors";
  auto session = start(GetParam(), 2, {"save", saved, "export", exported});
  ASSERT_TRUE(session);
  const std::vector<double> losses = train(*session, 2);
  Status status = save_session(*session, saved);
  ASSERT_TRUE(status.ok()) << status.to_string();
  status = export_weights(*session, exported);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const std::string state = answer(*session, losses);
  processes.expect_good_ends();

  auto alone = Session::create(host, *strategy_plan(host, 1, "{}"), {.seed = 1}).value();
  status = load_session(*alone, saved);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(alone->host_state().steps_done(), 2);
  const std::string whole = all_state(*alone, losses);
  EXPECT_TRUE(state.starts_with(whole));
  ASSERT_TRUE(export_weights(*alone, exported + ".alone").ok());
  EXPECT_TRUE(RankProcesses::read(exported + ".alone") == RankProcesses::read(exported));

  const Layout other = {
      "", GetParam().strategy == split_stages ? R"({"default": {"split": 2}})" : std::string(split_stages),
      GetParam().strategy == split_stages ? std::vector<int>{1, 1} : std::vector<int>{3, 1}};
  auto again = start(other, 0, {"load", saved});
  ASSERT_TRUE(again);
  status = load_session(*again, saved);
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_TRUE(answer(*again, losses).starts_with(whole));
  processes.expect_good_ends();
}

INSTANTIATE_TEST_SUITE_P(, OverProcesses,
                         testing::Values(Layout{"stages", std::string(two_stages), {1, 1}},
                                         Layout{"computed_again_and_compared", std::string(compared), {1, 1}},
                                         Layout{"split", R"({"default": {"split": 2}})", {1, 1}},
                                         Layout{"split_beside_data", R"({"default": {"split": 2}})", {1, 3}},
                                         Layout{"stages_beside_data", std::string(two_stages), {1, 1, 1, 1}},
                                         Layout{"split_in_stages", std::string(split_stages), {1, 1, 1, 1}},
                                         Layout{
                                             "split_in_stages_beside_data", std::string(split_stages), {2, 2, 2, 2}}),
                         [](const auto& info) { return info.param.name; });

// Each process says where in its shard a weight is not a number, in the same words.
TEST_F(OverProcesses, SayTheSameOfAStepThatIsSkipped) {
  const Layout layout = {"", std::string(split_stages), {2, 2}};
  const auto skipped = [](Session& session) {
    Tensor weight = *session.state().get("w2");
    weight.set(3 * 16 + 13, NAN);
    EXPECT_TRUE(session.state().set("w2", weight).ok());
    StepMetrics metrics;
    EXPECT_TRUE(session.step(mlp_batch(0), metrics).ok());
    return cat(metrics.skipped.rank(), " ", metrics.skipped.message());
  };
  auto alone = Session::create(host, *strategy_plan(host, 4, layout.strategy), {.seed = 7}).value();
  const std::string expected = skipped(*alone);
  EXPECT_NE(expected.find("w2 itself holds nan"), std::string::npos) << expected;
  auto session = start(layout, 1, {"damage", "w2"});
  ASSERT_TRUE(session);
  EXPECT_EQ(skipped(*session), expected);
  processes.expect_good_ends();
  EXPECT_EQ(processes.result(0), expected);
  EXPECT_EQ(save_session(*session, processes.folder() + "/damaged").code(), Code::peer_failed);
}

}  // namespace
}  // namespace epl::layouts_over_processes_test
