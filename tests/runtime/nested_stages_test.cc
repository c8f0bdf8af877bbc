// Stages whose ranks are shared out by scopes: inside a default, beside pipeline.num_stages, and inside the scopes of a
// schedule that gives each rank several stages.
#include <gtest/gtest.h>

#include <set>

#include "tests/runtime/pipeline_job.h"
#include "tests/thirds.h"

namespace epl::nested_stages_test {
namespace {

struct Nesting {
  std::string name;
  int64_t ranks = 4;
  std::string keys;
  std::set<std::string> task_graphs;  // those that have nodes
};

Result<std::shared_ptr<const CompiledPlan>> plan_of(const std::string& level, int64_t ranks, const std::string& keys) {
  const Job job = gpt_job();
  auto options = layout_options(job.model, ranks, at_level(level, keys));
  if (options.ok()) options->binding.input_shapes = job.shapes;
  return layout_plan(options);
}

Trained trained(const std::string& level, const std::string& name, int64_t ranks, const std::string& keys) {
  return train(plan_of(level, ranks, keys), name, 3, gpt_job().batch);
}

class NestedStages : public ::testing::TestWithParam<Nesting> {
 protected:
  static std::string keys(const PipelineRow& row) {
    const std::string asked = GetParam().keys.find("\"scopes\": [{\"name\": \"s0\"") == std::string::npos
                                  ? cat(keys_of(row, 2), ", ")
                                  : std::string(row.chunks == 0 ? "\"pipeline.virtual_stages\": 2, " : "");
    return cat(asked, GetParam().keys, ", \"pipeline.num_micro_batch\": 4, \"pipeline.strategy\": \"", row.words[0],
               "\"");
  }
  template <class F> static void each_schedule(const F& f) {
    for (const std::string& name : schedule_names()) {
      const PipelineRow& row = *pipeline_table().find(name);
      const bool several = row.chunks == 0 || row.chunks == 2;
      if (several || !GetParam().name.starts_with("named")) f(row);
    }
  }
};

TEST_P(NestedStages, LearnWhatOneRankLearns) {
  EPL_ONE_OF_THREE();
  const Trained one = trained("data", "one rank", 1, "");
  each_schedule([&](const PipelineRow& row) {
    expect_near(trained("data", row.name, GetParam().ranks, keys(row)), one, row.name, 1e-5, 1e-4);
  });
}

TEST_P(NestedStages, HaveTheBitsOfOneRankAtLevelLayout) {
  EPL_ONE_OF_THREE();
  const Trained one = trained("layout", "one rank", 1, "");
  each_schedule([&](const PipelineRow& row) {
    expect_same(trained("layout", row.name, GetParam().ranks, keys(row)), one, row.name);
  });
}

TEST_P(NestedStages, HaveATaskGraphForEachScopeOfAStage) {
  const auto plan = plan_of("data", GetParam().ranks, keys(*pipeline_table().find("interleaved")));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  std::set<std::string> found;
  for (const TaskGraph& t : (*plan)->entries().front().plan.task_graphs) {
    if (t.nodes > 0) found.insert(t.scope);
  }
  EXPECT_EQ(found, GetParam().task_graphs);
}

std::set<std::string> of_stages(const std::vector<std::string>& inside) {
  std::set<std::string> all;
  for (int stage = 0; stage < 4; ++stage) {
    for (const std::string& name : inside) all.insert(cat("stage", stage, name));
  }
  return all;
}

const Nesting nestings[] = {
    {"default_with_scopes",
     4,
     R"("default": {"replicate": 4, "scopes": [{"split": 2, "match": "*.mlp.*"}]})",
     {"stage0", "stage1", "stage1.0", "stage2", "stage3", "stage3.0"}},
    {"split_with_copies", 4,
     R"("default": {"split": 2, "scopes": [{"name": "norms", "replicate": 2, "match": "*.ln_*"}]})",
     of_stages({"", ".norms"})},
    {"beside_scopes",
     4,
     R"("scopes": [{"name": "mlp", "split": 2, "match": "*.mlp.*"}])",
     {"stage0", "stage1", "stage1.mlp", "stage2", "stage3", "stage3.mlp"}},
    {"siblings",
     8,
     R"("scopes": [{"name": "mlp", "split": 4, "match": "*.mlp.*"}, {"name": "att", "split": 2, "match": "*.attn.*"}],
        "default": {"replicate": 8})",
     {"stage0.att", "stage0.default", "stage1.default", "stage1.mlp", "stage2.att", "stage2.default", "stage3.default",
      "stage3.mlp"}},
    {"experts_beside",
     4,
     R"("scopes": [{"name": "mlp", "expert": 2, "match": "*.mlp.*"}], "default": {"split": 2})",
     {"stage0.default", "stage1.default", "stage1.mlp", "stage2.default", "stage3.default", "stage3.mlp"}},
    {"named",
     4,
     R"("scopes": [{"name": "s0", "replicate": 2, "match": ["embedded", "hidden", "transformer.h.0.ln_1*",
                     "transformer.h.0.attn*"], "scopes": [{"name": "att", "split": 2, "match": "*.attn.*"}]},
                   {"name": "s1", "replicate": 2, "match": "transformer.h.0*",
                    "scopes": [{"name": "mlp", "split": 2, "match": "*.mlp.*"}]},
                   {"name": "s2", "replicate": 2, "match": ["transformer.h.1.ln_1*", "transformer.h.1.attn*"],
                    "scopes": [{"name": "att", "split": 2, "match": "*.attn.*"}]},
                   {"name": "s3", "replicate": 2, "match": "*",
                    "scopes": [{"name": "mlp", "split": 2, "match": "*.mlp.*"}]}])",
     {"s0", "s0.att", "s1", "s1.mlp", "s2", "s2.att", "s3", "s3.mlp"}},
};

INSTANTIATE_TEST_SUITE_P(, NestedStages, ::testing::ValuesIn(nestings),
                         [](const auto& info) { return info.param.name; });

std::string refusal(int64_t ranks, const std::string& keys) {
  auto plan = plan_of("data", ranks, keys);
  return plan.ok() ? "" : plan.status().to_string();
}

TEST(StagesWithScopes, ThatCannotBeAreRefusedByName) {
  const auto says = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  says(refusal(4, R"("pipeline.num_stages": 2, "scopes": [{"name": "a", "split": 4, "match": "*"}])"),
       "= 8 ranks for a copy, which do not divide the 4");
  says(refusal(4, R"("pipeline.num_stages": 2, "scopes": [{"name": "none", "split": 2, "match": "nobody*"}])"),
       "scope none matches no node: nobody*");
  says(refusal(4, R"("pipeline.num_stages": 2, "default": {"replicate": 2,
                     "scopes": [{"name": "none", "split": 2, "match": "nobody*"}]})"),
       "scope none matches no node: nobody*");
  says(refusal(2, R"("pipeline.num_stages": 2, "scopes": [{"name": "wide", "split": 9000000000, "match": "*"}])"),
       "scope wide (split 9000000000) wants more than the 2 ranks");
}

}  // namespace
}  // namespace epl::nested_stages_test
