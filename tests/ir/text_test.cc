#include <gtest/gtest.h>

#include "core/base/attributes.h"
#include "core/ir/graph.h"
#include "core/ir/scalar.h"
#include "core/ir/sharding_rule.h"

namespace epl::text_test {
namespace {

TEST(ScalarExpr, PrintsAndParses) {
  ScalarExpr e;
  int x = e.input(0), y = e.input(1);
  e.outputs = {e.emit(ScalarOp::add, e.emit(ScalarOp::exp, x), e.emit(ScalarOp::mul, y, e.constant(0.5)))};
  auto parsed = ScalarExpr::parse(e.text());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(*parsed, e);
  double in[] = {0.0, 3.0}, out[1];
  double values[16];
  parsed->evaluate(in, out, values);
  EXPECT_EQ(out[0], 2.5);
  for (const char* bad :
       {"", "x0", "mul(x0,x1) -> %0", "x0; frob(%0) -> %1", "x0 -> %1", "x0; cast(%0,f99) -> %1", "x0; cast(%0,f32"}) {
    EXPECT_FALSE(ScalarExpr::parse(bad).ok()) << bad;
  }
}

// Sizes of a text that nobody here wrote, a damaged plan file's for example, take no memory before they are believed.
TEST(GraphText, ElementsThatAreNotThereTakeNoMemory) {
  const auto parse = [](const std::string& type) {
    return parse_graph(cat("graph g() {\n  c: ", type, " = const ", type, "(1.0)\n  output y = c\n}\n"));
  };
  EXPECT_FALSE(parse("f32[20000000000000]").ok());
  std::string_view tensor = "f32[20000000000000](1.0)";
  EXPECT_EQ(parse_attribute(tensor).status().message(), "a tensor whose elements are not there");
  EXPECT_TRUE(parse("f32[1]").ok());
  for (const char* type : {"f32[4611686018427387904,4]", "f32[0,4611686018427387904,4]", "f32[9223372036854775807]"}) {
    std::string_view text = type;
    TensorType parsed;
    EXPECT_FALSE(parse_tensor_type(text, parsed)) << type << ", whose bytes are no number";
    EXPECT_FALSE(parse(type).ok()) << type;
  }
}

TEST(ShardingRule, ReadsAProduct) {
  TensorType a{DType::f32, {2, 3, 4}}, b{DType::f32, {4, 5}}, c{DType::f32, {2, 3, 5}};
  auto rule = parse_sharding_rule("... m k, k n -> ... m n", {a, b}, {c});
  ASSERT_TRUE(rule.ok()) << rule.status().to_string();
  EXPECT_EQ(rule->inputs[0][2], rule->inputs[1][0]);   // k
  EXPECT_EQ(rule->inputs[0][0], rule->outputs[0][0]);  // the leading dimension
  EXPECT_EQ(rule->inputs[1][1], rule->outputs[0][2]);  // n
  EXPECT_EQ(rule->factors[rule->inputs[0][2][0]].size, 4);
}

TEST(ShardingRule, FollowsReshapes) {
  auto rule = reshape_rule({DType::f32, {4, 16, 32}}, {DType::f32, {64, 2, 16}});
  ASSERT_EQ(rule.outputs[0][0].size(), 2u);
  EXPECT_EQ(rule.outputs[0][0][0], rule.inputs[0][0][0]);  // the batch is the major part of the product
  EXPECT_EQ(rule.inputs[0][2].size(), 2u);
  rule = reshape_rule({DType::f32, {6, 4}}, {DType::f32, {4, 6}});
  EXPECT_TRUE(rule.factors[rule.inputs[0][0][0]].unshardable);
}

}  // namespace
}  // namespace epl::text_test
