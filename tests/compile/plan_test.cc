// What a plan knows before anything runs: memory, layout, refusals; and plans on the simulated device.
#include <gtest/gtest.h>

#include "core/compile/plan_memory.h"
#include "core/program/memory.h"
#include "core/runtime/session.h"
#include "tests/runtime/graph_model.h"

namespace epl::plan_test {
namespace {

std::string attention_text(int64_t length) {
  std::string type = cat("f32[2,2,", length, ",16]");
  return cat("graph attention(x: ", type, " batch 0) {\n  w: f32[16,16] = param\n  forward:\n  q: ", type,
             " = linear(x, w)\n  y: ", type, ", lse: f32[2,2,", length,
             "] = attention(q, x, x) {scale=0.25, causal=true}\n  s: f32[1,1,1,1] = sum(y) {axes=[0,1,2,3]}\n"
             "  loss: f32[] = reshape(s) {shape=[]}\n  output loss = loss\n}\n");
}

Result<std::shared_ptr<const CompiledPlan>> compile(std::string_view text, PlanOptions options = {}) {
  options.model = GraphModel::parse(text);
  if (options.train.loss.name == "softmax_cross_entropy") options.train.loss.name = "output:loss";
  options.train.optimizer_options = {{"lr", 0.1}};
  options.evaluate = options.predict = false;
  return CompiledPlan::create(test_host(2), options);
}

TEST(Plan, AttentionMemoryGrowsWithTheLengthNotItsSquare) {
  auto small = compile(attention_text(2048)), large = compile(attention_text(8192));
  ASSERT_TRUE(small.ok()) << small.status().to_string();
  ASSERT_TRUE(large.ok()) << large.status().to_string();
  EXPECT_LE(static_cast<double>(PlanMemory(**large).peak()), 4.2 * static_cast<double>(PlanMemory(**small).peak()));
}

// optimizer.num_apply_group is settled: updates are as lean as they are one by one. Gradients wait for the norm, and
// beside all of them there is room for a parameter or two.
TEST(Plan, UpdatesHaveTheirTemporariesOneByOne) {
  constexpr int layers = 12, side = 128;
  std::string text = cat("graph deep(x: f32[8,", side, "] batch 0) {\n");
  for (int i = 0; i < layers; ++i) text += cat("  w", i, ": f32[", side, ",", side, "] = param\n");
  text += "  forward:\n";
  for (int i = 0; i < layers; ++i)
    text += cat("  h", i, ": f32[8,", side, "] = matmul(", i == 0 ? "x" : cat("h", i - 1), ", w", i, ")\n");
  text += cat("  s: f32[1,1] = sum(h", layers - 1, ") {axes=[0,1]}\n  loss: f32[] = reshape(s) {shape=[]}\n",
              "  output loss = loss\n}\n");
  constexpr int64_t weight = 4 * side * side;
  for (const char* optimizer : {"adamw", "adagrad", "rmsprop"}) {
    for (const char* amp : {"", "O1"}) {
      PlanOptions options;
      options.train.optimizer = optimizer;
      options.train.clip_norm = 1;
      ASSERT_TRUE(set_config(options.strategy, "amp.level", amp).ok());
      if (*amp != 0) {
        ASSERT_TRUE(set_config(options.strategy, "amp.type", "f16").ok());
      }
      const auto plan = compile(text, options);
      ASSERT_TRUE(plan.ok()) << plan.status().to_string();
      EXPECT_GE(PlanMemory(**plan).arena(), layers * weight) << "the gradients wait for the norm";
      EXPECT_LE(PlanMemory(**plan).arena(), (layers + 2) * weight) << optimizer << amp;
    }
  }
}

TEST(Memory, LayoutsAreTightAndNeverOverlap) {
  uint64_t next = 1;
  auto random = [&](int64_t n) { return static_cast<int64_t>(philox_bits(7, next++) % static_cast<uint64_t>(n)); };
  for (int round = 0; round < 50; ++round) {
    std::vector<Storage> storages;
    for (int i = 0; i < 120; ++i) {
      int first = static_cast<int>(random(100));
      storages.push_back({64 + random(64 * 64), first, first + static_cast<int>(random(random(8) ? 6 : 60))});
    }
    MemoryLayout layout = lay_out(storages);
    EXPECT_GE(layout.bytes, layout.largest_live);
    EXPECT_LE(static_cast<double>(layout.bytes),
              1.2 * static_cast<double>(layout.largest_live));  // random lifetimes: harder than a step's
    for (size_t i = 0; i < storages.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        const Storage &a = storages[i], &b = storages[j];
        bool together = a.first <= b.last && b.first <= a.last;
        bool apart = a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset;
        ASSERT_TRUE(!together || apart) << i << " " << j;
      }
    }
  }
}

TEST(Plan, RefusesByName) {
  constexpr std::string_view coupled = R"(graph g(x: f32[8,4] batch 0) {
  w: f32[4,4] = param
  forward:
  y: f32[8,4] = linear(x, w)
  m: f32[1,4] = sum(y) {axes=[0]}
  c: f32[8,4] = sub(y, m)
  q: f32[8,4] = mul(c, c)
  s: f32[1,1] = sum(q) {axes=[0,1]}
  loss: f32[] = reshape(s) {shape=[]}
  output loss = loss
}
)";
  PlanOptions options;
  ASSERT_TRUE(set_config(options.strategy, "pipeline.num_micro_batch", "2").ok());
  auto plan = compile(coupled, options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Plan& made = (*plan)->entries().front().plan;
  EXPECT_EQ(made.micro_batches(), 1);  // over time it is not
  EXPECT_EQ(made.coupled, "node m (sum) sums over the full batch and node c uses the result for each sample");
  PlanOptions ranks;  // over ranks the sum is reduced before it is used
  ranks.ranks = 2;
  EXPECT_TRUE(compile(coupled, ranks).ok());
  PlanOptions odd;
  odd.ranks = 3;
  EXPECT_TRUE(compile(coupled, odd).ok()) << "two of three ranks share the batch";
  PlanOptions thirds;
  thirds.ranks = 2;
  thirds.strategy = *parse_strategy(R"({"default": {"split": 3}})");
  EXPECT_EQ(compile(coupled, thirds).status().code(), Code::invalid_argument) << "three of two ranks";
  EXPECT_EQ(set_config(thirds.strategy, "pipeline.num_micro_bach", "2").message().find("pipeline.num_micro_batch") !=
                std::string::npos,
            true);
}

