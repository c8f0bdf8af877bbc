// A step is a fixed list of commands: what one step of a rank gave to its streams is given to them again, in place of
// later steps. All that the host sets for a step is one block of bytes. The device decides whether the step is applied,
// and the host waits once, at the end.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "core/runtime/executor.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/skip_mlp.h"
#include "tests/runtime/trained.h"

namespace epl::recorded_step_test {
namespace {

constexpr uint64_t seed = 7;
constexpr int replays = 20;

const char* far_name() {
  static const bool added = (add_backend(far_backend("far_recorded", 5, 4, true)), true);
  return added ? "far_recorded" : "";
}

template <class T> T taken(Result<T> made) {
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

// A rank alone, with an executor and the memory of its caller.
class Rank {
 public:
  explicit Rank(const CompiledPlan& plan) : plan_(plan), entry_(*plan.entry(EntryKind::train)) {
    Device& device = *plan.device();
    stream_ = taken(device.create_stream(2));
    store_.emplace(taken(ParameterStore::create(device, *stream_, plan.state(), plan.mesh(0), 0)));
    arenas_ = taken(allocate_each(device, PlanMemory(plan).arenas(0)));
    executor_ = taken(Executor::create(host_, device, *stream_, program(), entry_.agreement_bytes(0), *store_, arenas_,
                                       plan.mesh(0), 0));
    for (const ProgramPort& port : program().inputs) given_.emplace_back(port.global_type);
    for (const ProgramPort& port : program().outputs) got_.emplace_back(port.global_type);
    for (const Tensor& tensor : given_) inputs_.push_back(tensor.data());
    for (Tensor& tensor : got_) outputs_.push_back(tensor.data());
  }

  const Program& program() const { return entry_.programs[0]; }
  const std::vector<Tensor>& given() const { return given_; }
  const std::vector<Tensor>& outputs() const { return got_; }

  void give_batch(int step) {
    for (size_t i = 0; i < given_.size(); ++i) {
      for (int64_t e = 0; e < given_[i].elements(); ++e) {
        if (is_float(given_[i].dtype())) given_[i].set(e, philox_uniform(100 * step + i, e) - 0.5);
        if (!is_float(given_[i].dtype())) given_[i].set_int(e, (e + step) % 4);
      }
    }
  }

  void spoil_batch() { given_[0].set(0, std::numeric_limits<double>::quiet_NaN()); }

  void run(int step) {
    give_batch(step);
    plan_.scalars(entry_, {.step = step}, scalars_);
    const Status status = executor_->run({.inputs = inputs_,
                                          .outputs = outputs_,
                                          .scalars = scalars_,
                                          .seed = seed,
                                          .step = step,
                                          .verdict_output = entry_.verdict_output});
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(executor_->verdict(), -1) << "the step is applied";
  }

  // What the host sets for a step, where a recording uploads it from.
  void set_numbers(int step, const FarUpload& block) {
    plan_.scalars(entry_, {.step = step}, scalars_);
    auto* bytes = static_cast<std::byte*>(const_cast<void*>(block.source));
    for (const ProgramScalar& scalar : program().scalars)
      std::memcpy(bytes + scalar.location.offset, &scalars_[static_cast<size_t>(scalar.index)], sizeof(uint64_t));
    const StepNumbers numbers{.seed = seed, .step = step};
    std::memcpy(bytes + program().drawn_at, &numbers, sizeof numbers);
  }

  std::vector<Tensor> state() {
    std::vector<Tensor> all;
    for (const StateSlot& slot : plan_.state().slots()) {
      const Status status = store_->gather(*stream_, slot, all.emplace_back(slot.type));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return all;
  }

 private:
  const Host host_ = test_host(2);
  const CompiledPlan& plan_;
  const Entry& entry_;
  std::unique_ptr<Stream> stream_;
  std::optional<ParameterStore> store_;
  Buffers arenas_;
  std::unique_ptr<Executor> executor_;
  std::vector<Tensor> given_, got_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<uint64_t> scalars_;
};

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
  Rank executed(**plan), recorded(**plan);
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
    recorded.set_numbers(step, own[0]);
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
  Rank executed(**plan), recorded(**plan);
  FarRecorder recorder(*(*plan)->device());
  recorded.run(0);
  const auto recording = recorder.stop();
  executed.run(0);
  const std::vector<FarUpload> own = own_uploads(*recording, recorded.given());
  ASSERT_EQ(own.size(), 1U);

  const std::vector<Tensor> before = recorded.state();
  recorded.give_batch(1);
  recorded.spoil_batch();
  recorded.set_numbers(1, own[0]);
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
