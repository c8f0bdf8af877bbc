// Products of bf16: the sums of the same numbers in double within the error of their order, and one result on every
// processor, with and without the instruction for pairs.
#include <bit>
#include <cmath>

#include "core/base/dtype.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::bf16_product_test {
namespace {

// A product as rows of operands: A is [batch, m, k] or transposed, B is [k, n] or transposed.
struct Sizes {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

Tensor bfloats(const Shape& shape, std::mt19937& random, auto next) {
  Tensor t(TensorType{DType::bf16, shape});
  auto* const bits = static_cast<uint16_t*>(t.data());
  for (int64_t i = 0; i < t.elements(); ++i) bits[i] = next(random);
  return t;
}
uint16_t usual(std::mt19937& random) {
  return float_to_bfloat(static_cast<float>(std::normal_distribution<double>()(random)));
}
// Every pattern of bits: subnormal numbers, infinities and not-a-numbers among them.
uint16_t any(std::mt19937& random) { return static_cast<uint16_t>(random()); }
// Around the smallest normal numbers: sums of products of these and of numbers near 1 are subnormal or nearly so.
uint16_t small(std::mt19937& random) { return static_cast<uint16_t>((random() & 0x807f) | (random() % 6) << 7); }

float value_of(const Tensor& t, int64_t i) { return bfloat_to_float(static_cast<const uint16_t*>(t.data())[i]); }

Launch product_of(const Sizes& s, Tensor a, Tensor b) {
  Launch launch{.op = "matmul",
                .attributes = {{"transpose_a", s.transpose_a}, {"transpose_b", s.transpose_b}, {"wide", true}},
                .outputs = {f32_type({s.m, s.n})},
                .level = BitsLevel::data};
  launch.inputs = {std::move(a), std::move(b)};
  return launch;
}
Shape shape_a(const Sizes& s) { return s.transpose_a ? Shape{s.k, s.m} : Shape{s.m, s.k}; }
Shape shape_b(const Sizes& s) { return s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}; }

std::vector<Sizes> all_sizes() {
  std::vector<Sizes> sizes;
  for (const bool ta : {false, true}) {
    for (const bool tb : {false, true}) {
      for (const int64_t k : {1, 2, 3, 64, 257, 600})
        for (const auto& [m, n] : {std::pair<int64_t, int64_t>{1, 1}, {3, 70}, {15, 33}, {61, 5}})
          sizes.push_back({m, n, k, ta, tb});
      sizes.push_back({130, 150, 300, ta, tb});
      sizes.push_back({260, 530, 1301, ta, tb});
    }
  }
  for (int64_t m = 1; m <= 30; ++m) sizes.push_back({m, 40 + m, 21, m % 2 == 0, m % 3 == 0});
  return sizes;
}

// A chain of k products has an error of at most k roundings of the sum of magnitudes.
TEST(Bf16Product, IsTheSumInDoubleWithinItsRoundings) {
  std::mt19937 random(1);
  for (const Sizes& s : all_sizes()) {
    SCOPED_TRACE(cat(s.m, " ", s.n, " ", s.k, " ", s.transpose_a, s.transpose_b));
    const Tensor a = bfloats(shape_a(s), random, usual), b = bfloats(shape_b(s), random, usual);
    const std::vector<Tensor> got = launch_everywhere(product_of(s, a, b));
    ASSERT_EQ(got.size(), 1u);
    const int64_t step = s.m * s.n > 10000 ? 37 : 1;
    for (int64_t at = 0; at < s.m * s.n; at += step) {
      const int64_t i = at / s.n, j = at % s.n;
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        const double x = value_of(a, s.transpose_a ? k * s.m + i : i * s.k + k),
                     y = value_of(b, s.transpose_b ? j * s.k + k : k * s.n + j);
        sum += x * y;
        magnitude += std::abs(x * y);
      }
      const double roundings = static_cast<double>(std::min<int64_t>(s.k, 256) + s.k / 256 + 1);
      ASSERT_LE(std::abs(got[0].get(at) - sum), roundings * 0x1p-24 * magnitude) << i << " " << j;
    }
  }
}

