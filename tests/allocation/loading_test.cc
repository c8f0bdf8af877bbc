// A checkpoint goes on under another layout, and neither loading nor saving it needs a tensor of all ranks in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "core/net/rendezvous.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/allocation/heap.h"
#include "tests/runtime/graph_model.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::loading_test {
namespace {

// Two weights of 12 MB: their rows are short, and a split cuts one by its rows and the other by its columns.
constexpr std::string_view model = R"(graph wide(x: f32[4,3072] batch 0) {
  w1: f32[3072,1024] = param
  b1: f32[1024] = param
  w2: f32[1024,3072] = param
  forward:
  h: f32[4,1024] = matmul(x, w1)
  hb: f32[4,1024] = add(h, b1)
  a: f32[4,1024] = relu(hb)
  y: f32[4,3072] = matmul(a, w2)
  output y = y
}
)";
// With AdamW's two moments.
constexpr int64_t state_bytes = 3 * (2 * 12 << 20);

Host host_of_ranks() {
  Host host = test_host(1);
  host.seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  return host;
}

struct Layout {
  int64_t ranks = 1;
  std::string keys = {};  // of the strategy
};

class Loading : public testing::Test {
 protected:
  static void SetUpTestSuite() { weights = new std::shared_ptr<const Model>(GraphModel::parse(model)); }
  static void TearDownTestSuite() { delete weights; }
  void SetUp() override {
    if (!heap_is_counted()) GTEST_SKIP() << "a sanitizer owns malloc in this build";
  }

  static std::unique_ptr<Session> make(const Layout& layout, SessionOptions options = {}) {
    PlanOptions plan;
    plan.model = *weights;
    plan.train.loss.name = "softmax_cross_entropy";
    plan.train.optimizer = "adamw";
    plan.ranks = layout.ranks;
    plan.strategy = parse_strategy(cat("{", layout.keys, "}")).value();
    auto compiled = CompiledPlan::create(host_of_ranks(), plan);
    EXPECT_TRUE(compiled.ok()) << compiled.status().to_string();
    if (!compiled.ok()) return nullptr;
    options.seed = 7;
    auto session = Session::create(host_of_ranks(), *compiled, options);
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    if (!session.ok()) return nullptr;
    return std::move(*session);
  }
  static double step(Session& session, int number) {
    Tensor x(TensorType{DType::f32, {4, 3072}});
    for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 7 + number) % 13) - 6);
    const Tensor inputs[] = {x, Tensor::from_ints({5, 17, 1000 + number, 3071})};
    StepMetrics metrics;
    const Status status = session.step(inputs, metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return metrics.loss;
  }
  static int64_t largest_shard(const Session& session) {
    int64_t out = 0;
    for (const auto& rank : session.world().ranks()) {
      for (const StateSlot& slot : session.plan().state_of(rank->virtual_device).slots())
        out = std::max(out, slot.local.bytes());
    }
    return out;
  }
  // What a load takes, in bytes of the heap. The chunk that files are hashed through is 4 MiB.
  static void load_in_little_memory(Session& session, const std::string& folder) {
    Status status;
    const int64_t taken = most_heap_of([&] { status = load_session(session, folder); });
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_LE(taken, 5 << 20) << "a shard is read where it lies";
    EXPECT_GT(taken, 0);
  }
  static void expect_same_state(Session& one, Session& other) {
    for (const StateSlot& slot : one.plan().state().slots())
      EXPECT_TRUE(identical(*one.state().get(slot.name), *other.state().get(slot.name))) << slot.name;
  }

  static std::shared_ptr<const Model>* weights;
  const TemporaryFolder folder_;
  const std::string saved_ = folder_ / "saved";
};
std::shared_ptr<const Model>* Loading::weights = nullptr;

TEST_F(Loading, OfOneRankByFour) {
  const auto one = make({});
  ASSERT_TRUE(one);
  step(*one, 0);
  ASSERT_TRUE(save_session(*one, saved_).ok());
  const auto four = make({4, R"("default": {"split": 4})"});
  ASSERT_TRUE(four);
  EXPECT_LE(largest_shard(*four), 3 << 20);
  load_in_little_memory(*four, saved_);
  expect_same_state(*one, *four);
}

