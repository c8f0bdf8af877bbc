// How long ranks of a pipeline wait, under every schedule: what the papers say, in virtual time, and on the threads of
// real ranks whose kernels sleep.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "core/program/transfer.h"
#include "core/runtime/rehearsal.h"
#include "core/strategy/pipeline.h"
#include "tests/runtime/pipeline_job.h"

namespace epl::pipeline_idle_test {
namespace {

constexpr int64_t micro_batches = 8;

// Equal layers, so that a stage takes as long forward as for the gradients of its operands and for those of its
// weights, but for a narrow layer before them, whose operand has no gradient.
Job deep_job(int64_t batch, int64_t width, int layers) {
  const auto type = [](int64_t a, int64_t b) { return cat("f32[", a, ",", b, "]"); };
  std::string text = cat("graph deep(x: ", type(batch, 2), " batch 0) {\n  w: ", type(2, width), " = param\n");
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": ", type(width, width), " = param\n");
  text += cat("  forward:\n  h: ", type(batch, width), " = matmul(x, w)\n");
  for (int i = 0; i < layers; ++i)
    text += cat("  h", i, ": ", type(batch, width), " = matmul(", i == 0 ? "h" : cat("h", i - 1), ", w", i, ")\n");
  Job job = mlp_job(0);
  job.model = GraphModel::parse(cat(text, "  output y = h", layers - 1, "\n}\n"));
  return job;
}

// What ranks do but for waiting, of the time from the first call of a pipeline to the end of the last.
double idle(const StepTrace& trace) {
  double begin = INFINITY, end = 0, busy = 0;
  for (const RankTrace& rank : trace.ranks) {
    for (const TraceEvent& event : rank.events) {
      const Instruction* in = rank.instruction(event);
      if (!in || !block_is_interleaved(rank.program->calls[static_cast<size_t>(event.call)].block)) continue;
      if (in->transfer && !in->transfer->counterpart.empty()) continue;
      begin = std::min(begin, event.begin);
      end = std::max(end, event.end);
      busy += event.end - event.begin;
    }
  }
  return 1 - busy / (static_cast<double>(trace.ranks.size()) * (end - begin));
}

class IdleShares : public ::testing::TestWithParam<std::string> {
 protected:
  static const PipelineRow& row() { return *pipeline_table().find(GetParam()); }
  static Result<std::shared_ptr<const CompiledPlan>> plan(Job job, int64_t ranks, const std::string& device) {
    (ranks == 2 ? job.two : job.four) = keys_of(row(), ranks);
    return plan_of(job, {row().words.back(), ranks, micro_batches, device, ranks});
  }
  static double expected(int64_t ranks) {
    return idle_share(row(), {static_cast<int>(ranks), row().chunks == 0 ? 2 : row().chunks, micro_batches});
  }
};

TEST_P(IdleShares, AreThoseOfThePapersInVirtualTime) {
  const Job job = deep_job(8192, 256, 32);
  for (const int64_t ranks : {2, 4}) {
    auto made = plan(job, ranks, "cpu");
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const auto rehearsal = rehearse(test_host(2), *made);
    ASSERT_TRUE(rehearsal.ok()) << rehearsal.status().to_string();
    EXPECT_NEAR(idle(rehearsal->trace), expected(ranks), 0.03) << ranks << " ranks";
  }
}

constexpr double wide_flops = 1000;  // of what a kernel sleeps for: more than those of the narrow layer and of the loss
constexpr auto length = std::chrono::milliseconds(3);

// The processor, on which a product takes a known time.
class Sleeping final : public Device {
 public:
  explicit Sleeping(std::shared_ptr<Device> cpu) : cpu_(std::move(cpu)) {
    table_.add({.op = "matmul",
                .name = "sleep",
                .prepare = [](const KernelQuery& q) -> Result<Prepared> {
                  EPL_TRY(require(q.flops > wide_flops, "it is short"));
                  return Prepared{};
                },
                .launch =
                    [](const KernelCall& call) {
                      std::memset(call.outputs[0], 0, static_cast<size_t>(call.query.out(0).bytes()));
                      std::this_thread::sleep_for(length);
                    }});
    table_.add(cpu_->kernels());
  }
  std::string description() const override { return "sleeping"; }
  // Products take time, and nothing else does.
  const Machine& machine() const override {
    static const Machine sleeping = [] {
      Machine one = processor_core();
      for (Machine::Rate& rate : one.rates) rate.per_second = rate.kind == WorkKind::product ? 1 : 1e30;
      for (Machine::Memory& memory : one.memories) memory.bandwidth = 1e30;
      one.links = {{.ranks = 0, .bandwidth = 1e30, .seconds = 0}};
      one.launch_seconds = 0;
      return one;
    }();
    return sleeping;
  }
  const KernelTable& kernels() const override { return table_; }
  bool shares_host_memory() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override { return cpu_->create_stream(threads); }
  std::unique_ptr<Event> create_event() override { return cpu_->create_event(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return cpu_->create_group(name, ranks);
  }

 private:
  const std::shared_ptr<Device> cpu_;
  KernelTable table_;
};

class TimedIdleShares : public IdleShares {};

// On a busy machine threads wake late, some of them more than others. So the nearest of several steps counts.
TEST_P(TimedIdleShares, AreThoseOfThePapersOnRealRanks) {
  add_backend({.name = "sleeping",
               .doc = "",
               .open = [](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
                 EPL_ASSIGN(std::shared_ptr<Device> cpu, open_device("cpu", host, options));
                 return std::shared_ptr<Device>(std::make_shared<Sleeping>(std::move(cpu)));
               }});
  // Many layers to a stage: a stage may begin when the one behind it still works on gradients of the weights of one.
  const Job job = deep_job(64, 8, 16);
  const std::vector<Tensor> batch = {Tensor(TensorType{DType::f32, {64, 2}}), Tensor(TensorType{DType::i64, {64}})};
  for (const int64_t ranks : {2, 4}) {
    auto made = plan(job, ranks, "sleeping");
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    Host host = test_host(static_cast<int>(ranks));
    host.seconds = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    auto session = Session::create(host, *made, {.seed = 7});
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    double nearest = 1;
    for (int step = 0; step < 20 && std::abs(nearest - expected(ranks)) > 0.03; ++step) {
      (*session)->record(1);
      StepMetrics metrics;
      const Status status = (*session)->step(batch, metrics);
      ASSERT_TRUE(status.ok()) << status.to_string();
      const double found = idle((*session)->trace());
      if (std::abs(found - expected(ranks)) < std::abs(nearest - expected(ranks))) nearest = found;
    }
    EXPECT_NEAR(nearest, expected(ranks), 0.03) << ranks << " ranks";
  }
}

INSTANTIATE_TEST_SUITE_P(, IdleShares, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(, TimedIdleShares, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace epl::pipeline_idle_test
