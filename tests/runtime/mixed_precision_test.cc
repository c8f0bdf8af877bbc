// Mixed precision (`amp.level`): the bits of one rank under every kind of layout, losses near those of float32, no sum
// in 16 bits, weights and states in 32; and a loss scale that all ranks agree on.
#include <gtest/gtest.h>

#include <cmath>

#include "core/program/program.h"
#include "core/program/transfer.h"
#include "tests/backend/far_device.h"
#include "tests/runtime/block_models.h"
#include "tests/runtime/narrow_sums.h"
#include "tests/runtime/trained.h"
#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::mixed_precision_test {
namespace {

constexpr int layers = 4;

std::vector<Tensor> batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 32, 8}}), target(TensorType{DType::i64, {8, 32}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

struct Layout {
  std::string name = "one";
  int64_t ranks = 1;
  std::string keys = {};
  std::string level = "data";
  friend void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }
};

std::string amp(const std::string& type, const std::string& more = "") {
  return cat(R"("amp.level": "O1", "amp.type": ")", type, "\"", more.empty() ? "" : ", ", more);
}

using Plan = std::shared_ptr<const CompiledPlan>;

Result<Plan> plan_of(const std::string& model, const Layout& layout, const std::string& keys,
                     const std::string& device = "cpu") {
  const std::string all = layout.keys.empty() || keys.empty() ? layout.keys + keys : cat(layout.keys, ", ", keys);
  auto options = layout_options(GraphModel::parse(model), layout.ranks, at_level(layout.level, all));
  if (options.ok()) options->device = device;
  return layout_plan(options);
}

class MixedPrecision : public ::testing::TestWithParam<Layout> {};

TEST_P(MixedPrecision, HasTheBitsOfOneRank) {
  EPL_ONE_OF_THREE();
  const Layout alone{.level = GetParam().level};
  for (const std::string type : {"bf16", "f16"})
    expect_same(train(plan_of(deep_model(layers), GetParam(), amp(type)), GetParam().name, 5, batch),
                train(plan_of(deep_model(layers), alone, amp(type)), "one rank", 5, batch),
                cat(type, ", ", GetParam().name));
}

TEST_P(MixedPrecision, HasTheSameBitsFarAway) {
  EPL_ONE_OF_THREE();
  const std::string name = cat("far_mixed_", GetParam().name);
  add_backend(far_backend(name, 11));
  expect_same(train(plan_of(deep_model(layers), GetParam(), amp("bf16"), name), GetParam().name, 2, batch),
              train(plan_of(deep_model(layers), GetParam(), amp("bf16")), GetParam().name, 2, batch), GetParam().name);
}

// In the local graphs, where sums over units and ranks are nodes.
TEST_P(MixedPrecision, AddsUpNothingIn16Bits) {
  const auto plan = plan_of(deep_model(layers), GetParam(), amp("bf16"));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  int narrow = 0, sums = 0;
  for (const LocalGraph& local : (*plan)->entry(EntryKind::train)->locals) {
    for (const Node& node : local.graph.nodes()) {
      for (const Value v : node.outputs) narrow += v && local.graph.type(v).dtype == DType::bf16;
    }
    const FoundSums found = find_sums(local);
    EXPECT_EQ(found.narrow, std::vector<std::string>());
    sums += found.all;
  }
  EXPECT_GT(narrow, layers);
  EXPECT_GT(sums, layers);
  for (const StateSlot& slot : (*plan)->state().slots()) EXPECT_EQ(slot.type.dtype, DType::f32) << slot.name;
}

// The rule by which they are found, over nodes that are known to add up or not to.
TEST(MixedPrecisionSums, AreThoseOfTheRecords) {
  const auto graph = parse_graph(R"(graph sums(x: f32[4,6] batch 0, ids: i64[4] batch 0) {
  w: f32[6,8] = param
  t: f32[16,8] = param
  forward:
  product: f32[4,8] = matmul(x, w)
  rows: f32[4,8] = gather(t, ids)
  both: f32[4,8] = add(product, rows)
  turned: f32[8,4] = transpose(both) {perm=[1,0]}
  total: f32[1,4] = sum(turned) {axes=[0]}
  y: f32[4] = reshape(total) {shape=[4]}
  output y = y
}
)");
  ASSERT_TRUE(graph.ok()) << graph.status().to_string();
  const std::set<std::string> known = {"product", "total"};
  for (const Node& node : graph->nodes()) EXPECT_EQ(adds_up(*graph, node, 0), known.contains(node.name)) << node.name;
  // Of a transfer the sentence that says what it does tells as well.
  int adding = 0;
  for (const TransferRow& row : transfer_table().rows) {
    if (row.op.empty()) continue;
    const bool adds = op_named(row.op).adds;
    EXPECT_EQ(adds, row.doc.find("the sum") != std::string::npos) << row.name;
    adding += adds;
  }
  EXPECT_EQ(adding, 3);
}

