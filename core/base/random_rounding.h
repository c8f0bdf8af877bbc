// Rounding to bf16 at random: up with the probability that the value is that far on its way up. So the mean of many
// roundings is the value, and a change far below the last place of bf16 is not lost.
//
// The random bits of an element follow from a key of the step, from where the element stands in its tensor (a row and a
// column of it), and from the bits of another number there: tensors of one shape would round alike without that.
#pragma once

#include <bit>
#include <cstdint>

#include "core/base/philox.h"

namespace epl {

// Neighbours in a row have neighbouring numbers.
constexpr uint64_t element_number(uint32_t row, uint32_t column) { return (static_cast<uint64_t>(row) << 32) | column; }

// Mixes all bits into both halves of the word; 0 stays 0.
constexpr uint32_t mixed(uint32_t bits) {
  bits *= 0x9E3779B1;
  return bits ^ (bits >> 16);
}

// Two draws of 16 bits, the first one in the low half.
constexpr uint32_t rounding_bits(uint64_t key, uint64_t element, float beside) {
  return philox_bits(key, element) ^ mixed(std::bit_cast<uint32_t>(beside));
}

// The upper half of a float, as bf16 has it. `draw` is below 2^16. What bf16 can hold stays; a NaN stays one.
constexpr uint16_t bf16_at_random(float value, uint32_t draw) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + draw) >> 16);
}

}  // namespace epl
