// The elementwise engine against the double form of its expressions.
#include <cmath>
#include <limits>

#include "core/ir/scalar.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::elementwise_test {
namespace {

Launch fused(std::string expression, std::vector<Tensor> inputs, std::vector<TensorType> outputs) {
  return {.op = "fused",
          .attributes = {{"expression", std::move(expression)}},
          .inputs = std::move(inputs),
          .outputs = std::move(outputs)};
}

// Element of `t` that belongs to element `index` of an output of `shape`.
int64_t broadcast_index(const Shape& from, const Shape& to, int64_t index) {
  Shape strides = row_major_strides(from);
  int64_t at = 0;
  for (int d = static_cast<int>(to.size()) - 1; d >= 0; --d) {
    int64_t i = index % to[d];
    index /= to[d];
    int own = d - static_cast<int>(to.size() - from.size());
    if (own >= 0 && from[own] != 1) at += i * strides[own];
  }
  return at;
}

// Compares all outputs with the expression evaluated element by element.
void check(const Launch& launch, double relative = 2e-6, double absolute = 1e-6) {
  auto parsed = ScalarExpr::parse(launch.attributes.text("expression"));
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  std::vector<Tensor> got = launch_everywhere(launch);
  ASSERT_EQ(got.size(), launch.outputs.size());
  bool integral = true;
  for (const Tensor& in : launch.inputs) integral &= !is_float(in.dtype());
  for (const TensorType& out : launch.outputs) integral &= !is_float(out.dtype);
  const Shape& shape = launch.outputs[0].shape;
  for (int64_t e = 0; e < element_count(shape); ++e) {
    std::vector<double> in, out(launch.outputs.size());
    std::vector<int64_t> int_in, int_out(launch.outputs.size());
    for (const Tensor& t : launch.inputs) {
      int64_t at = broadcast_index(t.shape(), shape, e);
      in.push_back(t.get(at));
      int_in.push_back(is_float(t.dtype()) ? 0 : t.get_int(at));
    }
    std::vector<double> values(parsed->code.size());
    std::vector<int64_t> int_values(parsed->code.size());
    integral ? parsed->evaluate(int_in.data(), int_out.data(), int_values.data())
             : parsed->evaluate(in.data(), out.data(), values.data());
    for (size_t o = 0; o < out.size(); ++o) {
      Tensor want(TensorType{launch.outputs[o].dtype, {1}});
      integral ? want.set_int(0, int_out[o]) : want.set(0, out[o]);
      ASSERT_TRUE(near(got[o].get(e), want.get(0), relative, absolute))
          << launch.attributes.text("expression") << " output " << o << " element " << e << ": " << got[o].get(e)
          << ", expected " << want.get(0) << ", first operand " << (in.empty() ? 0 : in[0]);
    }
  }
}

std::vector<float> interesting_values() {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> values = {0.0f,   -0.0f,  1,   -1,   2,    -2,     0.5f,   -0.5f,  1e-3f,    -1e-3f, 1e-7f,
                               1e-20f, 1e-40f, 88,  -87,  -103, 10,     -10,    1e5f,   16777216, 1e10f,  1e30f,
                               3e38f,  -3e38f, inf, -inf, nan,  0.624f, 0.626f, 0.999f, 1.001f,   3.99f,  4.01f};
  std::mt19937 engine(1);
  for (int i = 0; i < 6000; ++i)
    values.push_back(static_cast<float>((engine() / 4294967296.0 - 0.5) * (i < 2000 ? 4 : i < 4000 ? 30 : 250)));
  return values;
}

struct UnaryCase {
  const char* name;
  double limit = 1e30;  // of |x|; beyond it precision is not promised
};
class Unary : public testing::TestWithParam<UnaryCase> {};

TEST_P(Unary, AgreesWithDouble) {
  std::vector<float> values;
  for (float x : interesting_values()) {
    if (!(std::abs(x) > GetParam().limit) || std::isinf(x)) values.push_back(x);
  }
  if (GetParam().limit < 1e20) std::erase_if(values, [](float x) { return std::isinf(x); });
  int64_t n = static_cast<int64_t>(values.size());
  Tensor x = Tensor::from_floats({n}, values);
  std::string expression = cat("x0; ", GetParam().name, "(%0) -> %1");
  Tensor y = launch_everywhere(fused(expression, {x}, {f32_type({n})}))[0];
  const ScalarOp* op = find_scalar_op(GetParam().name);
  double worst = 0;
  for (int64_t i = 0; i < n; ++i) {
    float want = static_cast<float>(evaluate_scalar(*op, double{values[i]}, 0.0, 0.0));
    // 5 units in the last place; what is built on exp may be zero near the smallest normal number.
    ASSERT_TRUE(near(y.get(i), want, 6e-7, 1.7e-38))
        << GetParam().name << "(" << values[i] << ") = " << y.get(i) << ", expected " << want;
    if (std::isfinite(want) && std::abs(want) > 1e-37f)
      worst = std::max(worst, std::abs(y.get(i) - want) / std::abs(want));
  }
  RecordProperty("worst_relative_error", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Ops, Unary,
                         testing::Values(UnaryCase{"neg"}, UnaryCase{"abs"}, UnaryCase{"sign"}, UnaryCase{"sqrt"},
                                         UnaryCase{"reciprocal"}, UnaryCase{"exp"}, UnaryCase{"expm1"},
                                         UnaryCase{"log"}, UnaryCase{"log1p"}, UnaryCase{"erf"}, UnaryCase{"sin", 1e5},
                                         UnaryCase{"cos", 1e5}, UnaryCase{"tan", 1e5}, UnaryCase{"asin"},
                                         UnaryCase{"acos"}, UnaryCase{"atan"}, UnaryCase{"sinh"}, UnaryCase{"cosh"},
                                         UnaryCase{"tanh"}, UnaryCase{"asinh"}, UnaryCase{"acosh"}, UnaryCase{"atanh"},
                                         UnaryCase{"sigmoid"}, UnaryCase{"floor"}, UnaryCase{"ceil"},
                                         UnaryCase{"round"}, UnaryCase{"logical_not"}, UnaryCase{"is_nan"},
                                         UnaryCase{"is_inf"}),
                         [](const auto& info) { return std::string(info.param.name); });

class Binary : public testing::TestWithParam<const char*> {};

TEST_P(Binary, AgreesWithDouble) {
  std::vector<float> a, b,
      few = {0.0f,
             -0.0f,
             1,
             -1,
             2,
             -2,
             3,
             0.5f,
             -1.5f,
             7.25f,
             100,
             std::numeric_limits<float>::infinity(),
             -std::numeric_limits<float>::infinity(),
             std::numeric_limits<float>::quiet_NaN()};
  for (float x : few) {
    for (float y : few) a.push_back(x), b.push_back(y);
  }
  std::mt19937 engine(2);
  for (int i = 0; i < 3000; ++i) {
    a.push_back(static_cast<float>((engine() / 4294967296.0 - 0.3) * 20));
    b.push_back(static_cast<float>((engine() / 4294967296.0 - 0.5) * 10));
  }
  int64_t n = static_cast<int64_t>(a.size());
  std::string expression = cat("x0; x1; ", GetParam(), "(%0,%1) -> %2");
  check(fused(expression, {Tensor::from_floats({n}, a), Tensor::from_floats({n}, b)}, {f32_type({n})}), 5e-7, 1e-44);
}

INSTANTIATE_TEST_SUITE_P(Ops, Binary,
                         testing::Values("add", "sub", "mul", "div", "max", "min", "pow", "mod", "fmod", "atan2", "eq",
                                         "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Elementwise, EveryLength) {
  for (int64_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 511, 512, 513, 1023, 1025, 70001}) {
    check(fused("x0; x1; mul(%0,%1); add(%2,%0) -> %3", {random_f32({n}, 1), random_f32({n}, 2)}, {f32_type({n})}));
  }
}

TEST(Elementwise, Broadcasts) {
  const std::vector<std::pair<Shape, Shape>> cases = {{{3, 5}, {5}},
                                                      {{3, 5}, {3, 1}},
                                                      {{3, 5}, {1, 1}},
                                                      {{3, 5}, {}},
                                                      {{2, 3, 4}, {3, 1}},
                                                      {{2, 3, 4}, {2, 1, 4}},
                                                      {{4, 768}, {768}},
                                                      {{2, 1500}, {2, 1}},
                                                      {{2, 3, 64}, {3, 64}},
                                                      {{3, 4, 5, 6}, {4, 1, 6}},
                                                      {{5, 4, 300}, {4, 1}},
                                                      {{3, 2, 700}, {2, 700}},
                                                      {{2, 3, 8, 8}, {2, 1, 1, 8}},
                                                      {{1, 1}, {}},
                                                      {{2, 0, 3}, {3}}};
  for (const auto& [shape, other] : cases) {
    for (bool swapped : {false, true}) {
      Tensor a = random_f32(swapped ? other : shape, 3), b = random_f32(swapped ? shape : other, 4);
      check(fused("x0; x1; sub(%0,%1); mul(%2,%1); tanh(%3); 2; div(%4,%5) -> %6, %2", {a, b},
                  {f32_type(shape), f32_type(shape)}));
    }
  }
  check(fused("x0; x1; mul(%0,%1) -> %2", {random_f32({7, 1}, 1), random_f32({1, 9}, 2)}, {f32_type({7, 9})}));
  check(fused("x0; exp(%0) -> %1", {random_f32({7, 1}, 1)}, {f32_type({7, 900})}));
}

TEST(Elementwise, Gelu) {
  check(fused("x0; 0.5; 0.7071067811865476; mul(%0,%2); erf(%3); 1; add(%4,%5); mul(%0,%1); mul(%7,%6) -> %8",
              {random_f32({33, 77}, 5, -6, 6)}, {f32_type({33, 77})}),
        1e-5, 1e-6);
}

// Inputs: w, g, m, v, learning rate, corrections of m and v.
constexpr const char* adamw =
    "x0; x1; x2; x3; x4; x5; x6; 0.9; 0.1; mul(%2,%7); mul(%1,%8); add(%9,%10); 0.999; 0.001; mul(%3,%12); mul(%1,%1); "
    "mul(%15,%13); add(%14,%16); div(%11,%5); div(%17,%6); sqrt(%19); 1e-08; add(%20,%21); div(%18,%22); 0.01; "
    "mul(%0,%24); "
    "add(%23,%25); mul(%4,%26); sub(%0,%27) -> %28, %11, %17";

TEST(Elementwise, AdamWritesOverItsState) {
  Shape shape = {37, 101};
  Launch launch =
      fused(adamw,
            {random_f32(shape, 1), random_f32(shape, 2), random_f32(shape, 3), random_f32(shape, 4, 0, 1),
             Tensor::from_floats({}, {0.01f}), Tensor::from_floats({}, {0.1f}), Tensor::from_floats({1}, {0.001f})},
            {f32_type(shape), f32_type(shape), f32_type(shape)});
  check(launch, 1e-5);
  std::vector<Tensor> apart = launch_kernel(launch);
  launch.aliases = {{0, 0}, {2, 1}, {3, 2}};
  std::vector<Tensor> over = launch_everywhere(launch);
  for (int o = 0; o < 3; ++o) EXPECT_TRUE(identical(apart[o], over[o]));
}

TEST(Elementwise, AnOutputOverAnInputThatIsReadLater) {
  Launch launch =
      fused("x0; x1; add(%0,%1); mul(%2,%0); exp(%1) -> %2, %3, %4", {random_f32({3000}, 1), random_f32({3000}, 2)},
            {f32_type({3000}), f32_type({3000}), f32_type({3000})});
  std::vector<Tensor> apart = launch_everywhere(launch);
  launch.aliases = {{0, 0}, {1, 1}};
  std::vector<Tensor> over = launch_everywhere(launch);
  for (int o = 0; o < 3; ++o) EXPECT_TRUE(identical(apart[o], over[o]));
}

// Outputs of 4 MiB and more go past the caches.
TEST(Elementwise, LargeOutputs) {
  const Shape shape = {(int64_t{1} << 20) + 13};
  Launch launch = fused("x0; x1; mul(%0,%1); add(%2,%0) -> %3, %2", {random_f32(shape, 1), random_f32(shape, 2)},
                        {f32_type(shape), f32_type(shape)});
  for (bool over : {false, true}) {
    if (over) launch.aliases = {{0, 1}};
    const std::vector<Tensor> got = launch_everywhere(launch);
    for (int64_t i = 0; i < shape[0]; ++i) {
      const float x = launch.inputs[0].as<float>()[i], product = x * launch.inputs[1].as<float>()[i];
      ASSERT_EQ(got[0].as<float>()[i], product + x) << i << ", over an input: " << over;
      ASSERT_EQ(got[1].as<float>()[i], product) << i << ", over an input: " << over;
    }
  }
}

TEST(Elementwise, InputsPassedThroughAreNotWrittenOver) {
  KernelQuery q =
      query_of(fused("x0; x1 -> %1, %0", {random_f32({8}, 1), random_f32({8}, 2)}, {f32_type({8}), f32_type({8})}));
  const ChosenKernel kernel = kernel_table().choose(q);
  ASSERT_NE(kernel.row, nullptr);
  EXPECT_FALSE(kernel.prepared.may_alias(0, 0));
  check(fused("x0; x1 -> %1, %0", {random_f32({8}, 1), random_f32({8}, 2)}, {f32_type({8}), f32_type({8})}));
}

TEST(Elementwise, UnusedAndEqualOutputs) {
  Launch launch = fused("x0; exp(%0); neg(%1) -> %1, %2, %1", {random_f32({100}, 1)},
                        {f32_type({100}), f32_type({100}), f32_type({100})});
  check(launch);
  launch.wanted = {false, true, false};
  std::vector<Tensor> got = launch_everywhere(launch);
  EXPECT_TRUE(got[0].empty());
  EXPECT_NEAR(got[1].get(3), -std::exp(launch.inputs[0].get(3)), 1e-5);
}

TEST(Elementwise, Constants) {
  check(fused("3.5 -> %0", {}, {f32_type({5})}));
  check(fused("x0; 1; 2; add(%1,%2) -> %3, %0", {random_f32({1}, 1)}, {f32_type({40}), f32_type({40})}));
}

TEST(Elementwise, TruthValues) {
  Tensor x = random_f32({9, 30}, 1), mask = random_int(DType::boolean, {30}, 2, 0, 1);
  check(fused("x0; x1; -10000; select(%1,%0,%2) -> %3", {x, mask}, {f32_type({9, 30})}));
  check(fused("x0; 0; gt(%0,%1) -> %2", {x}, {TensorType{DType::boolean, {9, 30}}}));
  check(fused("x0; x1; logical_and(%0,%1); logical_not(%2) -> %3, %2",
              {mask, random_int(DType::boolean, {30}, 3, 0, 1)},
              {TensorType{DType::boolean, {30}}, TensorType{DType::boolean, {30}}}));
  check(fused("x0; x1; 0; gt(%0,%2); mul(%1,%3) -> %4", {x, random_f32({9, 30}, 4)}, {f32_type({9, 30})}));
}

class IntegerType : public testing::TestWithParam<DType> {};

TEST_P(IntegerType, Arithmetic) {
  DType type = GetParam();
  Tensor a =
      random_int(type, {5, 300}, 1, type == DType::u8 || type == DType::u16 || type == DType::u32 ? 0 : -100, 100);
  Tensor b = random_int(type, {300}, 2, 0, 9);
  TensorType out{type, {5, 300}};
  for (const char* op : {"add", "sub", "mul", "div", "max", "min", "mod", "fmod", "bit_and", "bit_or", "bit_xor",
                         "shift_left", "shift_right"}) {
    check(fused(cat("x0; x1; ", op, "(%0,%1) -> %2"), {a, b}, {out}), 0, 0);
  }
  for (const char* op : {"neg", "abs", "sign", "bit_not"})
    check(fused(cat("x0; ", op, "(%0) -> %1"), {a}, {out}), 0, 0);
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    check(fused(cat("x0; x1; ", op, "(%0,%1) -> %2"), {a, b}, {TensorType{DType::boolean, {5, 300}}}), 0, 0);
  }
  check(fused("x0; x1; 3; eq(%1,%2); select(%3,%0,%1) -> %4", {a, b}, {out}), 0, 0);
  check(fused("x0; cast(%0,f32) -> %1", {a}, {f32_type({5, 300})}), 0, 0);
  check(fused(cat("x0; cast(%0,", dtype_name(type), ") -> %1"), {random_f32({5, 300}, 3, 0, 1000)}, {out}), 0, 0);
  check(fused(cat("x0; cast(%0,", dtype_name(type), ") -> %1"),
              {random_int(DType::i64, {5, 300}, 3, -5000000000, 5000000000)}, {out}),
        0, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, IntegerType,
                         testing::Values(DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16,
                                         DType::u32),
                         [](const auto& info) { return std::string(dtype_name(info.param)); });

TEST(Elementwise, LargeIntegersStayExact) {
  Tensor a = Tensor::from_ints({9007199254740993, 9007199254740992, -9007199254740993}),
         b = Tensor::from_ints({9007199254740992, 9007199254740992, 5});
  Tensor eq = launch_everywhere(fused("x0; x1; eq(%0,%1) -> %2", {a, b}, {TensorType{DType::boolean, {3}}}))[0];
  EXPECT_EQ(eq.to_ints(), (std::vector<int64_t>{0, 1, 0}));
  // The same inside an expression that goes on in floats.
  Tensor chosen =
      launch_everywhere(fused("x0; x1; eq(%0,%1); 1.5; 2.5; select(%2,%3,%4) -> %5", {a, b}, {f32_type({3})}))[0];
  EXPECT_EQ(chosen.get(0), 2.5);
  EXPECT_EQ(chosen.get(1), 1.5);
}

Tensor random_float(DType type, Shape shape, int seed, double low = -3, double high = 3) {
  Tensor out(TensorType{type, std::move(shape)});
  std::mt19937_64 engine(static_cast<uint64_t>(seed));
  std::uniform_real_distribution<double> value(low, high);
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, value(engine));
  return out;
}

// Every operation in the arithmetic of the double meaning.
TEST(Elementwise, Float64IsTheMeaningItself) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const double few[] = {0.0, -0.0, 1, -1, 0.5, -2.5, 1e-300, 1e300, 7.25, -40, inf, -inf, nan};
  const auto n = static_cast<int64_t>(std::size(few) * std::size(few)) + 100;
  Tensor a = random_float(DType::f64, {n}, 1), b = random_float(DType::f64, {n}, 2);
  for (size_t i = 0; i < std::size(few) * std::size(few); ++i) {
    a.set(static_cast<int64_t>(i), few[i / std::size(few)]);
    b.set(static_cast<int64_t>(i), few[i % std::size(few)]);
  }
  const TensorType real{DType::f64, {n}}, truth{DType::boolean, {n}};
  for (int i = 0; i < scalar_op_count; ++i) {
    const auto& info = scalar_op_info(static_cast<ScalarOp>(i));
    if (info.arity == 0 || info.name == "cast" || info.name == "fma") continue;
    if (info.family == ScalarFamily::bits) continue;  // of integers
    const char* arguments[] = {"(%0)", "(%0,%1)", "(%0,%1,%0)"};
    check(fused(cat("x0; x1; ", info.name, arguments[info.arity - 1], " -> %2"), {a, b}, {info.truth() ? truth : real}),
          0, 0);
  }
  check(fused("x0; x1; fma(%0,%1,%0) -> %2", {random_float(DType::f64, {n}, 3), random_float(DType::f64, {n}, 4)},
              {real}),
        0, 0);
}

