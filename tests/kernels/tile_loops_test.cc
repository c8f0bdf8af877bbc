// Every loop of every level of processor, with every choice of operands that are one element for the whole tile and
// with every kind of tail, against the loop itself one element at a time. What a loop computes, the elementwise tests
// say.
#include "backends/cpu/kernels/tile_loops.h"

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

namespace epl::cpu::tile_loops_test {
namespace {

constexpr int64_t most = 70;  // four vectors of AVX-512 and a tail

// A row of a level's table, and what its operands and its result are: the classes are f32, f64 and i64.
struct Row {
  std::string name;
  const TileLoop* loops;
  DType from, to;
};

constexpr DType classes[] = {DType::f32, DType::f64, DType::i64};

std::vector<Row> rows(const TileLoopTable& table) {
  std::vector<Row> out;
  auto add = [&](std::string name, int row, DType from, DType to) {
    if (table.loops[row][0]) out.push_back({std::move(name), table.loops[row], from, to});
  };
  for (int r = 0; r < real_classes; ++r) {
    const auto c = static_cast<ElementClass>(r);
    for (int i = 0; i < scalar_op_count; ++i) {
      const auto op = static_cast<ScalarOp>(i);
      const bool compares = scalar_op_info(op).family == ScalarFamily::comparison;
      const auto name = cat(scalar_op_info(op).name, " ", dtype_name(classes[r]));
      add(name, real_row(c, op), classes[r], classes[r]);
      add(cat(name, " of integers"), integer_row(c, op), DType::i64, compares ? classes[r] : DType::i64);
    }
    for (int i = 0; i < static_cast<int>(Pair::count); ++i) {
      add(cat("pair ", i), pair_row(c, static_cast<Pair>(i)), classes[r], classes[r]);
    }
    add("truth", truth_row(c), DType::i64, classes[r]);
  }
  for (int from = 0; from < element_classes; ++from) {
    for (int to = 0; to < element_classes; ++to) {
      add("class to class", convert_row(static_cast<ElementClass>(from), static_cast<ElementClass>(to)), classes[from],
          classes[to]);
    }
    for (int t = 0; t < dtype_count; ++t) {
      const auto type = static_cast<DType>(t);
      add(cat("load ", dtype_name(type)), load_row(type, static_cast<ElementClass>(from)), type, classes[from]);
      add(cat("store ", dtype_name(type)), store_row(static_cast<ElementClass>(from), type), classes[from], type);
    }
  }
  return out;
}

template <class T> void put(std::vector<uint8_t>& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
}

// As many elements as a loop is given and none behind them.
std::vector<uint8_t> operand(DType type, int64_t n, std::mt19937& random) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float special[] = {0.0f, -0.0f, 1,   -1,   2,   0.5f,     1e-40f, 88,
                               -103, 3e38f, inf, -inf, nan, 16777216, -7.5f,  1e10f};
  constexpr int64_t integers[] = {0, 1, -1, 2, 63, 64, 255, -256, int64_t{1} << 40, INT64_MAX, INT64_MIN};
  std::vector<uint8_t> bytes(n * dtype_bytes(type));
  for (int64_t i = 0; i < n; ++i) {
    const bool rare = random() % 2;
    const auto small = static_cast<int64_t>(random() % 21) - 10;
    if (type == DType::f32) {
      put(bytes, i, rare ? special[random() % std::size(special)] : static_cast<float>(small) * 0.37f);
    } else if (type == DType::f64) {
      put(bytes, i, rare ? double{special[random() % std::size(special)]} : static_cast<double>(small) * 0.37);
    } else if (type == DType::i64) {
      put(bytes, i, rare ? integers[random() % std::size(integers)] : small);
    } else if (type == DType::boolean) {
      put(bytes, i, static_cast<uint8_t>(rare));
    } else {
      for (size_t b = 0; b < dtype_bytes(type); ++b) bytes[i * dtype_bytes(type) + b] = static_cast<uint8_t>(random());
    }
  }
  return bytes;
}

// The same bits, but that one NaN is as good as another: which operand's it is depends on the instruction's order.
bool same(DType type, const uint8_t* x, const uint8_t* y) {
  if (std::memcmp(x, y, dtype_bytes(type)) == 0) return true;
  return is_float(type) && std::isnan(load_double(type, x, 0)) && std::isnan(load_double(type, y, 0));
}

// `reference`: the loop that gives the elements one by one.
void check(const Row& row, TileLoop reference, int variant, int64_t n, std::mt19937& random) {
  constexpr uint8_t untouched = 0xa7;
  const size_t from = dtype_bytes(row.from), to = dtype_bytes(row.to);
  std::array<std::vector<uint8_t>, 3> in;
  for (int k = 0; k < 3; ++k) in[k] = operand(row.from, variant >> k & 1 ? 1 : n, random);
  std::vector<uint8_t> got(n * to + 64, untouched), want(n * to);
  row.loops[variant](in[0].data(), in[1].data(), in[2].data(), got.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    auto at = [&](int k) { return in[k].data() + (variant >> k & 1 ? 0 : i * from); };
    reference(at(0), at(1), at(2), want.data() + i * to, 1);
    ASSERT_TRUE(same(row.to, got.data() + i * to, want.data() + i * to)) << "element " << i << " of " << n;
  }
  for (size_t i = n * to; i < got.size(); ++i) ASSERT_EQ(got[i], untouched) << "written behind the result";
}

TEST(TileLoops, EveryVariantIsTheLoopElementByElement) {
  if (detected_cpu_level() == CpuLevel::none) GTEST_SKIP() << "a processor without AVX2";
  std::mt19937 random(1);
  const std::vector<Row> references = rows(v3::tile_loop_table());
  EXPECT_GE(references.size(), 200u);
  for (CpuLevel level : {CpuLevel::v3, CpuLevel::v4}) {
    if (level > detected_cpu_level()) continue;  // its table, too, is made by code of its level
    const std::vector<Row> all = level == CpuLevel::v4 ? rows(v4::tile_loop_table()) : references;
    ASSERT_EQ(all.size(), references.size());
    for (size_t r = 0; r < all.size(); ++r) {
      ASSERT_EQ(all[r].name, references[r].name);
      for (int variant = 0; variant < tile_loop_variants; ++variant) {
        if (!all[r].loops[variant]) continue;
        SCOPED_TRACE(cat(all[r].name, ", variant ", variant, ", ", cpu_level_name(level)));
        for (int64_t n : {int64_t{1}, int64_t{7}, int64_t{8}, int64_t{15}, int64_t{16}, int64_t{33}, most}) {
          check(all[r], references[r].loops[0], variant, n, random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu::tile_loops_test