constexpr std::string_view two_stages =
    R"("scopes": [{"name": "front", "replicate": 1, "match": ["?0", "?1"]},
                  {"name": "back", "replicate": 1, "match": ["*"]}])";

std::string stages(const std::string& schedule, int micro_batches) {
  return cat("\"pipeline.num_micro_batch\": ", micro_batches, ", \"pipeline.num_stages\": 2, \"pipeline.strategy\": \"",
             schedule, "\"");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MixedPrecision,
    ::testing::Values(
        Layout{"micro_batches", 1, R"("pipeline.num_micro_batch": 4)"}, Layout{"copies", 2, ""},
        Layout{"copies_and_micro_batches", 2, R"("pipeline.num_micro_batch": 2, "zero.level": "v0")"},
        Layout{"gradients_in_shards", 2, R"("pipeline.num_micro_batch": 2, "zero.level": "v1")"},
        Layout{"weights_in_shards", 2, R"("pipeline.num_micro_batch": 2, "zero.level": "v2")"},
        Layout{"computed_again", 1, R"("pipeline.num_micro_batch": 2, "gradient_checkpoint.type": "auto")"},
        Layout{"weights_in_shards_computed_again", 2, R"("zero.level": "v2", "gradient_checkpoint.type": "auto")"},
        Layout{"split", 2, R"("default": {"split": 2})", "layout"},
        Layout{"split_by_sequence", 2, R"("default": {"split": 2}, "split.sequence": true)", "layout"},
        Layout{"one_f_one_b", 2, stages("1F1B", 4)}, Layout{"zb_h1", 2, stages("ZB-H1", 4)},
        Layout{"interleaved", 2, stages("interleaved", 4) + R"(, "pipeline.virtual_stages": 2)"},
        Layout{"scopes", 2, cat("\"pipeline.num_micro_batch\": 2, ", two_stages)},
        Layout{"copies_of_stages", 4, stages("1F1B", 2)}),
    [](const auto& info) { return info.param.name; });

// Attention and norms stay in float32, products and what moves between them do not.
TEST(MixedPrecisionBlocks, LearnLikeFloat32UnderEveryLayout) {
  const auto ids = [](int step) {
    Tensor from(TensorType{DType::i64, {4, 4}}), next(TensorType{DType::i64, {4, 4}});
    for (int64_t i = 0; i < from.elements(); ++i) {
      from.set_int(i, (7 * i + 3 * step) % 16);
      next.set_int(i, (5 * i + step) % 16);
    }
    return std::vector<Tensor>{from, next};
  };
  for (const BlockModel kind : {BlockModel::gpt, BlockModel::llama, BlockModel::bert}) {
    const std::string model = block_model(kind);
    const Trained wide = train(plan_of(model, {}, ""), "float32", 8, ids);
    const Trained narrow = train(plan_of(model, {}, amp("bf16")), "bf16", 8, ids);
    expect_near(narrow, wide, "bf16 beside float32", 0.05, 0.2, 0.5);
    EXPECT_NE(narrow.losses, wide.losses);
    for (const Layout& layout : {Layout{"micro_batches", 1, R"("pipeline.num_micro_batch": 2)"},
                                 Layout{"copies", 2, R"("zero.level": "v2")"}}) {
      expect_same(train(plan_of(model, layout, amp("bf16")), layout.name, 8, ids), narrow, layout.name);
    }
  }
}

int64_t arena(const CompiledPlan& plan) {
  int64_t bytes = 0;
  for (const Program& program : plan.entry(EntryKind::train)->programs)
    bytes = std::max(bytes, program.memories[0].arena_bytes);
  return bytes;
}

TEST(MixedPrecisionMemory, KeepsResultsOfHalfTheBytes) {
  const auto wide = plan_of(deep_model(layers), {}, ""), narrow = plan_of(deep_model(layers), {}, amp("bf16"));
  ASSERT_TRUE(wide.ok() && narrow.ok()) << narrow.status().to_string();
  EXPECT_LT(arena(**narrow), arena(**wide)) << arena(**narrow) << " of " << arena(**wide);
}

