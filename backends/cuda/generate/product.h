// Launches of order-invariant products (backends/cuda/text/product.cuh).
#pragma once

#include <string>

#include "backends/cuda/generate/program.h"
#include "core/base/units.h"

namespace epl::cuda {

inline constexpr std::string_view product_file = "backends/cuda/text/product.cuh";

// Why a product is not served whose result is rounded to 16 bits, or whose first two operands differ in type.
Status sums_are_wide(const Query& query);

// Shapes, and the text of how operands are found: expressions of batch, row, column and k, of the pointers a_data,
// b_data and bias_data, of numbers and of `functions`, which may name the type Operand of a_data and b_data.
struct Product {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  int64_t units = 1;
  DType type = DType::f32;                              // of a and b; the result is float32
  std::string functions;                                // what the expressions call
  std::string a, b;                                     // the elements
  std::string c;                                        // where an element of the result lies
  std::string bias;                                     // what is added in the end; empty: nothing
  bool a_rows_follow = false, b_columns_follow = true;  // neighbours in memory
};

// Adds up `parts`, [batch, unit, m, n], by the binary tree of units, and the bias to the sum.
void add_join_of_units(Kernel& kernel, const Product& product, Argument parts, Argument bias, Argument c);

void add_product(Kernel& kernel, const Product& product, Argument a, Argument b, Argument bias, Argument c);

}  // namespace epl::cuda
