// A node as it comes through the packs' interface: every field that kernels read is there, and bodies read as the
// scalar expressions that they are.
#include "backends/cuda/query.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "backends/cuda/kernels/rows.h"
#include "core/backend/pack_query.h"
#include "core/ir/scalar.h"

namespace epl::cuda {
namespace {

Query through(const KernelQuery& q) {
  auto query = query_of(*PackQuery(q, nullptr).get());
  EXPECT_TRUE(query.ok()) << query.status().to_string();
  return query.ok() ? *query : Query();
}

TEST(CudaQuery, EveryFieldComesThrough) {
  KernelQuery q{.op = "some",
                .node = "a.node",
                .key = "a.key",
                .input_types = {{DType::f32, {2, 3}}, {DType::i64, {}}},
                .output_types = {{DType::boolean, {7}}},
                .input_present = {true, false},
                .output_present = {true},
                .units = Units(4, 3),
                .splits_keep_bits = true,
                .level = BitsLevel::run};
  const Query got = through(q);
  EXPECT_EQ(got.op, "some");
  EXPECT_EQ(got.node, "a.node");
  EXPECT_EQ(got.key, "a.key");
  ASSERT_EQ(got.inputs.size(), 2u);
  EXPECT_TRUE(got.has(0));
  EXPECT_FALSE(got.has(1));
  EXPECT_EQ(got.in(0), (TensorType{DType::f32, {2, 3}}));
  EXPECT_EQ(got.out(0), (TensorType{DType::boolean, {7}}));
  EXPECT_EQ(got.units, Units(4, 3));
  EXPECT_TRUE(got.splits_keep_bits);
  EXPECT_EQ(got.bits, Bits::run);
  q.splits_keep_bits = false;
  q.level = BitsLevel::data;
  EXPECT_FALSE(through(q).splits_keep_bits);
  EXPECT_EQ(through(q).bits, Bits::data);
}

TEST(CudaQuery, EveryKindOfAttributeComesThrough) {
  KernelQuery q{.op = "some", .node = "n"};
  q.attributes = {{"flag", true},
                  {"integer", int64_t{-7}},
                  {"number", 0.1},
                  {"text", std::string("mode")},
                  {"dtype", DType::bf16},
                  {"integers", Ints{1, -2}},
                  {"none", Ints{}},
                  {"numbers", Doubles{0.5, -3}},
                  {"floats", Tensor::from_floats({2}, {1.5f, -2})},
                  {"ids", Tensor::from_ints({4, 5, int64_t{1} << 60})}};
  const Query got = through(q);
  EXPECT_TRUE(got.flag("flag"));
  EXPECT_EQ(got.integer("integer"), -7);
  EXPECT_EQ(got.number("number"), 0.1);
  EXPECT_EQ(got.text("text"), "mode");
  EXPECT_EQ(got.dtype("dtype"), DType::bf16);
  EXPECT_EQ(got.integers("integers"), (Ints{1, -2}));
  EXPECT_TRUE(got.integers("none").empty());
  EXPECT_EQ(got.numbers("numbers"), (Doubles{0.5, -3}));
  EXPECT_EQ(got.numbers("floats"), (Doubles{1.5, -2}));
  EXPECT_EQ(got.find("floats")->type, (TensorType{DType::f32, {2}}));
  EXPECT_EQ(got.integers("ids").at(2), int64_t{1} << 60);
  EXPECT_EQ(got.find("ids")->kind, Attribute::Kind::tensor);
  EXPECT_EQ(got.find("another"), nullptr);
}

void expect_same(const ScalarExpr& wanted) {
  const auto body = parse_body(wanted.text());
  ASSERT_TRUE(body.ok()) << body.status().to_string();
  ASSERT_EQ(body->code.size(), wanted.code.size());
  for (size_t i = 0; i < wanted.code.size(); ++i) {
    const ScalarExpr::Instruction& in = wanted.code[i];
    const Scalar& got = body->code[i];
    EXPECT_EQ(got.op, scalar_op_info(in.op).name);
    EXPECT_EQ(got.a, in.a);
    EXPECT_EQ(got.b, in.b);
    EXPECT_EQ(got.c, in.c);
    if (in.op == ScalarOp::cast) {
      EXPECT_EQ(got.type, in.type);
    }
    if (in.op == ScalarOp::constant) {
      EXPECT_TRUE(std::isnan(in.value) ? std::isnan(got.value)
                                       : std::signbit(got.value) == std::signbit(in.value) && got.value == in.value);
    }
  }
  EXPECT_EQ(body->outputs, wanted.outputs);
}

TEST(CudaQuery, BodiesAreTheExpressionsThatTheyAre) {
  ScalarExpr e;
  const int x = e.input(0), y = e.input(12);
  int last = e.cast(e.emit(ScalarOp::fma, x, y, x), DType::bf16);
  for (const double value : {1.0, -0.0, 0.1, 1e-300, std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    last = e.emit(ScalarOp::add, last, e.constant(value));
  e.outputs = {last, x};
  expect_same(e);
  for (int op = 0; op < scalar_op_count; ++op) {
    const auto& info = scalar_op_info(static_cast<ScalarOp>(op));
    if (info.arity == 0 || static_cast<ScalarOp>(op) == ScalarOp::cast) continue;
    ScalarExpr one;
    const int a = one.input(0), b = one.input(1), c = one.input(2);
    one.outputs = {one.emit(static_cast<ScalarOp>(op), a, info.arity > 1 ? b : -1, info.arity > 2 ? c : -1)};
    expect_same(one);
  }
}

TEST(CudaQuery, WhatIsNoExpressionIsRefused) {
  for (const char* text : {"", "x0", "x0 -> %1", "x0; add(%0,%1) -> %1", "x0; add(%0 -> %1", "x0; cast(%0,f99) -> %1",
                           "x0 -> %0 %0", "x0; %0 -> %0", "x -> %0", "x0; add(%0,%0,%0,%0) -> %1"})
    EXPECT_FALSE(parse_body(text).ok()) << text;
}

TEST(CudaRows, HaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (const Row& row : all_rows()) EXPECT_TRUE(names.insert(cat(row.op, " ", row.name)).second) << row.name;
  EXPECT_GT(names.size(), 2u);
}

}  // namespace
}  // namespace epl::cuda
