// Parts that several patterns share. They look at the old graph, and emit nothing unless they say so.
#pragma once

#include <array>
#include <cmath>
#include <optional>

#include "core/rewrite/rewrite.h"

namespace epl::rewrite {

// Equal up to the rounding that exporters put numbers through.
inline bool near(double a, double b) { return std::fabs(a - b) <= 1e-4 * std::fabs(b); }

// The operand beside a constant factor: value = operand * factor, of the same type. None if value is not such a
// product.
std::optional<Value> scaled_operand(const Match& match, Value value, double* factor);
// Takes off all constant factors; `factor` is multiplied by them.
Value without_scale(const Match& match, Value value, double* factor);

// Operands of a commutative node, `first` being the one at `which` (0 or 1).
struct Operands {
  Value first, second;
};
inline Operands operands(const Node& node, int which) { return {node.inputs[which], node.inputs[1 - which]}; }

// value = mean of x over its dimensions from `axis` on, which stay with size one.
struct Mean {
  Value x;
  int axis = 0;
};
std::optional<Mean> mean_of(const Match& match, Value value);

// value = x^2, as a power or a product.
std::optional<Value> square_of(const Match& match, Value value);

// value = 1 / sqrt(x) or sqrt(x), with x = mean + epsilon.
struct Deviation {
  Value mean_square;
  double epsilon = 0;
};
std::optional<Deviation> deviation(const Match& match, Value value);          // sqrt(mean_square + epsilon)
std::optional<Deviation> inverse_deviation(const Match& match, Value value);  // its reciprocal, in any writing

// value as a polynomial of x up to the third degree: coefficients from the constant on.
using Polynomial = std::array<double, 4>;
std::optional<Polynomial> polynomial_of(const Match& match, Value value, Value x);

// Whether a permutation exchanges the last two dimensions and nothing else.
bool swaps_last_two(const Ints& permutation);
// value with its last two dimensions exchanged, emitted through a transpose that value may come from.
Var swapped(const Match& match, Builder& builder, const GraphRewriter& now, Value value);

}  // namespace epl::rewrite
