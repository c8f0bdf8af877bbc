// Steps that are recorded, on the machine for tests: they have the bits of steps that are given command by command, and
// what cannot be recorded is given so. Run with EPL_TEST_MACHINE = devices=h100,h100,h100 in the environment
// (ctest cuda.recorded); skipped elsewhere.
#include <dlfcn.h>

#include <algorithm>
#include <limits>

#include "tests/runtime/lone_rank.h"

namespace epl::recorded_test {
namespace {

constexpr int replayed_steps = 8;

class RecordedSteps : public testing::Test {
 protected:
  void SetUp() override {
    const auto opened = open_device("cuda:0", host(), {});
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    library_ = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library_ == nullptr || ::dlsym(library_, "epl_test_machine_set") == nullptr)
      GTEST_SKIP() << "the driver is a real one";
  }

  static Host host() {
    Host made = test_host(2);
    made.packs = EPL_PACK_FOLDER;
    made.kernel_cache = EPL_TEST_KERNELS;
    return made;
  }
  static Result<std::shared_ptr<const CompiledPlan>> plan_on(const std::string& device, const std::string& keys = "",
                                                             int64_t ranks = 1) {
    EPL_ASSIGN(PlanOptions options, layout_options(GraphModel::parse(dropout_mlp), ranks, at_level("exact", keys)));
    options.device = device;
    return CompiledPlan::create(host(), options);
  }
  static std::string micro_batches(int count) { return cat("\"pipeline.num_micro_batch\": ", count); }

  void set(const char* words) {
    ASSERT_EQ(reinterpret_cast<int (*)(const char*)>(::dlsym(library_, "epl_test_machine_set"))(words), 0);
  }
  uint64_t count(const char* what) {
    return reinterpret_cast<uint64_t (*)(const char*)>(::dlsym(library_, "epl_test_machine_count"))(what);
  }

 private:
  void* library_ = nullptr;
};

bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return identical(x, y); });
}

// An executor whose runs are written down gives each command itself.
struct Written {
  explicit Written(LoneRank& rank) { rank.executor().record(&events); }
  std::vector<TraceEvent> events;
};

TEST_F(RecordedSteps, HaveTheBitsOfStepsThatAreGiven) {
  for (const int parts : {1, 2, 4}) {
    const auto plan = plan_on("cuda:0", micro_batches(parts));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    LoneRank given(**plan), replayed(**plan);
    ASSERT_GE(given.program().drawn_at, 0) << "the model draws";
    const Written written(given);
    given.run(0);
    const uint64_t none = count("graphs");
    replayed.run(0);
    EXPECT_EQ(count("graphs"), none) << "the first step is not recorded";
    uint64_t nodes = 0;
    for (int step = 1; step <= replayed_steps; ++step) {
      given.run(step);
      const uint64_t graphs = count("graphs");
      replayed.run(step);
      // One in front of the commit, and one behind it.
      ASSERT_EQ(count("graphs") - graphs, 2u) << "step " << step << ": " << replayed.executor().not_recorded();
      if (step == 1) nodes = count("recorded");
      ASSERT_TRUE(equal(replayed.outputs(), given.outputs())) << "step " << step << ", " << parts << " micro-batches";
      ASSERT_TRUE(equal(replayed.state(), given.state())) << "step " << step << ", " << parts << " micro-batches";
    }
    EXPECT_EQ(count("recorded"), nodes) << "it is recorded once";
  }
}

// What the host gives for a step is an upload of the block, two graphs, and a question about the verdict.
TEST_F(RecordedSteps, TakeTheSameFewCallsWhateverTheyHold) {
  std::vector<uint64_t> besides;
  for (const int parts : {1, 4}) {
    const auto plan = plan_on("cuda:0", micro_batches(parts));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    LoneRank rank(**plan);
    rank.run(0);
    const uint64_t before = count("recorded");
    rank.run(1);
    const uint64_t nodes = count("recorded") - before, commands = count("commands");
    rank.run(2);
    besides.push_back(count("commands") - commands - nodes);
  }
  EXPECT_EQ(besides[0], besides[1]);
  EXPECT_LE(besides[0], 8u);  // a graph begins and ends with a command of the machine's own
}

TEST_F(RecordedSteps, AreRecordedAnewWhereMemoryHasMoved) {
  const auto plan = plan_on("cuda:0");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  LoneRank given(**plan), replayed(**plan);
  const Written written(given);
  for (int step = 0; step < 4; ++step) {
    if (step == 3) replayed.move_arena();
    given.run(step);
    const uint64_t nodes = count("recorded");
    replayed.run(step);
    EXPECT_EQ(count("recorded") > nodes, step == 1 || step == 3) << step;
    ASSERT_TRUE(equal(replayed.outputs(), given.outputs())) << step;
    ASSERT_TRUE(equal(replayed.state(), given.state())) << step;
  }
}

std::vector<Tensor> batch_of(int step, bool spoiled) {
  std::vector<Tensor> batch = skip_mlp_batch(step);
  if (spoiled) batch[0].set(0, std::numeric_limits<double>::quiet_NaN());
  return batch;
}

