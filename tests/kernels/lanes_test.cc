// Every lane of every level of processor, with every choice of operands that are one element for the whole tile and
// with every kind of tail, against the lane itself one element at a time. What a lane computes, the elementwise tests
// say.
#include "backends/cpu/kernels/lanes.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "backends/cpu/cpu.h"
#include "core/base/text.h"
#include "core/ir/scalar.h"

namespace epl::cpu {
namespace {

constexpr int64_t most = 70;  // four vectors of AVX-512 and a tail

enum class Kind { real, whole, truth, i8, i16, i32, u8, u16, u32 };
size_t size_of(Kind kind) {
  switch (kind) {
    case Kind::whole:
      return 8;
    case Kind::real:
    case Kind::i32:
    case Kind::u32:
      return 4;
    case Kind::i16:
    case Kind::u16:
      return 2;
    default:
      return 1;
  }
}

// A row of a level's table, and what its operands and its result are.
struct Row {
  std::string name;
  const Lane* lanes;
  Kind from, to;
};

std::vector<Row> rows(const LaneTable& table) {
  std::vector<Row> out;
  auto add = [&](std::string name, const Lane* lanes, Kind from, Kind to) {
    if (lanes[0]) out.push_back({std::move(name), lanes, from, to});
  };
  for (int i = 0; i < scalar_ops; ++i) {
    const auto op = static_cast<ScalarOp>(i);
    const bool compares = op == ScalarOp::eq || op == ScalarOp::ne || op == ScalarOp::lt || op == ScalarOp::le ||
                          op == ScalarOp::gt || op == ScalarOp::ge;
    add(cat("real ", i), table.real[i], Kind::real, Kind::real);
    add(cat("whole ", i), table.whole[i], Kind::whole, compares ? Kind::real : Kind::whole);
  }
  for (int i = 0; i < static_cast<int>(Pair::count); ++i) add(cat("pair ", i), table.pair[i], Kind::real, Kind::real);
  auto convert = [&](Conversion c, Kind from, Kind to) {
    const int i = static_cast<int>(c);
    add(cat("conversion ", i), table.convert[i], from, to);
  };
  convert(Conversion::real_to_whole, Kind::real, Kind::whole);
  convert(Conversion::whole_to_real, Kind::whole, Kind::real);
  convert(Conversion::truth_to_real, Kind::truth, Kind::real);
  convert(Conversion::real_to_truth, Kind::real, Kind::truth);
  convert(Conversion::whole_to_truth_real, Kind::whole, Kind::real);
  convert(Conversion::copy_real, Kind::real, Kind::real);
  convert(Conversion::copy_whole, Kind::whole, Kind::whole);
  const Kind integers[] = {Kind::i8, Kind::i16, Kind::i32, Kind::u8, Kind::u16, Kind::u32};
  for (int i = 0; i < 6; ++i) {
    convert(static_cast<Conversion>(static_cast<int>(Conversion::i8_to_whole) + i), integers[i], Kind::whole);
    convert(static_cast<Conversion>(static_cast<int>(Conversion::whole_to_i8) + i), Kind::whole, integers[i]);
  }
  return out;
}

template <class T> void put(std::vector<uint8_t>& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
}

// As many elements as a lane is given and none behind them.
std::vector<uint8_t> operand(Kind kind, int64_t n, std::mt19937& random) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float special[] = {0.0f, -0.0f, 1,   -1,   2,   0.5f,     1e-40f, 88,
                               -103, 3e38f, inf, -inf, nan, 16777216, -7.5f,  1e10f};
  constexpr int64_t wholes[] = {0, 1, -1, 2, 63, 64, 255, -256, int64_t{1} << 40, INT64_MAX, INT64_MIN};
  std::vector<uint8_t> bytes(n * size_of(kind));
  for (int64_t i = 0; i < n; ++i) {
    const bool rare = random() % 2;
    const auto small = static_cast<int64_t>(random() % 21) - 10;
    if (kind == Kind::real) {
      put(bytes, i, rare ? special[random() % std::size(special)] : static_cast<float>(small) * 0.37f);
    } else if (kind == Kind::whole) {
      put(bytes, i, rare ? wholes[random() % std::size(wholes)] : small);
    } else if (kind == Kind::truth) {
      put(bytes, i, static_cast<uint8_t>(rare));
    } else {
      for (size_t b = 0; b < size_of(kind); ++b) bytes[i * size_of(kind) + b] = static_cast<uint8_t>(random());
    }
  }
  return bytes;
}

// The same bits, but that one NaN is as good as another: which operand's it is depends on the instruction's order.
bool same(Kind kind, const uint8_t* x, const uint8_t* y) {
  if (std::memcmp(x, y, size_of(kind)) == 0) return true;
  if (kind != Kind::real) return false;
  float a, b;
  std::memcpy(&a, x, sizeof a);
  std::memcpy(&b, y, sizeof b);
  return std::isnan(a) && std::isnan(b);
}

// `reference`: the lane that gives the elements one by one.
void check(const Row& row, Lane reference, int variant, int64_t n, std::mt19937& random) {
  constexpr uint8_t untouched = 0xa7;
  const size_t from = size_of(row.from), to = size_of(row.to);
  std::array<std::vector<uint8_t>, 3> in;
  for (int k = 0; k < 3; ++k) in[k] = operand(row.from, variant >> k & 1 ? 1 : n, random);
  std::vector<uint8_t> got(n * to + 64, untouched), want(n * to);
  row.lanes[variant](in[0].data(), in[1].data(), in[2].data(), got.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    auto at = [&](int k) { return in[k].data() + (variant >> k & 1 ? 0 : i * from); };
    reference(at(0), at(1), at(2), want.data() + i * to, 1);
    ASSERT_TRUE(same(row.to, got.data() + i * to, want.data() + i * to)) << "element " << i << " of " << n;
  }
  for (size_t i = n * to; i < got.size(); ++i) ASSERT_EQ(got[i], untouched) << "written behind the result";
}

TEST(Lanes, EveryVariantIsTheLaneElementByElement) {
  if (detected_cpu_level() == CpuLevel::none) GTEST_SKIP() << "a processor without AVX2";
  std::mt19937 random(1);
  const std::vector<Row> references = rows(v3::lane_table());
  EXPECT_GE(references.size(), 80u);
  for (CpuLevel level : {CpuLevel::v3, CpuLevel::v4}) {
    if (level > detected_cpu_level()) continue;  // its table, too, is made by code of its level
    const std::vector<Row> all = level == CpuLevel::v4 ? rows(v4::lane_table()) : references;
    ASSERT_EQ(all.size(), references.size());
    for (size_t r = 0; r < all.size(); ++r) {
      ASSERT_EQ(all[r].name, references[r].name);
      for (int variant = 0; variant < lane_variants; ++variant) {
        if (!all[r].lanes[variant]) continue;
        SCOPED_TRACE(cat(all[r].name, ", variant ", variant, ", ", cpu_level_name(level)));
        for (int64_t n : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{15}, int64_t{16}, int64_t{33}, most}) {
          check(all[r], references[r].lanes[0], variant, n, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu
