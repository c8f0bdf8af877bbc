// Faults of a GPU, its driver and NCCL, on the machine for tests: the session ends with an error that names the call,
// the node and the device, and the process goes on with other devices. Run with EPL_TEST_MACHINE = devices=h100,... of
// eight in the environment (ctest cuda.faults); skipped elsewhere. A GPU on which something has failed is of no use to
// the tests that follow, so each has its own.
#include "tests/cuda/machine_device.h"
#include "tests/runtime/lone_rank.h"

namespace epl::faults_of_gpus_test {
namespace {

class FaultsOfGpus : public MachineDevice {
 protected:
  static bool says(const Status& status, std::string_view part) { return status.message().find(part) != part.npos; }

  // What a first step ends with behind these settings.
  Status step_with(const std::string& device, const std::string& settings) {
    const auto plan = plan_on(device, dropout_mlp);
    EXPECT_TRUE(plan.ok()) << plan.status().to_string();
    if (!plan.ok()) return plan.status();
    const auto session = Session::create(host(), *plan, {.seed = 7});
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    if (!session.ok()) return session.status();
    set(settings);
    StepMetrics metrics;
    const Status status = (*session)->step(skip_mlp_batch(0), metrics);
    set("eager=0 launch_fails=0 copy_fails=0 allocation_fails=0");
    EXPECT_FALSE((*session)->step(skip_mlp_batch(1), metrics).ok()) << "the GPU is of no use any more";
    return status;
  }
  void expect_the_process_goes_on() {
    expect_same(train(plan_on("cuda:0", dropout_mlp), "another GPU", 2, skip_mlp_batch),
                train(plan_on("cpu", dropout_mlp), "the processor", 2, skip_mlp_batch), "behind a fault");
  }
};

TEST_F(FaultsOfGpus, ALaunchThatFailsIsNamed) {
  const Status failed = step_with("cuda:1", "eager=1 launch_fails=3");
  EXPECT_EQ(failed.code(), Code::state_lost) << failed.to_string();
  EXPECT_TRUE(says(failed, "device cuda:1, kernel ")) << failed.to_string();
  EXPECT_TRUE(says(failed, "cuLaunchKernel gave CUDA_ERROR_LAUNCH_FAILED")) << failed.to_string();
  EXPECT_FALSE(failed.where().empty()) << failed.to_string();
  expect_the_process_goes_on();
}

// What comes up later is named by the call that has heard of it, and by a node that was given behind.
TEST_F(FaultsOfGpus, ALaunchThatFailsLaterNamesWhoHeardOfIt) {
  for (int seed = 1; seed <= 3; ++seed) {
    const std::string device = cat("cuda:", 1 + seed);
    const Status failed = step_with(device, cat("seed=", seed, " launch_fails=", 1 + 2 * seed));
    EXPECT_TRUE(says(failed, cat("device ", device, ", "))) << failed.to_string();
    EXPECT_TRUE(says(failed, "gave CUDA_ERROR_LAUNCH_FAILED")) << failed.to_string();
    EXPECT_TRUE(!failed.where().empty() || says(failed, "whose last command is of node ")) << failed.to_string();
  }
  expect_the_process_goes_on();
}

// The first copy is that of the numbers of the step.
TEST_F(FaultsOfGpus, ACopyThatFailsIsNamed) {
  for (const int copy : {2, 3}) {
    const std::string device = cat("cuda:", 3 + copy);
    const Status failed = step_with(device, cat("copy_fails=", copy));
    EXPECT_TRUE(says(failed, cat("device ", device, ", "))) << failed.to_string();
    EXPECT_TRUE(says(failed, ": cuMemcpyHtoDAsync gave CUDA_ERROR_LAUNCH_FAILED")) << failed.to_string();
    EXPECT_FALSE(failed.where().empty()) << failed.to_string();
  }
  expect_the_process_goes_on();
}

TEST_F(FaultsOfGpus, ASlowStreamChangesNoBit) {
  const auto plan = plan_on("cuda:0", dropout_mlp, 1, R"("pipeline.num_micro_batch": 2)");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  LoneRank reference(**plan);
  std::vector<TraceEvent> events;
  reference.executor().record(&events);
  const uint64_t begin = count("streams");
  LoneRank slow(**plan);
  slow.executor().record(&events);  // steps that are given
  const uint64_t end = count("streams");
  ASSERT_GE(end - begin, 3u);
  int step = 0;
  for (uint64_t stream = begin; stream < end; ++stream, ++step) {
    reference.run(step);
    set(cat("slow_stream=", stream));
    slow.run(step);
    set("slow_stream=-1");
    const auto same = [](const Tensor& x, const Tensor& y) { return identical(x, y); };
    ASSERT_TRUE(std::ranges::equal(slow.outputs(), reference.outputs(), same)) << stream;
    ASSERT_TRUE(std::ranges::equal(slow.state(), reference.state(), same)) << stream;
  }
}

// No GPU is lost by it, so that a session of the same ones begins anew.
TEST_F(FaultsOfGpus, ACallOfNcclThatFailsIsNamed) {
  const auto plan_of_two = [] { return plan_on("cuda:0,7", skip_mlp, 2, "", "run"); };
  const Trained undisturbed = train(plan_of_two(), "two GPUs", 2, skip_mlp_batch);
  for (int seed = 1; seed <= 3; ++seed) {
    const auto plan = plan_of_two();
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const auto session = Session::create(host(), *plan, {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    set(cat("seed=", seed, " collective_fails=", seed));
    StepMetrics metrics;
    Status failed;
    for (int step = 0; step < 3 && failed.ok(); ++step) failed = (*session)->step(skip_mlp_batch(step), metrics);
    set("collective_fails=0");
    EXPECT_TRUE(says(failed, "device cuda:")) << failed.to_string();
    EXPECT_TRUE(says(failed, ": nccl")) << failed.to_string();
    EXPECT_TRUE(says(failed, " gave unhandled system error")) << failed.to_string();
    EXPECT_FALSE(failed.where().empty()) << failed.to_string();
    EXPECT_FALSE((*session)->step(skip_mlp_batch(3), metrics).ok()) << "its group was aborted";
  }
  expect_same(train(plan_of_two(), "two GPUs again", 2, skip_mlp_batch), undisturbed, "behind three faults");
}

}  // namespace
}  // namespace epl::faults_of_gpus_test