TEST_F(RecordedSteps, ThatAreRefusedChangeNothing) {
  std::vector<Trained> trained;
  for (const char* device : {"cpu", "cuda:0"}) {
    const auto plan = plan_on(device);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto session = Session::create(host(), *plan, {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Trained& one = trained.emplace_back();
    for (int step = 0; step < 5; ++step) {
      StepMetrics metrics;
      const Status status = (*session)->step(batch_of(step, step == 3), metrics);
      ASSERT_TRUE(status.ok()) << device << ": " << status.to_string();
      EXPECT_EQ(metrics.skipped.ok(), step != 3) << device << ": " << metrics.skipped.to_string();
      if (metrics.skipped.ok()) one.losses.push_back(metrics.loss);
    }
    for (const StateSlot& slot : (*plan)->state().slots())
      one.state.emplace(slot.name, *(*session)->state().get(slot.name));
  }
  expect_same(trained[1], trained[0], "a step that is refused between others");
}

// Without memory for a recording, steps are given as before.
TEST_F(RecordedSteps, AreGivenWhereTheyCannotBeRecorded) {
  const auto plan = plan_on("cuda:0");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  LoneRank given(**plan), refused(**plan);
  const Written written(given);
  for (int step = 0; step < 4; ++step) {
    given.run(step);
    if (step == 1) set("allocation_fails=1");
    const uint64_t graphs = count("graphs");
    refused.run(step);
    EXPECT_EQ(count("graphs"), graphs) << step;
    ASSERT_TRUE(equal(refused.outputs(), given.outputs())) << step;
    ASSERT_TRUE(equal(refused.state(), given.state())) << step;
  }
  EXPECT_NE(refused.executor().not_recorded().find("cuMemAlloc"), std::string::npos)
      << refused.executor().not_recorded();
}

TEST_F(RecordedSteps, RanksOnOneGpuAreGivenTheirs) {
  const uint64_t graphs = count("graphs");
  const auto two = plan_on("cuda:0", "", 2);
  const Trained together = train(two, "two ranks on one GPU", 3, skip_mlp_batch);
  EXPECT_EQ(count("graphs"), graphs);
  expect_same(together, train(plan_on("cpu"), "the processor", 3, skip_mlp_batch), "two ranks on one GPU");
  const std::string said = two.ok() ? *(*two)->text(EntryKind::train, "kernels") : "";
  EXPECT_NE(said.find("steps are given to the device anew each time: 2 ranks meet on the host"), std::string::npos)
      << said;
  const auto alone = plan_on("cuda:0");
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  const auto kernels = (*alone)->text(EntryKind::train, "kernels");
  ASSERT_TRUE(kernels.ok()) << kernels.status().to_string();
  EXPECT_NE(kernels->find("steps are recorded after the first one"), std::string::npos) << *kernels;
}

// A recording does not keep memory alive. The GPU is of no use behind that, and no other test has it.
TEST_F(RecordedSteps, AStalePointerIsFound) {
  const auto device = open_device("cuda:2", host(), {});
  ASSERT_TRUE(device.ok()) << device.status().to_string();
  const auto on = (*device)->create_stream(1);
  ASSERT_TRUE(on.ok()) << on.status().to_string();
  StreamRecorder* const recorder = (*on)->recorder();
  ASSERT_NE(recorder, nullptr);
  auto data = (*device)->allocate(4096);
  ASSERT_TRUE(data.ok()) << data.status().to_string();
  ASSERT_TRUE(recorder->begin().ok());
  (*on)->fill((*data)->data(), 4096, 1);
  auto recording = recorder->end();
  ASSERT_TRUE(recording.ok()) << recording.status().to_string();
  recorder->replay(**recording);
  ASSERT_TRUE((*on)->synchronize().ok());
  data->reset();
  recorder->replay(**recording);
  EXPECT_FALSE((*on)->synchronize().ok()) << "the memory has gone";
}

// The last one: the machine keeps a device that is lost.
TEST_F(RecordedSteps, ALostGpuFailsTheSessionAndNotTheProcess) {
  const auto plan = plan_on("cuda:1");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto session = Session::create(host(), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  StepMetrics metrics;
  for (int step = 0; step < 3; ++step) {
    const Status status = (*session)->step(skip_mlp_batch(step), metrics);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  const uint64_t graphs = count("graphs");
  set("device_lost=6 lost_device=1");
  const Status lost = (*session)->step(skip_mlp_batch(3), metrics);
  EXPECT_FALSE(lost.ok());
  EXPECT_NE(lost.message().find("device cuda:1"), std::string::npos) << lost.to_string();
  EXPECT_GT(count("graphs"), graphs) << "it was lost while a graph was carried out";
  EXPECT_FALSE((*session)->step(skip_mlp_batch(4), metrics).ok());
  expect_same(train(plan_on("cuda:0"), "another GPU", 3, skip_mlp_batch),
              train(plan_on("cpu"), "the processor", 3, skip_mlp_batch), "behind a GPU that was lost");
}

}  // namespace
}  // namespace epl::recorded_test