TEST(Plan, RunsOnTheSimulatedDevice) {
  constexpr std::string_view text = R"(graph g(x: f32[64,512] batch 0) {
  w: f32[512,512] = param
  forward:
  y: f32[64,512] = linear(x, w)
  s: f32[1,1] = sum(y) {axes=[0,1]}
  loss: f32[] = reshape(s) {shape=[]}
  output loss = loss
}
)";
  double alone = 0;
  for (int64_t ranks : {1, 8}) {
    PlanOptions options;
    options.device = "sim";
    options.ranks = ranks;
    auto plan = compile(text, options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    auto session = Session::create(test_host(1), *plan);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Tensor x(TensorType{DType::f32, {64, 512}});
    StepMetrics metrics;
    std::vector<Tensor> inputs = {x};
    Status status = (*session)->step(inputs, metrics);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_GT((*session)->virtual_seconds(), 0);
    if (ranks == 1) alone = (*session)->virtual_seconds();
    if (ranks == 8) {
      EXPECT_NE((*session)->virtual_seconds(), alone);  // less work for each, and a reduction
    }
  }
}

// What is simulated is what would run here: the same kernels, fused alike, in the same memory.
TEST(Plan, OfTheSimulatedDeviceIsThatOfTheProcessor) {
  constexpr std::string_view text = R"(graph g(x: f32[8,16] batch 0) {
  w: f32[16,4] = param
  forward:
  h: f32[8,4] = linear(x, w)
  y: f32[8,4] = softmax(h)
  s: f32[1,1] = sum(y) {axes=[0,1]}
  loss: f32[] = reshape(s) {shape=[]}
  output loss = loss
}
)";
  std::vector<std::string> programs;
  for (const char* device : {"cpu", "sim"}) {
    PlanOptions options;
    options.device = device;
    auto plan = compile(text, options);
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    programs.push_back(*(*plan)->text(EntryKind::train, "program"));
  }
  EXPECT_EQ(programs[0], programs[1]);
}

}  // namespace
}  // namespace epl::plan_test
