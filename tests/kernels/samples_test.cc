// Every row of the CPU's table against the meaning of its op, over the samples of the op records: a kernel for a new op
// is tested by being there.
#include <cmath>

#include "core/base/philox.h"
#include "core/ir/evaluate.h"
#include "core/strategy/batch_cut.h"
#include "tests/kernels/kernel_harness.h"
#include "tests/ops/cut.h"
#include "tests/thirds.h"

namespace epl::cpu::samples_test {
namespace {

// A node of the op as lowering hands it to a backend: elementwise ops are regions of one.
Launch lowered(const OpDef& op, const Sample& sample, const std::vector<Tensor>& inputs) {
  auto types = infer_types(op, sample.attributes, sample.types());
  EXPECT_TRUE(types.ok()) << types.status().to_string();
  Launch launch = {.op = op.name, .attributes = sample.attributes, .inputs = inputs, .outputs = *types};
  if (op.elementwise()) {
    std::vector<const TensorType*> outputs;
    for (const TensorType& type : *types) outputs.push_back(&type);
    launch.op = "fused";
    launch.attributes = {
        {"expression", scalar_expression(OpQuery(op, sample.attributes, sample.types(), outputs)).text()}};
  }
  return launch;
}

void compare(const OpDef& op, const std::vector<Tensor>& got, const std::vector<Tensor>& want, const std::string& row) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < want.size(); ++o) {
    ASSERT_EQ(got[o].type(), want[o].type());
    for (int64_t i = 0; i < want[o].elements(); ++i) {
      ASSERT_TRUE(near(got[o].get(i), want[o].get(i), 2e-5, 2e-5))
          << op.name << " by " << row << ", output " << o << " element " << i << ": " << got[o].get(i) << ", expected "
          << want[o].get(i);
    }
  }
}

class Samples : public testing::TestWithParam<const OpDef*> {};

