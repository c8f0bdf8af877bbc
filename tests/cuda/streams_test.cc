// Ranks with several streams on the machine for tests: in whatever order the streams go on, they learn the bits of the
// processor, whether steps are given command by command or recorded. Run with EPL_TEST_MACHINE = devices=h100,h100 in
// the environment (ctest cuda.streams); skipped elsewhere. What is found where a wait is missing stands in
// planted_streams_test.cc.
#include <set>

#include "core/program/transfer.h"
#include "tests/cuda/machine_device.h"
#include "tests/runtime/lone_rank.h"

namespace epl::streams_of_gpus_test {
namespace {

struct Layout {
  const char* device;
  int64_t ranks;
  std::string keys;
};

std::vector<Layout> layouts() {
  const std::string stages = cat(R"("pipeline.num_micro_batch": 2, "pipeline.strategy": "1F1B", )",
                                 two_stages(R"("replicate": 1)", R"("replicate": 1)"));
  return {{"cuda:0", 1, ""},
          {"cuda:0", 1, R"("pipeline.num_micro_batch": 4)"},
          {"cuda:0", 2, R"("zero.level": "v2")"},
          {"cuda:0,1", 2, R"("zero.level": "v2", "pipeline.num_micro_batch": 2)"},
          {"cuda:0,1", 2, stages}};
}

class StreamsOfGpus : public MachineDevice {};

TEST_F(StreamsOfGpus, AreThoseOfTheDesign) {
  const auto plan = plan_on("cuda:0", skip_mlp, 2, R"("pipeline.num_micro_batch": 2)");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Program& program = (*plan)->entry(EntryKind::train)->programs[0];
  std::set<int> computing, collectives, in_copies, out_copies;
  for (const Instruction& in : program.instructions) {
    auto& streams = !in.transfer               ? computing
                    : in.group >= 0            ? collectives
                    : in.port >= 0             ? out_copies
                    : in.transfer->from_caller ? in_copies
                                               : computing;
    streams.insert(in.stream);
  }
  EXPECT_EQ(computing, std::set{0});
  for (const std::set<int>& streams : {collectives, in_copies, out_copies}) {
    ASSERT_EQ(streams.size(), 1U);
    EXPECT_NE(*streams.begin(), 0);
  }
  EXPECT_EQ(program.streams, 4);
}

class StreamsOfGpusInAnyOrder : public StreamsOfGpus, public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    StreamsOfGpus::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) set(cat("seed=", GetParam()));
  }
};

// The first step is given, and those of a rank alone that follow are recorded.
TEST_P(StreamsOfGpusInAnyOrder, LearnTheBitsOfTheProcessor) {
  constexpr int steps = 3;
  const Trained one = train(plan_on("cpu", dropout_mlp), "the processor", steps, skip_mlp_batch);
  for (const Layout& layout : layouts()) {
    const std::string said = cat(layout.device, " with ", layout.ranks, " ranks ", layout.keys);
    const uint64_t graphs = count("graphs");
    expect_same(train(plan_on(layout.device, dropout_mlp, layout.ranks, layout.keys), said, steps, skip_mlp_batch), one,
                said);
    EXPECT_EQ(count("graphs") > graphs, layout.ranks == 1) << said;
  }
}

TEST_P(StreamsOfGpusInAnyOrder, LearnTheSameBitsFromRecordedSteps) {
  for (const int parts : {1, 4}) {
    const auto plan = plan_on("cuda:0", dropout_mlp, 1, cat("\"pipeline.num_micro_batch\": ", parts));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    LoneRank given(**plan), replayed(**plan);
    ASSERT_EQ(given.program().streams, 3) << "one that computes, and one for each direction of copies";
    std::vector<TraceEvent> events;
    given.executor().record(&events);  // what is written down is given command by command
    for (int step = 0; step < 4; ++step) {
      given.run(step);
      const uint64_t graphs = count("graphs");
      replayed.run(step);
      EXPECT_EQ(count("graphs") - graphs, step == 0 ? 0u : 2u) << step << ": " << replayed.executor().not_recorded();
      const auto same = [](const Tensor& x, const Tensor& y) { return identical(x, y); };
      ASSERT_TRUE(std::ranges::equal(replayed.outputs(), given.outputs(), same)) << step << ", " << parts;
      ASSERT_TRUE(std::ranges::equal(replayed.state(), given.state(), same)) << step << ", " << parts;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, StreamsOfGpusInAnyOrder, testing::Values(1, 2, 3));

}  // namespace
}  // namespace epl::streams_of_gpus_test
