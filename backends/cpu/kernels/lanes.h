// The lanes of the elementwise engine: one small loop over a tile for each scalar operation and class of value.
//
// Values of a fused expression are of two classes: `real` (float32; truth values are 0 and 1) and `whole` (int64, every
// integer type). A lane reads up to three operands, each a tile or one broadcast element, and writes a tile.
#pragma once

#include <cstdint>

namespace epl::cpu {

// operands, result, elements. An absent operand is null. The result may be an operand.
using Lane = void (*)(const void* a, const void* b, const void* c, void* y, int64_t n);

// Bit k of a variant says that operand k is one element for the whole tile.
inline constexpr int lane_variants = 8;
inline constexpr int scalar_ops = 64;  // at least the number of ScalarOps

enum class Conversion : uint8_t {
  real_to_whole,        // truncates, saturates; NaN is 0
  whole_to_real,        // rounds once, to nearest even
  truth_to_real,        // uint8 0 or 1 in memory
  real_to_truth,        // 1 where the value is not 0
  whole_to_truth_real,  // 0 or 1 as a real
  // To and from whole, as memory holds the integer types; values wrap.
  i8_to_whole,
  i16_to_whole,
  i32_to_whole,
  u8_to_whole,
  u16_to_whole,
  u32_to_whole,
  whole_to_i8,
  whole_to_i16,
  whole_to_i32,
  whole_to_u8,
  whole_to_u16,
  whole_to_u32,
  copy_real,
  copy_whole,
  count
};

// Pairs of operations evaluated in one pass; rounding is that of the two (mul_add is not a fused multiply-add).
enum class Pair : uint8_t { mul_add, mul_sub, mul_rsub, add_mul, sub_mul, mul_mul, count };

struct LaneTable {
  Lane real[scalar_ops][lane_variants] = {};
  Lane whole[scalar_ops][lane_variants] = {};
  Lane convert[static_cast<int>(Conversion::count)][lane_variants] = {};
  Lane pair[static_cast<int>(Pair::count)][lane_variants] = {};
};

namespace v3 {
const LaneTable& lane_table();
}
namespace v4 {
const LaneTable& lane_table();
}

}  // namespace epl::cpu
