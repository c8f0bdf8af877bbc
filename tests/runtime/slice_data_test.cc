// Data files by slices: processes that each read their own samples train, measure, save and go on as one process that
// reads them all. A process is a session of some ranks here; tests/tools/launch.sh has real ones.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/net/rendezvous.h"
#include "core/runtime/entry_data.h"
#include "core/runtime/evaluation.h"
#include "core/runtime/facts.h"
#include "core/runtime/session_checkpoint.h"
#include "tests/runtime/two_processes.h"
#include "tests/temporary_folder.h"

namespace epl::slice_data_test {
namespace {

struct Layout {
  std::string name, strategy;  // without the braces
  std::vector<int> ranks;      // of each process
  int64_t prefetch = 0;
  bool cut = false;  // by a split, so that bits may differ
  int world() const {
    int all = 0;
    for (const int count : ranks) all += count;
    return all;
  }
};

constexpr std::string_view stages = R"("scopes": [
  {"name": "first", "replicate": 1, "match": ["h*", "a"]}, {"name": "second", "replicate": 1, "match": ["*"]}])";
constexpr std::string_view split_stages = R"("scopes": [
  {"name": "first", "split": 2, "match": ["h*", "a"]}, {"name": "second", "split": 2, "match": ["*"]}])";

const std::string micro_batches_first = R"("batch.order": "micro_batches", "pipeline.num_micro_batch": 2)";

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> all = {
      {"alone", "", {1}},
      {"two", "", {1, 1}, 2},
      {"uneven", R"("pipeline.num_micro_batch": 2)", {1, 3}},
      {"stages", cat(R"("pipeline.num_micro_batch": 4, )", stages), {1, 1}, 3},
      {"copies_of_stages", cat(R"("pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", )", stages), {1, 1, 2}},
      {"split_stages", cat(R"("pipeline.num_micro_batch": 2, )", split_stages), {3, 1}, 0, true},
      {"micro_batches_first", micro_batches_first, {1, 1}},
      {"micro_batches_first_of_stages", cat(micro_batches_first, ", ", stages), {1, 3}}};
  return all;
}

// 45 samples of four files. One fails where it is told to, once.
class Samples : public Reader {
 public:
  explicit Samples(int64_t count) : count_(count) {}
  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return count_; }
  std::vector<int64_t> file_samples() const override { return {12, 9, 14, count_ - 35}; }
  Status read(int64_t index, int field, void* target) const override {
    if (fails && fails->exchange(false)) return Status(Code::io, cat("sample ", index, " is gone"));
    if (field == 0) {
      for (int64_t i = 0; i < 12; ++i)
        static_cast<float*>(target)[i] = static_cast<float>(philox_uniform(static_cast<uint64_t>(index), i) - 0.5);
    } else {
      *static_cast<int64_t*>(target) = index % 7 == 3 ? -100 : index % 4;
    }
    return {};
  }
  std::shared_ptr<std::atomic<bool>> fails;

 private:
  int64_t count_;
  std::vector<std::pair<std::string, TensorType>> fields_ = {{"x", {DType::f32, {12}}}, {"target", {DType::i64, {}}}};
};

// What a process has come to.
struct Seen {
  std::string state, failure;
  std::vector<double> losses;
  std::vector<double> metrics;  // of each evaluation, the loss first
};