TEST(Elementwise, Float64Regions) {
  const Shape shape = {37, 301};
  const TensorType real{DType::f64, shape};
  Tensor x = random_float(DType::f64, shape, 1), row = random_float(DType::f64, {301}, 2);
  check(fused("x0; x1; mul(%0,%1); add(%2,%0); tanh(%3); 0.5; mul(%4,%5); exp(%6) -> %7, %3", {x, row}, {real, real}),
        1e-15, 0);
  // With truth values, integers and other floats.
  check(fused("x0; x1; 0; gt(%0,%2); select(%3,%0,%1) -> %4, %3", {x, random_int(DType::i32, {301}, 3, -9, 9)},
              {real, TensorType{DType::boolean, shape}}),
        0, 0);
  check(fused("x0; x1; cast(%0,f64); mul(%1,%2) -> %3", {random_float(DType::f32, {301}, 4), x}, {real}), 0, 0);
  check(fused("x0; cast(%0,f32); 3; div(%1,%2) -> %3, %1", {x}, {real, f32_type(shape)}), 0, 0);
  check(fused("x0; cast(%0,bf16) -> %1, %0, %0", {x},
              {TensorType{DType::bf16, shape}, TensorType{DType::f16, shape}, TensorType{DType::f32, shape}}),
        0, 0);
  check(fused("x0; cast(%0,i8); cast(%1,f64) -> %2, %1", {x}, {real, TensorType{DType::i8, shape}}), 0, 0);
  check(fused("x0; 2; pow(%0,%1); -0.5; pow(%2,%3) -> %4", {x}, {real}), 1e-15, 0);
}

