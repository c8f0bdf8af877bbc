// Stages that are found by their cost, under every schedule: the bits of one rank.
#include <gtest/gtest.h>

#include "core/strategy/pipeline.h"
#include "tests/runtime/pipeline_job.h"
#include "tests/thirds.h"

namespace epl::pipeline_schedules_test {
namespace {

bool fits(const PipelineRow& row, int64_t ranks, int64_t micro_batches) {
  const PipelineShape shape{static_cast<int>(ranks), row.chunks == 0 ? 2 : row.chunks, micro_batches};
  return !row.refusal || row.refusal(shape).empty();
}

class Schedules : public ::testing::TestWithParam<std::string> {
 protected:
  static const PipelineRow& row() { return *pipeline_table().find(GetParam()); }
  // Layouts of a job whose stages are found.
  template <class F> static void each_layout(Job work, F f) {
    int layouts = 0;
    for (const int64_t stages : {2, 4}) {
      for (const int64_t micro_batches : {1, 2, 4, 8}) {
        if (!fits(row(), stages, micro_batches)) continue;
        (stages == 2 ? work.two : work.four) = keys_of(row(), stages);
        f(work, Layout{row().words.back(), stages, micro_batches, "cpu", stages});
        ++layouts;
      }
    }
    EXPECT_GT(layouts, 2);
  }
};

TEST_P(Schedules, HaveTheBitsOfOneRank) {
  EPL_ONE_OF_THREE();
  for (const Job& job : {mlp_job(0.5), gpt_job()}) {
    const Trained one = train(job, {}, 3);
    each_layout(job, [&](const Job& work, const Layout& layout) { expect_same(train(work, layout, 3), one, layout); });
  }
}

// Two copies of the pipeline, and weights in shards in each stage, whose bits are those of the same shards.
TEST_P(Schedules, StandBesideCopiesAndSplits) {
  EPL_ONE_OF_THREE();
  Job work = mlp_job(0.5);
  const int64_t micro_batches = fits(row(), 2, 2) ? 2 : 4;
  work.two = keys_of(row(), 2);
  const Layout layout{row().words.front(), 4, micro_batches};
  expect_same(train(work, layout, 3), train(work, {}, 3), layout);
  work.two += R"(, "default": {"split": 2}, "reproducible.level": "layout")";
  const Trained split = train(work, layout, 3);
  Job one = mlp_job(0.5);
  one.two = R"("reproducible.level": "layout")";
  expect_same(split, train(one, {"1F1B", 1, 1}, 3), layout);
}

// Scopes are the stages, several of each rank where the schedule has it so; connections skip stages, and the loss is in
// several of them.
TEST_P(Schedules, TakeScopesAndConnectionsThatSkipThem) {
  EPL_ONE_OF_THREE();
  const int64_t chunks = row().chunks == 0 ? 2 : row().chunks;
  for (Job work : {skipping_job(), smoothed_job()}) {
    const Trained one = train(work, {}, 2);
    if (row().chunks == 0) work.four += ", \"pipeline.virtual_stages\": 2";
    for (const int64_t micro_batches : {4, 8}) {
      const Layout layout{row().words.back(), 4 / chunks, micro_batches, "cpu", 4};
      expect_same(train(work, layout, 2), one, layout);
    }
  }
}

TEST_P(Schedules, KnowTheirMemory) {
  each_layout(gpt_job(), [](const Job& work, const Layout& layout) {
    auto plan = plan_of(work, layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    for (const Program& program : (*plan)->entries().front().programs) expect_arena(program, 1.1, layout.text());
  });
}

// What runs is what the table says.
TEST_P(Schedules, AreTheCallsOfThePrograms) {
  each_layout(mlp_job(0), [](const Job& work, const Layout& layout) {
    auto plan = plan_of(work, layout);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Entry& entry = (*plan)->entries().front();
    const PipelineShape shape{entry.plan.virtual_devices(), entry.plan.stages() / entry.plan.virtual_devices(),
                              layout.micro_batches};
    EXPECT_EQ(shape.virtual_devices, layout.stages);
    for (int c = 0; c < entry.plan.virtual_devices(); ++c) {
      std::vector<BlockCall> calls = entry.programs[static_cast<size_t>(c)].calls;
      std::erase_if(calls, [](const BlockCall& call) { return !block_is_interleaved(call.block); });
      EXPECT_EQ(calls, row().calls(shape, c)) << layout.text();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Schedules, ::testing::ValuesIn(schedule_names()),
                         [](const auto& info) { return info.param; });

// Four layers that cost the same, and a head that costs little beside them: they stay uncut.
TEST(FoundStages, LeaveLayersUncut) {
  std::string text = "graph mlp(x: f32[64,512] batch 0) {\n";
  for (int i = 0; i < 4; ++i) text += cat("  w", i, ": f32[512,512] = param\n  v", i, ": f32[512,512] = param\n");
  text += "  o: f32[512,4] = param\n  forward:\n";
  std::string last = "x";
  for (int i = 0; i < 4; ++i) {
    text += cat("  h.", i, ".a: f32[64,512] = matmul(", last, ", w", i, ")\n  h.", i, ".r: f32[64,512] = relu(h.", i,
                ".a)\n  h.", i, ".b: f32[64,512] = matmul(h.", i, ".r, v", i, ")\n");
    last = cat("h.", i, ".b");
  }
  text += cat("  y: f32[64,4] = matmul(", last, ", o)\n  output y = y\n}\n");
  Job work = mlp_job(0);
  work.model = GraphModel::parse(text);
  for (const int64_t stages : {2, 4}) {
    (stages == 2 ? work.two : work.four) = cat("\"pipeline.num_stages\": ", stages);
    auto plan = plan_of(work, {"1F1B", stages, 2, "cpu", stages});
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Plan& made = (*plan)->entries().front().plan;
    for (const NodeId n : made.graph->node_ids()) {
      const Node& node = made.graph->node(n);
      if (node.phase != Phase::forward || !node.name.starts_with("h.")) continue;
      EXPECT_EQ(made.node_task_graph[n], (node.name[2] - '0') * stages / 4) << node.name;
    }
    EXPECT_TRUE(std::ranges::any_of(
        made.notes, [](const std::string& note) { return note.starts_with("the work of the stages: "); }));
  }
}

std::string refusal(const std::string& keys, int64_t ranks, const std::string& schedule = "1F1B") {
  Job work = mlp_job(0);
  work.two = keys;
  auto plan = plan_of(work, {schedule, ranks, 2});
  return plan.ok() ? "" : plan.status().to_string();
}

TEST(FoundStages, ThatCannotBeAreRefusedByName) {
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(refusal("\"pipeline.num_stages\": 4", 2), "= 4 ranks for a copy, which do not divide the 2");
  says(refusal("\"pipeline.num_stages\": 64", 64), "nodes cannot be 64 stages");
  says(refusal("\"pipeline.num_stages\": 0", 2), "pipeline.num_stages is 0");
}

}  // namespace
}  // namespace epl::pipeline_schedules_test