// One process of a layout, with its data.
struct Process {
  Process(const Host& host, const Layout& layout, std::shared_ptr<const CompiledPlan> plan, int first, int count)
      : host(host), layout(layout), plan(std::move(plan)), first(first), count(count) {}
  Status open(const std::shared_ptr<Rendezvous>& rendezvous, std::shared_ptr<std::atomic<bool>> fails = nullptr) {
    EPL_ASSIGN(session, Session::create(host, plan,
                                        {.seed = 7,
                                         .first_rank = first,
                                         .ranks = count,
                                         .rendezvous = rendezvous,
                                         .join_seconds = 30,
                                         .slices = true}));
    auto reader = std::make_unique<Samples>(45);
    reader->fails = std::move(fails);
    EPL_ASSIGN(data, Dataset::create(std::move(reader),
                                     {.batch = 8, .shuffled = true, .seed = 5, .prefetch = layout.prefetch}));
    EPL_ASSIGN(held_out, Dataset::create(std::make_unique<Samples>(37),
                                         {.batch = 8, .prefetch = layout.prefetch, .partial = true}));
    EPL_TRY(shard_files(*data, *plan->entry(EntryKind::train)).status());
    EPL_TRY(bind_slice(*data, *plan, *plan->entry(EntryKind::train), first, count));
    EPL_TRY(bind_slice(*held_out, *plan, *plan->entry(EntryKind::evaluate), first, count));
    return check_dataset(*data, *plan->entry(EntryKind::train));
  }
  Status train(int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto batch = data->next();
      if (!batch.ok()) return session->world().give_up(batch.status());
      StepMetrics metrics;
      const Status stepped = session->step(*batch, metrics);
      if (!stepped.ok()) EPL_TRY(data->seek(data->position() - 1));
      EPL_TRY(stepped);
      seen.losses.push_back(metrics.loss);
    }
    return {};
  }
  Status measure() {
    EPL_ASSIGN(const auto evaluation, Evaluation::create(plan, "accuracy, top_k(k=2), perplexity"));
    EPL_TRY(evaluation->add(*session, *held_out, 0));
    for (const Evaluation::Number& one : evaluation->results()) seen.metrics.push_back(one.value);
    return evaluation->samples() == 37 ? Status() : invalid("it has measured ", evaluation->samples(), " samples");
  }
  void end() { seen.state = all_state(*session, seen.losses); }

  const Host& host;
  const Layout& layout;
  std::shared_ptr<const CompiledPlan> plan;
  int first, count;
  std::unique_ptr<Session> session;
  std::unique_ptr<Dataset> data, held_out;
  Seen seen;
};

// Each process by a thread.
template <class F> std::vector<Seen> in_processes(const Layout& layout, const std::string& keys, F&& run) {
  const Host host = process_host();
  const std::string comma = layout.strategy.empty() || keys.empty() ? "" : ", ";
  const auto plan = strategy_plan(host, layout.world(), cat("{", layout.strategy, comma, keys, "}"));
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  const auto rendezvous = memory_rendezvous();
  std::vector<Seen> seen(layout.ranks.size());
  std::vector<std::thread> threads;
  int first = 0;
  for (size_t p = 0; p < layout.ranks.size(); ++p) {
    threads.emplace_back([&, p, first] {
      Process process(host, layout, *plan, first, layout.ranks[p]);
      const Status status = run(process, rendezvous, p);
      seen[p] = process.seen;
      if (!status.ok()) seen[p].failure = status.to_string();
    });
    first += layout.ranks[p];
  }
  for (std::thread& thread : threads) thread.join();
  return seen;
}

// Seven steps, past the end of an epoch, with a measurement and a checkpoint after the third.
std::vector<Seen> trained(const Layout& layout, const std::string& keys, const std::string& folder) {
  return in_processes(layout, keys, [&](Process& process, const auto& rendezvous, size_t) -> Status {
    EPL_TRY(process.open(rendezvous));
    EPL_TRY(process.train(3));
    EPL_TRY(process.measure());
    EPL_TRY(save_session(*process.session, folder, {process.data.get(), describe_data(*process.data)}));
    EPL_TRY(process.train(4));
    process.end();
    return {};
  });
}

// Its last four, from a checkpoint.
std::vector<Seen> gone_on(const Layout& layout, const std::string& keys, const std::string& folder) {
  return in_processes(layout, keys, [&](Process& process, const auto& rendezvous, size_t) -> Status {
    EPL_TRY(process.open(rendezvous));
    EPL_TRY(load_session(*process.session, folder, {process.data.get(), describe_data(*process.data)}));
    EPL_TRY(process.train(4));
    process.end();
    return {};
  });
}

void expect_alike(const Layout& layout, const std::vector<Seen>& found, const Seen& expected) {
  for (const Seen& seen : found) {
    ASSERT_EQ(seen.failure, "") << layout.name;
    if (!layout.cut) {
      EXPECT_EQ(seen.losses, expected.losses) << layout.name;
      EXPECT_EQ(seen.metrics, expected.metrics) << layout.name;
      EXPECT_EQ(seen.state, expected.state) << layout.name;
      continue;
    }
    for (size_t i = 0; i < expected.losses.size(); ++i) EXPECT_NEAR(seen.losses[i], expected.losses[i], 1e-4);
    for (size_t i = 0; i < expected.metrics.size(); ++i) EXPECT_NEAR(seen.metrics[i], expected.metrics[i], 1e-4);
  }
}

