// A step is a fixed list of commands: what one step of a rank gave to its streams is given to them again, in place of
// later steps. All that the host sets for a step is one block of bytes. The device decides whether the step is applied,
// and the host waits once, at the end.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/backend/far_device.h"
#include "tests/runtime/lone_rank.h"

namespace epl::recorded_step_test {
namespace {

constexpr int replays = 20;

const char* far_name() {
  static const bool added = (add_backend(far_backend("far_recorded", 5, 4, true)), true);
  return added ? "far_recorded" : "";
}

bool same(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::ranges::equal(a, b, [](const Tensor& x, const Tensor& y) { return identical(x, y); });
}

// Beside what the caller gives.
std::vector<FarUpload> own_uploads(const FarRecording& recording, const std::vector<Tensor>& inputs) {
  std::vector<FarUpload> own = recording.uploads();
  std::erase_if(own, [&](const FarUpload& upload) {
    const auto* at = static_cast<const std::byte*>(upload.source);
    return std::ranges::any_of(inputs, [&](const Tensor& input) {
      const auto* begin = static_cast<const std::byte*>(input.data());
      return at >= begin && at < begin + input.bytes();
    });
  });
  return own;
}

void* source_of(const FarUpload& upload) { return const_cast<void*>(upload.source); }

class RecordedStep : public ::testing::TestWithParam<int> {
 protected:
  static Result<std::shared_ptr<const CompiledPlan>> plan_of(int micro_batches) {
    auto options =
        layout_options(GraphModel::parse(dropout_mlp), 1, cat("{\"pipeline.num_micro_batch\": ", micro_batches, "}"));
    if (options.ok()) options->device = far_name();
    return layout_plan(options);
  }
};

TEST_P(RecordedStep, IsReplayedWithOneUploadEach) {
  auto plan = plan_of(GetParam());
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  Device& device = *(*plan)->device();
  LoneRank executed(**plan), recorded(**plan);
  ASSERT_GE(recorded.program().drawn_at, 0) << "the model draws";

  FarRecorder recorder(device);
  recorded.run(0);
  const auto recording = recorder.stop();
  executed.run(0);
  const std::vector<FarUpload> own = own_uploads(*recording, recorded.given());
  ASSERT_EQ(own.size(), 1U);
  EXPECT_EQ(own[0].bytes, recorded.program().scalar_bytes);
  EXPECT_EQ(recording->commands_behind_waits(), 0) << "the host waits in the middle of the step";

  for (int step = 1; step <= replays; ++step) {
    executed.run(step);
    recorded.give_batch(step);
    recorded.set_numbers(step, source_of(own[0]));
    reseed(device, static_cast<uint64_t>(step));
    const Status status = recording->replay();
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(same(recorded.outputs(), executed.outputs())) << "step " << step;
    ASSERT_TRUE(same(recorded.state(), executed.state())) << "step " << step;
  }

  // The step's number is in the block: with that of the step before, other elements are dropped.
  executed.run(replays + 1);
  recorded.give_batch(replays + 1);
  ASSERT_TRUE(recording->replay().ok());
  EXPECT_FALSE(same(recorded.outputs(), executed.outputs()));
}

TEST_P(RecordedStep, IsRefusedWhereTheNumbersAre) {
  auto plan = plan_of(GetParam());
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  LoneRank executed(**plan), recorded(**plan);
  FarRecorder recorder(*(*plan)->device());
  recorded.run(0);
  const auto recording = recorder.stop();
  executed.run(0);
  const std::vector<FarUpload> own = own_uploads(*recording, recorded.given());
  ASSERT_EQ(own.size(), 1U);

  const std::vector<Tensor> before = recorded.state();
  recorded.give_batch(1);
  recorded.spoil_batch();
  recorded.set_numbers(1, source_of(own[0]));
  ASSERT_TRUE(recording->replay().ok());
  EXPECT_TRUE(same(recorded.state(), before)) << "a step whose loss is nan was applied";
  executed.run(1);
  recorded.give_batch(1);
  ASSERT_TRUE(recording->replay().ok());
  EXPECT_TRUE(same(recorded.outputs(), executed.outputs()));
  EXPECT_TRUE(same(recorded.state(), executed.state())) << "the step behind it";
}

INSTANTIATE_TEST_SUITE_P(MicroBatches, RecordedStep, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace epl::recorded_step_test