// Equal bits but for which not-a-number it is.
void expect_equal(const Tensor& got, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(got.type(), wanted.type());
  for (int64_t i = 0; i < got.elements(); ++i) {
    const auto x = static_cast<float>(got.get(i)), y = static_cast<float>(wanted.get(i));
    ASSERT_TRUE((std::isnan(x) && std::isnan(y)) || std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y))
        << what << ", element " << i << ": " << x << " " << y;
  }
}

TEST(Bf16Product, OddNumbersGiveTheSameOnEveryProcessor) {
  std::mt19937 random(2);
  for (const auto next : {any, small}) {
    for (const Sizes& s : all_sizes()) {
      SCOPED_TRACE(cat(s.m, " ", s.n, " ", s.k, " ", s.transpose_a, s.transpose_b));
      const Launch launch =
          product_of(s, bfloats(shape_a(s), random, next), bfloats(shape_b(s), random, next == small ? usual : next));
      Tensor first;
      for (const CpuLevel level : {CpuLevel::v3, CpuLevel::v4, CpuLevel::v4_bf16}) {
        if (level > detected_cpu_level()) continue;
        const ScopedCpuLevel scope(level);
        const Tensor got = launch_kernel(launch).at(0);
        if (first.empty()) first = got;
        expect_equal(got, first, std::string(cpu_level_name(level)));
      }
    }
  }
}

// Subnormal numbers are zero at level `data`, operands and results, and numbers like others at level `exact`.
TEST(Bf16Product, SubnormalNumbersFollowTheLevel) {
  const auto product = [](std::vector<uint16_t> a, std::vector<uint16_t> b, BitsLevel level) {
    const auto k = static_cast<int64_t>(a.size());
    Tensor x(TensorType{DType::bf16, {1, k}}), y(TensorType{DType::bf16, {k, 1}});
    std::memcpy(x.data(), a.data(), 2 * a.size());
    std::memcpy(y.data(), b.data(), 2 * b.size());
    Launch launch = product_of({1, 1, k, false, false}, x, y);
    launch.level = level;
    return launch_everywhere(launch).at(0).get(0);
  };
  const uint16_t subnormal = 0x0001, large = 0x7f00, one = 0x3f80, smallest = 0x0080, half = 0x3f00;
  EXPECT_EQ(product({subnormal}, {large}, BitsLevel::exact), 0x1p-133 * 0x1p127);
  EXPECT_EQ(product({subnormal}, {large}, BitsLevel::data), 0);
  EXPECT_EQ(product({smallest, one}, {half, 0}, BitsLevel::exact), 0x1p-127);
  EXPECT_EQ(product({smallest, one}, {half, 0}, BitsLevel::data), 0);
  EXPECT_EQ(product({smallest}, {one}, BitsLevel::data), 0x1p-126);
}

// Units are sums of their own, of odd length too, wherever they lie; -0 stays what it is.
TEST(Bf16Product, UnitsAreTheSumsOfTheirParts) {
  std::mt19937 random(3);
  for (const Units units : {Units(1), Units(2), Units(4), Units(8), Units(2, 3), Units(4, 5), Units(2, 2)}) {
    for (const int64_t run : {1, 3, 4, 17, 130, 301}) {
      const int64_t k = units.count * units.outer * run;
      if (k > 3000) continue;
      SCOPED_TRACE(cat(units.count, " units, ", units.outer, " outer, runs of ", run));
      for (const auto next : {usual, any}) {
        Launch launch{.op = "linear_grad_weight",
                      .attributes = {{"transpose_w", run % 2 == 1}, {"wide", true}},
                      .outputs = {f32_type(run % 2 == 1 ? Shape{45, 23} : Shape{23, 45})},
                      .units = units,
                      .level = BitsLevel::data};
        launch.inputs = {bfloats({k, 23}, random, next), bfloats({k, 45}, random, next)};
        Tensor first;
        for (const CpuLevel level : {CpuLevel::v3, CpuLevel::v4_bf16}) {
          if (level > detected_cpu_level()) continue;
          const ScopedCpuLevel scope(level);
          for (launch.threads = 1; launch.threads <= 3; ++launch.threads) {
            const Tensor got = launch_kernel(launch).at(0);
            if (first.empty()) first = got;
            expect_equal(got, first, cat(cpu_level_name(level), ", ", launch.threads, " threads"));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu::bf16_product_test