// 16-bit floats are computed with in float32: a single operation rounds as the meaning does, but for rare cases
// between two float32 where rounding twice is not rounding once.
TEST(Elementwise, FloatsOf16Bits) {
  const Shape shape = {37, 301};
  for (DType type : {DType::f16, DType::bf16}) {
    SCOPED_TRACE(dtype_name(type));
    const double step = type == DType::f16 ? 1.0 / 1024 : 1.0 / 128;
    const TensorType own{type, shape};
    Tensor x = random_float(type, shape, 1), row = random_float(type, {301}, 2);
    check(fused("x0; x1; mul(%0,%1) -> %2", {x, row}, {own}), 0, 0);
    check(fused("x0; x1; add(%0,%1) -> %2", {x, row}, {own}), 0, 0);
    check(fused("x0; x1; div(%0,%1); tanh(%2); exp(%0) -> %3, %4", {x, row}, {own, own}), step, 1e-7);
    check(fused(cat("x0; x1; mul(%0,%1); cast(%2,", dtype_name(type), "); add(%3,%0) -> %4, %3"), {x, row}, {own, own}),
          0, 0);
    check(fused("x0; x1; lt(%0,%1) -> %2", {x, row}, {TensorType{DType::boolean, shape}}), 0, 0);
    check(fused("x0; cast(%0,f32) -> %1", {x}, {f32_type(shape)}), 0, 0);
    check(fused("x0; x1; mul(%0,%1) -> %2", {random_float(type, {}, 3), x}, {own}), 0, 0);
    check(fused(cat("x0; cast(%0,", dtype_name(type), ") -> %1"), {random_f32(shape, 4, -1e6, 1e6)}, {own}), 0, 0);
  }
}

