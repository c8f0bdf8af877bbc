// The loops of the elementwise engine: one small loop over a tile for each scalar operation and class of element.
//
// Values of a fused expression are of three classes: reals of 32 and of 64 bits (truth values are 0 and 1 of the
// region's real class), and integers (int64, for every integer type). Types of memory are loaded into a class and
// stored from it: f16 and bf16 are computed with as real32. A loop reads up to three operands, each a tile or one
// broadcast element, and writes a tile.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/ir/scalar.h"

namespace epl::cpu {

// operands, result, elements. An absent operand is null. The result may be an operand of as many bytes.
using TileLoop = void (*)(const void* a, const void* b, const void* c, void* y, int64_t n);

// Bit k of a variant says that operand k is one element for all of the tile.
inline constexpr int tile_loop_variants = 8;

enum class ElementClass : uint8_t { real32, real64, integer };
inline constexpr int real_classes = 2, element_classes = 3;
constexpr int class_bytes(ElementClass c) { return c == ElementClass::real32 ? 4 : 8; }

// Pairs of operations evaluated in one pass; rounding is that of the two (mul_add is not a fused multiply-add).
enum class Pair : uint8_t { mul_add, mul_sub, mul_rsub, add_mul, sub_mul, mul_mul, count };

// Rows of the table; one that no loop fills is null.
constexpr int real_row(ElementClass c, ScalarOp op) {
  return static_cast<int>(c) * scalar_op_count + static_cast<int>(op);
}
// Operations of integers. Comparisons give truth values, which are reals of class c.
constexpr int integer_row(ElementClass c, ScalarOp op) { return real_classes * scalar_op_count + real_row(c, op); }
inline constexpr int pair_rows = 2 * real_classes * scalar_op_count;
constexpr int pair_row(ElementClass c, Pair pair) {
  return pair_rows + static_cast<int>(c) * static_cast<int>(Pair::count) + static_cast<int>(pair);
}
// Memory of a type into a class, and back. Integers wrap; what rounds, rounds once, to nearest even.
inline constexpr int load_rows = pair_rows + real_classes * static_cast<int>(Pair::count);
constexpr int load_row(DType type, ElementClass c) {
  return load_rows + static_cast<int>(c) * dtype_count + static_cast<int>(type);
}
constexpr int store_row(ElementClass c, DType type) { return element_classes * dtype_count + load_row(type, c); }
// From class to class. A real becomes an integer by truncation and saturates; NaN is 0.
inline constexpr int convert_rows = load_rows + 2 * element_classes * dtype_count;
constexpr int convert_row(ElementClass from, ElementClass to) {
  return convert_rows + static_cast<int>(from) * element_classes + static_cast<int>(to);
}
// An integer to 0 or 1, a real of class c.
constexpr int truth_row(ElementClass c) {
  return convert_rows + element_classes * element_classes + static_cast<int>(c);
}
inline constexpr int tile_loop_rows = truth_row(ElementClass::real64) + 1;

struct TileLoopTable {
  TileLoop loops[tile_loop_rows][tile_loop_variants] = {};
};

namespace v3 {
const TileLoopTable& tile_loop_table();
}
namespace v4 {
const TileLoopTable& tile_loop_table();
}

}  // namespace epl::cpu