TEST_P(Samples, AgreeWithTheMeaning) {
  const OpDef& op = *GetParam();
  int compared = 0;
  std::string reason = "no row";
  for (const std::string& text : op.samples) {
    SCOPED_TRACE(text);
    auto sample = parse_sample(op, text);
    ASSERT_TRUE(sample.ok()) << sample.status().to_string();
    std::vector<Tensor> inputs = sample->values(3);
    Launch launch = lowered(op, *sample, inputs);
    launch.context = {.seed = 5, .step = 3};
    for (int64_t units : {1, 2, 4}) {
      launch.units = units;
      const KernelQuery q = query_of(launch);
      for (const KernelRow& row : kernel_table().rows(launch.op)) {
        if (const Status refused = prepare(row, q).status(); !refused.ok()) {
          reason = row.name + ": " + refused.message();
          continue;
        }
        auto want =
            evaluate_op(op, sample->attributes, inputs, op.reference ? units : 1, random_key(5, 3, launch.node));
        ASSERT_TRUE(want.ok()) << want.status().to_string();
        compare(op, launch_everywhere(launch, row.name), *want, row.name);
        ++compared;
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << reason;
}

// The rows that accept a launch.
std::vector<const KernelRow*> rows_for(const Launch& launch) {
  std::vector<const KernelRow*> rows;
  const KernelQuery q = query_of(launch);
  for (const KernelRow& row : kernel_table().rows(launch.op)) {
    if (prepare(row, q).ok()) rows.push_back(&row);
  }
  return rows;
}

TEST_P(Samples, AgreeInSizesThatNobodyThoughtOf) {
  EPL_ONE_OF_THREE();
  const OpDef& op = *GetParam();
  if (op.boundary) GTEST_SKIP() << "no meaning of its own";
  for (const Variant& variant : variants(op, {0, 1, 2, 5}, true, 300)) {
    SCOPED_TRACE(variant.text);
    const std::vector<Tensor> inputs = variant.sample.values(3);
    Launch launch = lowered(op, variant.sample, inputs);
    launch.context = {.seed = 5, .step = 3};
    launch.threads = 2;
    const std::vector<const KernelRow*> rows = rows_for(launch);
    if (rows.empty()) continue;
    auto want = evaluate_op(op, variant.sample.attributes, inputs, {}, random_key(5, 3, launch.node));
    ASSERT_TRUE(want.ok()) << want.status().to_string();
    for (const KernelRow* row : rows) compare(op, launch_kernel(launch, row->name), *want, row->name);
    if (HasFatalFailure()) return;
  }
}

// A row gives the same bits for a batch at once and for its shards, added as ranks and micro-batches add them, wherever
// the batch stands in the operands.
void compare_shards(const OpDef& op, const Sample& sample, const ShardingRule& rule, CutFactor factor, int64_t shards) {
  const std::vector<Tensor> inputs = sample.values(4);
  const BatchCut cut = follow_batch(rule, std::vector<CutPosition>(inputs.size()), shards, factor);
  if (cut.couples) return;
  Launch launch = lowered(op, sample, inputs);
  const bool sums = std::ranges::find(cut.outputs, CutPosition()) != cut.outputs.end();
  if (sums) launch.units = {shards, cut.sum_outer};
  launch.context = {.seed = 5, .step = 3, .first_unit = 0, .units = shards};
  launch.threads = 2;
  std::vector<Tensor> types;
  for (const TensorType& type : launch.outputs) types.emplace_back(type);
  const int64_t part = rule.factors[factor.factor].size / factor.outer;
  for (const KernelRow* row : rows_for(launch)) {
    const std::vector<Tensor> full = launch_kernel(launch, row->name);
    std::vector<std::vector<Tensor>> results;
    for (int64_t p = 0; p < shards; ++p) {
      const Cut of{rule, factor.factor, p * part / shards, part / shards, factor.outer};
      const Shard shard = of.of(op, sample.attributes, inputs, types);
      Sample local = sample;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (local.operands[i].present) local.operands[i].type = shard.inputs[i].type();
      local.attributes = shard.attributes;
      Launch own = lowered(op, local, shard.inputs);
      own.context = {.seed = 5, .step = 3, .first_unit = p, .units = 1};
      own.threads = 2;
      results.push_back(launch_kernel(own, row->name));
      for (size_t i = 0; i < full.size(); ++i) {
        if (!cut.outputs[i]) continue;
        ASSERT_TRUE(identical(of.shard(rule.outputs[i], full[i]), results.back()[i])) << row->name << ", output " << i;
      }
    }
    for (size_t i = 0; i < full.size(); ++i) {
      if (cut.outputs[i] || full[i].dtype() != DType::f32) continue;
      for (int64_t step = 1; step < shards; step *= 2)
        for (int64_t p = 0; p + step < shards; p += 2 * step)
          for (int64_t k = 0; k < full[i].elements(); ++k)
            results[p][i].as<float>()[k] += results[p + step][i].as<float>()[k];
      ASSERT_TRUE(identical(full[i], results[0][i])) << row->name << ", output " << i << " in " << shards << " shards";
    }
  }
}

TEST_P(Samples, ShardsHaveTheBitsOfTheFullTensor) {
  EPL_ONE_OF_THREE();
  const OpDef& op = *GetParam();
  if (op.boundary) GTEST_SKIP() << "no meaning of its own";
  for (const Variant& variant : variants(op, {1, 4, 12}, false, 50)) {
    SCOPED_TRACE(variant.text);
    OutputTypes outputs;
    auto rule = rule_of(op, variant.sample, outputs);
    ASSERT_TRUE(rule.ok());
    for (size_t f = 0; f < rule->factors.size(); ++f) {
      for (int64_t outer : {1, 3}) {
        if (rule->factors[f].unshardable || rule->factors[f].size < 2 || rule->factors[f].added >= 0) continue;
        // Elements are numbered: partition asks for samples that lead.
        const ShardingRule::Dim& leading = rule->outputs[0].empty() ? ShardingRule::Dim{} : rule->outputs[0][0];
        if (op.random && (outer > 1 || leading.empty() || leading[0] != static_cast<int>(f))) continue;
        for (int64_t shards : {2, 4}) {
          if (rule->factors[f].size % (shards * outer) != 0) continue;
          SCOPED_TRACE(cat("factor ", f, " in ", outer, " parts and ", shards, " shards"));
          compare_shards(op, variant.sample, *rule, {static_cast<int>(f), outer}, shards);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// What a plan counts on: the row that is taken for float32 may write over the operand that the record names.
TEST_P(Samples, AreWrittenOverTheOperandOfTheRecord) {
  const OpDef& op = *GetParam();
  if (op.written_over < 0) return;
  int looked_at = 0;
  for (const std::string& text : op.samples) {
    auto sample = parse_sample(op, text);
    ASSERT_TRUE(sample.ok()) << sample.status().to_string();
    const KernelQuery q = query_of(lowered(op, *sample, sample->values(3)));
    if (q.in(0).dtype != DType::f32) continue;
    const ChosenKernel chosen = choose_kernel(q, {}, kernel_table());
    ASSERT_TRUE(chosen.row);
    EXPECT_TRUE(chosen.prepared.may_alias(op.written_over, 0)) << text << " by " << chosen.row->name;
    ++looked_at;
  }
  EXPECT_GT(looked_at, 0);
}

INSTANTIATE_TEST_SUITE_P(Ops, Samples, testing::ValuesIn(op_table().all()),
                         [](const auto& info) { return info.param->name; });

// Ops that training spends its time in must not fall back to references.
TEST(Rows, ServeWhatTrainingNeeds) {
  for (const char* op :
       {"fused",         "sum",           "max_reduce",         "min_reduce",  "prod_reduce",     "softmax",
        "softmax_grad",  "log_softmax",   "log_softmax_grad",   "layer_norm",  "layer_norm_grad", "rms_norm",
        "rms_norm_grad", "cross_entropy", "cross_entropy_grad", "count_valid", "gather",          "gather_grad",
        "reshape",       "transpose",     "broadcast_to",       "slice",       "slice_grad",      "concat",
        "tile",          "pad",           "pad_grad",           "max_pool",    "max_pool_grad",   "avg_pool",
        "avg_pool_grad", "dropout"}) {
    EXPECT_TRUE(kernel_table().has(op)) << op;
  }
}

}  // namespace
}  // namespace epl::cpu::samples_test
