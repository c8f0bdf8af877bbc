// Every row of the CPU's table against the meaning of its op, over the samples of the op records: a kernel for a new op
// is tested by being there.
#include <cmath>

#include "core/base/philox.h"
#include "core/ir/evaluate.h"
#include "core/ops/sample.h"
#include "tests/backends/kernel_harness.h"

namespace epl::cpu {
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
    launch.attributes = {{"expression", scalar_expression(OpQuery(op, sample.attributes, sample.types(), outputs)).text()}};
  }
  return launch;
}

void compare(const OpDef& op, const Launch& launch, const std::vector<Tensor>& want, const std::string& row) {
  std::vector<Tensor> got = launch_everywhere(launch, row);
  ASSERT_EQ(got.size(), want.size());
  for (size_t o = 0; o < want.size(); ++o) {
    ASSERT_EQ(got[o].type(), want[o].type());
    for (int64_t i = 0; i < want[o].elements(); ++i) {
      ASSERT_TRUE(near(got[o].get(i), want[o].get(i), 2e-5, 2e-5))
          << op.name << " by " << row << ", output " << o << " element " << i << ": " << got[o].get(i) << ", expected " << want[o].get(i);
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
      KernelQuery q = query_of(launch);
      for (const KernelRow& row : kernel_table().rows(launch.op)) {
        q.refusal.clear();
        KernelTable alone;
        alone.add(row);
        std::vector<Refusal> refusals;
        if (!alone.choose(q, &refusals)) {
          reason = refusals[0].kernel + ": " + refusals[0].reason;
          continue;
        }
        auto want = evaluate_op(op, sample->attributes, inputs, op.reference ? units : 1, random_key(5, 3, launch.node));
        ASSERT_TRUE(want.ok()) << want.status().to_string();
        compare(op, launch, *want, row.name);
        ++compared;
      }
    }
  }
  if (compared == 0) GTEST_SKIP() << reason;
}

INSTANTIATE_TEST_SUITE_P(Ops, Samples, testing::ValuesIn(op_table().all()), [](const auto& info) { return info.param->name; });

// Ops that training spends its time in must not fall back to references.
TEST(Rows, ServeWhatTrainingNeeds) {
  for (const char* op : {"fused", "sum", "max_reduce", "min_reduce", "prod_reduce", "softmax", "softmax_grad", "log_softmax",
                         "log_softmax_grad", "layer_norm", "layer_norm_grad", "rms_norm", "rms_norm_grad", "cross_entropy",
                         "cross_entropy_grad", "count_valid", "gather", "gather_grad", "reshape", "transpose", "broadcast_to", "slice",
                         "slice_grad", "concat", "tile", "pad", "pad_grad", "max_pool", "max_pool_grad", "avg_pool", "avg_pool_grad",
                         "dropout"}) {
    EXPECT_TRUE(kernel_table().has(op)) << op;
  }
}

}  // namespace
}  // namespace epl::cpu