class SliceData : public testing::TestWithParam<Layout> {};

// Training, metrics over a last batch that is not full, and going on from a checkpoint of another layout.
TEST_P(SliceData, GivesWhatOneProcessGets) {
  const Layout& layout = GetParam();
  const TemporaryFolder alone, own;
  const Seen whole = trained(layouts().front(), "", alone.path()).front();
  ASSERT_EQ(whole.failure, "");
  expect_alike(layout, trained(layout, "", own.path()), whole);
  Seen rest = gone_on(layouts().front(), "", alone.path()).front();
  ASSERT_EQ(rest.failure, "");
  EXPECT_EQ(rest.losses, std::vector<double>(whole.losses.begin() + 3, whole.losses.end()));
  expect_alike(layout, gone_on(layout, "", alone.path()), rest);
  if (!layout.cut) expect_alike(layouts().front(), gone_on(layouts().front(), "", own.path()), rest);
}

INSTANTIATE_TEST_SUITE_P(All, SliceData, testing::ValuesIn(layouts()),
                         [](const testing::TestParamInfo<Layout>& info) { return info.param.name; });

// Files that are sharded over two replicas: the same samples in one process of two ranks, in two, and where a run goes
// on with one rank.
TEST(SliceData, FilesAreShardedAlike) {
  const std::string keys = R"("io.slicing": true)";
  const Layout &alone = layouts()[0], &two = layouts()[1];
  const Layout threads{"threads", "", {2}};
  const TemporaryFolder of_threads, of_two;
  const Seen expected = trained(threads, keys, of_threads.path()).front();
  ASSERT_EQ(expected.failure, "");
  expect_alike(two, trained(two, keys, of_two.path()), expected);
  const TemporaryFolder plain;
  EXPECT_NE(trained(alone, "", plain.path()).front().losses, expected.losses) << "sharding changes the order";
  const Seen rest = gone_on(threads, keys, of_threads.path()).front();
  for (const Layout& layout : {alone, two}) expect_alike(layout, gone_on(layout, "", of_two.path()), rest);
}

// All replicas share each micro-batch, so none of them has a part of the batch that could come from its own files.
TEST(SliceData, FilesAreNotShardedWhereMicroBatchesComeFirst) {
  const Layout two{"two", micro_batches_first, {1, 1}};
  const TemporaryFolder sharded, plain;
  const Seen expected = trained(layouts().front(), "", plain.path()).front();
  ASSERT_EQ(expected.failure, "");
  expect_alike(two, trained(two, R"("io.slicing": true)", sharded.path()), expected);
}

// A sample that one process cannot read, once: nobody waits for it, each says why, and the same step follows.
TEST(SliceData, WhoCannotReadTellsTheOthers) {
  const TemporaryFolder folder;
  const Seen whole = trained(layouts().front(), "", folder.path()).front();
  const auto fails = std::make_shared<std::atomic<bool>>(false);
  const Layout two{"two", "", {1, 1}};  // nothing is read ahead
  std::vector<std::string> said(2);
  const std::vector<Seen> found =
      in_processes(two, "", [&](Process& process, const auto& rendezvous, size_t p) -> Status {
        EPL_TRY(process.open(rendezvous, p == 1 ? fails : nullptr));
        EPL_TRY(process.train(2));
        if (p == 1) *fails = true;
        said[p] = process.train(1).to_string();
        EPL_TRY(process.train(5));
        process.end();
        return {};
      });
  EXPECT_NE(said[1].find("is gone"), std::string::npos) << said[1];
  EXPECT_NE(said[0].find("rank 1: sample "), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("is gone"), std::string::npos) << said[0];
  for (const Seen& seen : found) {
    EXPECT_EQ(seen.failure, "");
    EXPECT_EQ(seen.state, whole.state);
  }
}

}  // namespace
}  // namespace epl::slice_data_test
