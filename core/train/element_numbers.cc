#include "core/train/element_numbers.h"

#include "core/base/philox.h"
#include "core/base/text.h"

namespace epl {
namespace {

constexpr int64_t least_columns = 32;  // a kernel draws numbers for many neighbours at once

int64_t product(const Shape& shape, size_t begin, size_t end) {
  int64_t out = 1;
  for (size_t d = begin; d < end; ++d) out *= shape[d];
  return out;
}

}  // namespace

size_t ElementNumbers::row_dims(const Shape& shape) {
  size_t best = 0;
  int64_t fewest = product(shape, 0, shape.size());
  for (size_t k = 1; k < shape.size(); ++k) {
    const int64_t rows = product(shape, 0, k), columns = product(shape, k, shape.size());
    if (columns < least_columns || rows + columns >= fewest) continue;
    best = k;
    fewest = rows + columns;
  }
  return best;
}

ElementNumbers::Operands ElementNumbers::of(const Shape& shape) {
  Shape rows = shape, columns = shape;
  const size_t k = row_dims(shape);
  for (size_t d = 0; d < shape.size(); ++d) (d < k ? columns : rows)[d] = 1;
  return {numbers("epl.rows", rows), numbers("epl.columns", columns)};
}

Value ElementNumbers::numbers(const std::string& name, const Shape& shape) {
  const TensorType type{DType::i32, shape};
  Value& known = known_[type.text()];
  if (known) return known;
  Tensor data(type);
  for (int64_t i = 0; i < data.elements(); ++i) data.set_int(i, i);
  known = graph_.add_constant(graph_.unique_name(name), std::move(data));
  return known;
}

double rounding_key(uint64_t seed, int64_t step) {
  return static_cast<double>(random_key(seed, static_cast<uint64_t>(step), rounding_key_scalar) >> 11);
}

}  // namespace epl