TEST_F(Loading, OfFourProcessesByThreeRanks) {
  EPL_ONE_OF_THREE();
  const auto rendezvous = memory_rendezvous();
  std::vector<std::unique_ptr<Session>> sessions(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      SessionOptions own = {.first_rank = r, .ranks = 1, .rendezvous = rendezvous, .join_seconds = 60};
      own.silence_seconds = 60;
      sessions[r] = make({4, R"("default": {"split": 4})"}, own);
      if (sessions[r]) step(*sessions[r], 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(std::ranges::all_of(sessions, [](const auto& session) { return session != nullptr; }));
  std::vector<Status> saves(4);
  const int64_t taken = most_heap_of([&] {
    for (int r = 0; r < 4; ++r) threads[r] = std::thread([&, r] { saves[r] = save_session(*sessions[r], saved_); });
    for (std::thread& thread : threads) thread.join();
  });
  for (const Status& status : saves) ASSERT_TRUE(status.ok()) << status.to_string();
  // Four chunks that files are hashed through, and what was written into a file.
  EXPECT_LE(taken, 36 << 20);
  EXPECT_LT(taken, state_bytes / 2);

  const auto one = make({}), three = make({3, R"("default": {"split": 3})"});
  ASSERT_TRUE(one && three);
  EXPECT_LE(largest_shard(*three), 5 << 20);
  load_in_little_memory(*three, saved_);
  load_in_little_memory(*one, saved_);
  // What it would take with all tensors in memory.
  std::vector<Tensor> all;
  const int64_t joined_in_memory = most_heap_of([&] {
    const auto loaded = load_checkpoint(saved_);
    for (const CheckpointItem& item : loaded->items) all.push_back(*item.value.load());
  });
  EXPECT_GE(joined_in_memory, state_bytes);
  expect_same_state(*one, *three);
  // And all ranks of one process, of which each holds a shard, save what lies on them.
  Status saved;
  EXPECT_LE(most_heap_of([&] { saved = save_session(*three, saved_); }), 10 << 20);
  ASSERT_TRUE(saved.ok()) << saved.to_string();
  load_in_little_memory(*one, saved_);
  expect_same_state(*one, *three);
}

// The layout over time, and copies that share out their state, are no different.
TEST_F(Loading, UnderOtherMicroBatchesAndNestings) {
  EPL_ONE_OF_THREE();
  const Layout layouts[] = {
      {1, R"("pipeline.num_micro_batch": 4)"},
      {4, R"("pipeline.num_micro_batch": 2, "default": {"split": 2})"},
      {2, R"("zero.level": "v0")"},
      {4, R"("pipeline.num_micro_batch": 2, "scopes": [{"name": "first", "split": 2, "match": ["h*", "a"]},
             {"name": "second", "split": 2, "match": ["*"]}])"},
      {2, R"("pipeline.num_micro_batch": 2, "scopes": [{"name": "first", "replicate": 1, "match": ["h*", "a"]},
             {"name": "second", "replicate": 1, "match": ["*"]}])"}};
  const auto one = make({});
  ASSERT_TRUE(one);
  step(*one, 0);
  std::string last = saved_;
  ASSERT_TRUE(save_session(*one, last).ok());
  for (size_t i = 0; i < std::size(layouts); ++i) {
    const auto other = make(layouts[i]);
    ASSERT_TRUE(other) << layouts[i].keys;
    load_in_little_memory(*other, last);
    expect_same_state(*one, *other);
    last = folder_ / cat("saved", i);
    ASSERT_TRUE(save_session(*other, last).ok());
  }
  const auto again = make({});
  ASSERT_TRUE(again);
  load_in_little_memory(*again, last);
  EXPECT_EQ(step(*again, 1), step(*one, 1));
  expect_same_state(*one, *again);
}

}  // namespace
}  // namespace epl::loading_test