// Gradients of `steep` are 1,024 times what they are behind it, and past float16 at the first scale.
std::string steep_model() {
  std::string text = R"(graph steep(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  w2: f32[16,4] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  a: f32[8,16] = tanh(h)
  z0: f32[8,4] = matmul(a, w2)
)";
  for (int i = 0; i < 10; ++i) text += cat("  z", i + 1, ": f32[8,4] = add(z", i, ", z", i, ")\n");
  return text + "  output y = z10\n}\n";
}

std::vector<Tensor> steep_batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 12}}), target(TensorType{DType::i64, {8}});
  for (int64_t i = 0; i < x.elements(); ++i) x.set(i, static_cast<double>((i * 37 + step * 11) % 101) / 50 - 1);
  for (int64_t i = 0; i < target.elements(); ++i) target.set_int(i, (i + step) % 4);
  return {x, target};
}

struct Job {
  Plan plan;
  std::unique_ptr<Session> session;
};
Job start(const Layout& layout, const std::string& more = "", std::string* log = nullptr) {
  Job job;
  auto plan = plan_of(steep_model(), layout, amp("f16", more));
  EXPECT_TRUE(plan.ok()) << plan.status().to_string();
  job.plan = *plan;
  Host host = test_host(2);
  if (log != nullptr) {
    host.log = [log](LogLevel level, std::string_view line) {
      if (level >= LogLevel::warning) *log += cat(line, "\n");
    };
  }
  auto session = Session::create(host, job.plan, {.seed = 7});
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  job.session = std::move(*session);
  return job;
}

double number_of(const Job& job, std::string_view name) { return job.session->host_state().number(name).value(); }

std::map<std::string, Tensor> state_of(const Job& job) {
  std::map<std::string, Tensor> out;
  for (const StateSlot& slot : job.plan->state().slots()) out.emplace(slot.name, *job.session->state().get(slot.name));
  return out;
}

void expect_state(const Job& job, const std::map<std::string, Tensor>& expected, const std::string& when) {
  for (const auto& [name, value] : state_of(job))
    EXPECT_TRUE(identical(value, expected.at(name))) << name << ", " << when;
}

// Steps of the batch 0 until one is applied. How many were skipped.
int skipped_steps(Job& job) {
  const std::map<std::string, Tensor> before = state_of(job);
  double scale = number_of(job, "loss_scale");
  for (int skipped = 0; skipped < 30; ++skipped) {
    StepMetrics metrics;
    const Status status = job.session->step(steep_batch(0), metrics);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_TRUE(metrics.skipped.ok()) << metrics.skipped.to_string();
    EXPECT_TRUE(std::isfinite(metrics.loss));
    if (!metrics.overflowed) return skipped;
    EXPECT_EQ(job.session->host_state().steps_done(), 0);
    EXPECT_EQ(number_of(job, "loss_scale"), scale / 2);
    EXPECT_EQ(number_of(job, "skipped_steps"), skipped + 1);
    EXPECT_FALSE(job.session->facts().last_applied);
    scale /= 2;
    expect_state(job, before, cat("skipped ", skipped));
  }
  ADD_FAILURE() << "no step was applied";
  return 0;
}

TEST(LossScale, IsHalvedUntilGradientsFitAndAllRanksHaveTheSame) {
  Job one = start({});
  EXPECT_EQ(number_of(one, "loss_scale"), 65536);
  const int skipped = skipped_steps(one);
  EXPECT_GT(skipped, 3);
  const double scale = number_of(one, "loss_scale");
  EXPECT_EQ(scale, std::ldexp(65536, -skipped));
  // As if the scale had been right from the beginning.
  Job fixed = start({}, cat(R"("amp.loss_scale": ")", static_cast<int64_t>(scale), "\""));
  StepMetrics metrics;
  ASSERT_TRUE(fixed.session->step(steep_batch(0), metrics).ok());
  EXPECT_TRUE(metrics.skipped.ok()) << metrics.skipped.to_string();
  expect_state(fixed, state_of(one), "a fixed scale");
  for (const Layout& layout : {Layout{"copies", 2}, Layout{"micro batches", 1, R"("pipeline.num_micro_batch": 4)"},
                               Layout{"shards", 2, R"("pipeline.num_micro_batch": 2, "zero.level": "v2")"},
                               Layout{"stages", 2, stages("1F1B", 4)}}) {
    SCOPED_TRACE(layout.name);
    Job other = start(layout);
    EXPECT_EQ(skipped_steps(other), skipped);
    EXPECT_EQ(number_of(other, "loss_scale"), scale);
    expect_state(other, state_of(one), layout.name);
  }
}

