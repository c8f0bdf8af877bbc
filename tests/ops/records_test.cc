// Every op record, by its samples: types, text form, meaning, sharding rule of the right form.
#include <gtest/gtest.h>

#include <cmath>

#include "core/ir/evaluate.h"
#include "core/ops/sample.h"

namespace epl::records_test {
namespace {

// A graph with one node of the op on inputs of the sample's types.
Result<Graph> sample_graph(const OpDef& op, const Sample& sample) {
  Graph graph;
  Builder builder(graph);
  std::vector<Var> inputs;
  for (size_t i = 0; i < sample.operands.size(); ++i)
    inputs.push_back(sample.operands[i].present ? builder.var(graph.add_input(cat("x", i), sample.operands[i].type))
                                                : Var());
  std::vector<Var> outputs = builder.emit_all(op.name, inputs, sample.attributes);
  EPL_TRY(builder.status());
  for (size_t i = 0; i < outputs.size(); ++i) graph.outputs.push_back({cat("y", i), outputs[i].value()});
  return graph;
}

class Record : public testing::TestWithParam<const OpDef*> {
 protected:
  template <class F> void each_sample(F f) {
    const OpDef& op = *GetParam();
    for (const std::string& text : op.samples) {
      SCOPED_TRACE(text);
      auto sample = parse_sample(op, text);
      ASSERT_TRUE(sample.ok()) << sample.status().to_string();
      f(op, *sample);
    }
  }
};

// Whether a gradient could flow through a sample.
bool takes_and_gives_floats(const OpDef& op) {
  for (const std::string& text : op.samples) {
    auto sample = parse_sample(op, text);
    auto graph = sample.ok() ? sample_graph(op, *sample) : Result<Graph>(sample.status());
    if (!graph.ok()) continue;  // another test says so
    bool taken = false, given = false;
    for (const Node& node : graph->nodes()) {
      for (Value v : node.inputs) taken |= static_cast<bool>(v) && is_float(graph->type(v).dtype);
      for (Value v : node.outputs) given |= static_cast<bool>(v) && is_float(graph->type(v).dtype);
    }
    if (taken && given) return true;
  }
  return false;
}

TEST_P(Record, IsComplete) {
  const OpDef& op = *GetParam();
  EXPECT_FALSE(op.doc.empty());
  EXPECT_EQ(op.doc.back(), '.') << "the doc is a sentence";
  if (op.boundary) return;
  EXPECT_FALSE(op.samples.empty());
  EXPECT_TRUE(op.elementwise() || op.reference || op.body) << "no meaning";
  EXPECT_TRUE(op.elementwise() || op.infer) << "no shape rule";
  EXPECT_TRUE(op.elementwise() || op.sharding_of || !op.sharding.empty()) << "no sharding rule";
  EXPECT_FALSE(op.gradient && !op.no_gradient.empty()) << "a gradient and a reason for none";
  EXPECT_TRUE(op.gradient || op.body || !op.no_gradient.empty() || !takes_and_gives_floats(op))
      << "no gradient, no body and no reason for having none";
  for (int i : op.no_gradient_inputs) EXPECT_TRUE(op.max_inputs() < 0 || i < op.max_inputs());
}

TEST_P(Record, TextRoundTrips) {
  each_sample([](const OpDef& op, const Sample& sample) {
    auto graph = sample_graph(op, sample);
    ASSERT_TRUE(graph.ok()) << graph.status().to_string();
    const std::string text = print_graph(*graph);
    auto parsed = parse_graph(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string() << "\n" << text;
    EXPECT_EQ(print_graph(*parsed), text);
    ASSERT_TRUE(verify(*parsed).ok());
  });
}

TEST_P(Record, MeaningHasTheInferredTypes) {
  each_sample([](const OpDef& op, const Sample& sample) {
    auto types = infer_types(op, sample.attributes, sample.types());
    ASSERT_TRUE(types.ok()) << types.status().to_string();
    auto results = evaluate_op(op, sample.attributes, sample.values(1));
    ASSERT_TRUE(results.ok()) << results.status().to_string();
    ASSERT_EQ(results->size(), types->size());
    for (size_t i = 0; i < types->size(); ++i) {
      EXPECT_EQ((*results)[i].type(), (*types)[i]) << "output " << i;
      if (!is_float((*types)[i].dtype)) continue;
      for (int64_t k = 0; k < (*results)[i].elements(); ++k)
        ASSERT_TRUE(std::isfinite((*results)[i].get(k))) << "output " << i;
    }
  });
}

// A reference and a body, where a record has both, agree.
TEST_P(Record, BodyAgreesWithReference) {
  each_sample([](const OpDef& op, const Sample& sample) {
    if (!op.reference || !op.body) return;
    const Sample wide = sample.with_floats(DType::f64);
    auto own = evaluate_op(op, wide.attributes, wide.values(1));
    OpDef body_only = op;
    body_only.reference = nullptr;
    auto body = evaluate_op(body_only, wide.attributes, wide.values(1));
    ASSERT_TRUE(own.ok() && body.ok()) << body.status().to_string();
    for (size_t i = 0; i < own->size(); ++i)
      for (int64_t k = 0; k < (*own)[i].elements(); ++k)
        EXPECT_NEAR((*own)[i].get(k), (*body)[i].get(k), 1e-11) << "output " << i;
  });
}

TEST_P(Record, ShardingRuleFitsTheTypes) {
  each_sample([](const OpDef& op, const Sample& sample) {
    auto outputs = infer_types(op, sample.attributes, sample.types());
    ASSERT_TRUE(outputs.ok());
    std::vector<const TensorType*> output_types;
    for (const TensorType& type : *outputs) output_types.push_back(&type);
    auto rule = sharding_rule(OpQuery(op, sample.attributes, sample.types(), output_types));
    ASSERT_TRUE(rule.ok()) << rule.status().to_string();
    const auto fits = [&](const ShardingRule::Operand& dims, const TensorType& type) {
      ASSERT_EQ(dims.size(), type.shape.size());
      for (size_t d = 0; d < dims.size(); ++d) {
        int64_t product = 1;
        for (int f : dims[d]) product *= rule->factors.at(f).size;
        EXPECT_EQ(product, type.shape[d]) << "dimension " << d << " of " << type.text();
      }
    };
    ASSERT_EQ(rule->inputs.size(), sample.operands.size());
    ASSERT_EQ(rule->outputs.size(), outputs->size());
    for (size_t i = 0; i < sample.operands.size(); ++i)
      if (sample.operands[i].present) fits(rule->inputs[i], sample.operands[i].type);
    for (size_t i = 0; i < outputs->size(); ++i) fits(rule->outputs[i], (*outputs)[i]);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, Record, testing::ValuesIn(op_table().all()),
                         [](const auto& info) { return info.param->name; });

TEST(Records, RefuseWhatDoesNotFit) {
  const auto refusal = [](const char* name, const char* sample_text) {
    const OpDef& op = op_named(name);
    auto sample = parse_sample(op, sample_text);
    if (!sample.ok()) return sample.status().message();
    return infer_types(op, sample->attributes, sample->types()).status().message();
  };
  EXPECT_NE(refusal("matmul", "f32[4,6], f32[5,8]").find("inner sizes 6 and 5 differ"), std::string::npos);
  EXPECT_NE(refusal("reshape", "f32[4,6] {shape=[5,5]}").find("holds 25 elements, not 24"), std::string::npos);
  EXPECT_NE(refusal("conv", "f32[1,3,8,8], f32[4,2,3,3]").find("x has 3 channels and w takes 2"), std::string::npos);
  EXPECT_NE(refusal("softmax", "f32[4] {axis=2}").find("axis 2 is outside"), std::string::npos);
  EXPECT_NE(refusal("gather", "f32[4,6], f32[2]").find("indices must be integers"), std::string::npos);
  EXPECT_NE(refusal("concat", "f32[4,6], f32[3,5] {axis=0}").find("sizes differ"), std::string::npos);
  EXPECT_NE(refusal("add", "f32[4], f32[3]").find("4"), std::string::npos);
  EXPECT_NE(refusal("add", "f32[4], f64[4]").find("f64"), std::string::npos);
  EXPECT_NE(refusal("relu", "f32[4] {slope=1}").find("slope"), std::string::npos);
  EXPECT_NE(refusal("sum", "f32[4]").find("needs attribute axes"), std::string::npos);
  EXPECT_NE(refusal("dropout", "f32[4] {ratio=1.5}").find("outside [0, 1)"), std::string::npos);
  // What files may say is bounded long before it overflows.
  EXPECT_NE(refusal("max_pool", "f32[1,1,8] {kernel=[5],dilations=[4611686018427387904]}")
                .find("4611686018427387904 in the window along spatial dimension 0"),
            std::string::npos);
  EXPECT_NE(refusal("conv", "f32[1,1,16], f32[1,1,3] {dilations=[9223372036854775807]}").find("in the window"),
            std::string::npos);
  EXPECT_NE(refusal("conv", "f32[1,1,16], f32[1,1,3] {strides=[9223372036854775807]}").find("in the window"),
            std::string::npos);
  EXPECT_NE(refusal("avg_pool", "f32[1,1,8] {kernel=[2],pads=[9223372036854775807,0]}").find("in the window"),
            std::string::npos);
  EXPECT_NE(refusal("max_pool", "f32[1,1,8,8,8] {kernel=[2147483648,2147483648,2]}").find("too many elements"),
            std::string::npos);
  EXPECT_NE(refusal("slice", "f32[4] {axes=[0],starts=[0],ends=[4],steps=[9223372036854775807]}")
                .find("a step of 9223372036854775807"),
            std::string::npos);
  EXPECT_NE(refusal("slice", "f32[4] {axes=[0],starts=[3],ends=[-1],steps=[-9223372036854775807]}")
                .find("a step of -9223372036854775807"),
            std::string::npos);
  EXPECT_NE(refusal("attention", "f32[1,4,2,8], f32[1,3,2,8], f32[1,3,2,8] {scale=1.0}").find("do not divide"),
            std::string::npos);
}

}  // namespace
}  // namespace epl::records_test
