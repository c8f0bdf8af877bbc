// Packs of 16-bit operands give each element its place, from any part of a strided matrix, and read nothing beside it.
#include "backends/cpu/kernels/narrow_pack.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "backends/cpu/cpu.h"
#include "core/base/dtype.h"

namespace epl::cpu::narrow_pack_test {
namespace {

// A strided operand of k by some indices, exactly as long as its last element needs, and a part of it.
struct Part {
  std::vector<uint16_t> data;
  NarrowOperand operand;
  Units units;
  int64_t n = 0;  // of k
  int64_t first = 0, count = 0, stride = 0;

  uint32_t at(int64_t i, int64_t k) const { return data[(first + i) * operand.row + k * operand.col]; }
};

Part random_part(std::mt19937& random) {
  const auto below = [&](int64_t most) { return static_cast<int64_t>(random() % most); };
  Part part;
  part.units = Units(int64_t{1} << below(4), below(4) == 0 ? 1 + below(4) : 1);
  part.n = part.units.count * part.units.outer * (1 + below(below(2) ? 9 : 70));
  const int64_t indices = 1 + below(below(2) ? 20 : 50), room = below(3);
  NarrowOperand& m = part.operand;
  m.b = below(2);
  m.row = below(2) ? part.n + room : 1;
  m.col = m.row == 1 ? indices + room : 1;
  if (below(8) == 0) m.row *= 2, m.col *= 2;
  part.data.resize((indices - 1) * m.row + (part.n - 1) * m.col + 1);
  for (uint16_t& x : part.data) x = static_cast<uint16_t>(random());
  m.data = part.data.data();
  part.first = below(indices);
  part.count = 1 + below(indices - part.first);
  part.stride = part.count + below(4);
  return part;
}

// What `pack` writes of `depth` rows, from row k on; nothing where it is not to write.
std::vector<uint32_t> packed(const Part& part, GemmPack pack, const void* context, int64_t k, int64_t depth) {
  constexpr float untouched = -77.25f;
  std::vector<float> to((depth - 1) * part.stride + part.count, untouched);
  pack(context, 0, part.first, part.count, k, depth, to.data(), part.stride);
  std::vector<uint32_t> bits;
  for (size_t i = 0; i < to.size(); ++i) {
    const auto column = static_cast<int64_t>(i) % part.stride;
    if (column < part.count) bits.push_back(std::bit_cast<uint32_t>(to[i]));
    EXPECT_TRUE(column < part.count || to[i] == untouched);
  }
  return bits;
}

TEST(NarrowPack, WidensEachElement) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    Part part = random_part(random);
    part.operand.half = random() % 2;
    const int64_t k = static_cast<int64_t>(random() % part.n),
                  depth = 1 + static_cast<int64_t>(random() % (part.n - k));
    for (uint16_t& x : part.data) x &= 0xfbff;  // no exponent of f16 is full: a not-a-number may become another
    std::vector<uint32_t> wanted;
    for (int64_t j = 0; j < depth; ++j) {
      for (int64_t c = 0; c < part.count; ++c) {
        const auto bits = static_cast<uint16_t>(part.at(c, k + j));
        wanted.push_back(std::bit_cast<uint32_t>(part.operand.half ? half_to_float(bits) : bfloat_to_float(bits)));
      }
    }
    EXPECT_EQ(packed(part, v3::pack_narrow, &part.operand, k, depth), wanted) << i;
    if (detected_cpu_level() >= CpuLevel::v4) {
      EXPECT_EQ(packed(part, v4::pack_narrow, &part.operand, k, depth), wanted) << i;
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(NarrowPack, MakesPairsThatStayWithinTheirUnit) {
  if (detected_cpu_level() < CpuLevel::v4_bf16) GTEST_SKIP() << "no AVX-512-BF16 here";
  std::mt19937 random(2);
  for (int i = 0; i < 4000; ++i) {
    const Part part = random_part(random);
    const PairOperand context{part.operand, part.n, part.units};
    const int64_t pairs = pairs_of(part.n, part.units), unit_pairs = pairs / part.units.count;
    const int64_t unit_length = part.n / part.units.count;
    const int64_t k = static_cast<int64_t>(random() % pairs), depth = 1 + static_cast<int64_t>(random() % (pairs - k));
    std::vector<uint32_t> wanted;
    for (int64_t j = k; j < k + depth; ++j) {
      const int64_t begin = j / unit_pairs * unit_length, at = j % unit_pairs * 2;
      for (int64_t c = 0; c < part.count; ++c) {
        const uint32_t none = part.operand.b ? 0x8000 : 0;
        const uint32_t first = part.at(c, part.units.position(begin + at, part.n));
        const uint32_t second = at + 1 < unit_length ? part.at(c, part.units.position(begin + at + 1, part.n)) : none;
        wanted.push_back(first << 16 | second);
      }
    }
    ASSERT_EQ(packed(part, v4_bf16::pack_pairs, &context, k, depth), wanted) << i;
  }
}

}  // namespace
}  // namespace epl::cpu::narrow_pack_test