TEST(LossScale, ThatIsFixedMakesAnOverflowAnError) {
  Job job = start({}, R"("amp.loss_scale": "65536")");
  StepMetrics metrics;
  ASSERT_TRUE(job.session->step(steep_batch(0), metrics).ok());
  EXPECT_EQ(metrics.skipped.code(), Code::not_finite);
  EXPECT_FALSE(metrics.overflowed);
  EXPECT_EQ(number_of(job, "loss_scale"), 65536);
}

TEST(LossScale, ANanInTheDataIsNoOverflow) {
  Job job = start({});
  std::vector<Tensor> inputs = steep_batch(0);
  inputs[0].set(3, NAN);
  StepMetrics metrics;
  ASSERT_TRUE(job.session->step(inputs, metrics).ok());
  EXPECT_EQ(metrics.skipped.code(), Code::not_finite);
  EXPECT_EQ(number_of(job, "loss_scale"), 65536);
  EXPECT_EQ(number_of(job, "skipped_steps"), 0);
}

// A caller that takes gradients would else take those of an earlier batch.
TEST(LossScale, GradientsAloneThatOverflowAreAnError) {
  auto options = layout_options(GraphModel::parse(steep_model()), 1, at_level("data", amp("f16")));
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  options->train.keep_gradients = true;
  const auto plan = layout_plan(options);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto session = Session::create(test_host(2), *plan, {.seed = 7});
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Job whole = start({});
  const int skipped = skipped_steps(whole);
  for (int call = 0; call <= skipped; ++call) {
    StepMetrics metrics;
    ASSERT_TRUE((*session)->gradients(steep_batch(0), metrics).ok());
    EXPECT_EQ(metrics.overflowed, call < skipped) << call;
    EXPECT_EQ(metrics.skipped.code(), call < skipped ? Code::not_finite : Code::ok) << call;
    if (call < skipped) {
      EXPECT_EQ((*session)->apply(metrics).code(), Code::misuse) << call;
    }
  }
  EXPECT_EQ((*session)->host_state().loss_scale(), number_of(whole, "loss_scale"));
  StepMetrics metrics;
  ASSERT_TRUE((*session)->apply(metrics).ok());
  EXPECT_TRUE(metrics.skipped.ok()) << metrics.skipped.to_string();
  for (const auto& [name, value] : state_of(whole))
    EXPECT_TRUE(identical(*(*session)->state().get(name), value)) << name;
}

TEST(LossScale, IsInCheckpoints) {
  const TemporaryFolder folder;
  Job job = start({}), other = start({.name = "copies", .ranks = 2});
  const int skipped = skipped_steps(job);
  ASSERT_TRUE(save_session(*job.session, folder / "saved").ok());
  const Status loaded = load_session(*other.session, folder / "saved");
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  EXPECT_EQ(number_of(other, "loss_scale"), number_of(job, "loss_scale"));
  EXPECT_EQ(number_of(other, "skipped_steps"), skipped);
}

TEST(LossScale, SaysWhereItOverflowsIfAsked) {
  std::string quiet, asked;
  Job one = start({}, "", &quiet), two = start({}, R"("amp.debug_log": true)", &asked);
  skipped_steps(one);
  skipped_steps(two);
  EXPECT_EQ(quiet, "");
  EXPECT_NE(asked.find("step 1 overflows at a loss scale of 65536"), std::string::npos) << asked;
  EXPECT_NE(asked.find("comes first out of node"), std::string::npos) << asked;
}

TEST(LossScale, KeysAreChecked) {
  for (const char* scale : {"0", "fast", "-3", "1e30", "nan"}) {
    const auto plan = plan_of(steep_model(), {}, amp("f16", cat(R"("amp.loss_scale": ")", scale, "\"")));
    ASSERT_FALSE(plan.ok()) << scale;
    EXPECT_NE(plan.status().message().find("amp.loss_scale is "), std::string::npos) << plan.status().to_string();
  }
  auto options = layout_options(GraphModel::parse(steep_model()), 1, at_level("data", amp("bf16")));
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  options->train.precision = DType::f64;
  const auto plan = layout_plan(options);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("precision is f64"), std::string::npos) << plan.status().to_string();
}

}  // namespace
}  // namespace epl::mixed_precision_test