TEST(Elementwise, RefusesWithAReason) {
  Tensor x(TensorType{DType::u64, {4}});
  std::vector<Refusal> refusals;
  KernelQuery q = query_of(fused("x0; abs(%0) -> %1", {x}, {TensorType{DType::u64, {4}}}));
  kernel_table().choose(q, &refusals);
  ASSERT_FALSE(refusals.empty());
  EXPECT_NE(refusals[0].reason.find("u64"), std::string::npos);
}

// Rows of a tensor computed alone have the bits they have in the full.
TEST(Elementwise, CutsDoNotChangeBits) {
  Tensor x = random_f32({12, 333}, 1);
  const char* expression = "x0; sigmoid(%0); mul(%0,%1); erf(%2); log1p(%1) -> %3, %4";
  std::vector<Tensor> full = launch_kernel(fused(expression, {x}, {f32_type({12, 333}), f32_type({12, 333})}));
  for (int64_t first : {0, 5, 11}) {
    Tensor part(f32_type({1, 333}));
    std::memcpy(part.data(), x.as<float>().data() + first * 333, 333 * 4);
    std::vector<Tensor> alone = launch_kernel(fused(expression, {part}, {f32_type({1, 333}), f32_type({1, 333})}));
    for (int o = 0; o < 2; ++o)
      EXPECT_EQ(0, std::memcmp(alone[o].data(), full[o].as<float>().data() + first * 333, 333 * 4));
  }
}

}  // namespace
}  // namespace epl::cpu::elementwise_test
