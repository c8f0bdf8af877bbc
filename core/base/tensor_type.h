// The type of a tensor: element type and shape, row-major and dense. Every size is known: a symbolic dimension is bound
// when a model is turned into a graph.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/status.h"

namespace epl {

using Shape = std::vector<int64_t>;

int64_t element_count(const Shape& shape);
Shape row_major_strides(const Shape& shape);  // in elements
// NumPy's broadcast of two shapes, or an error that names both.
Result<Shape> broadcast_shapes(const Shape& a, const Shape& b);

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;

  int ndim() const { return static_cast<int>(shape.size()); }
  int64_t elements() const { return element_count(shape); }
  int64_t bytes() const { return elements() * static_cast<int64_t>(dtype_bytes(dtype)); }
  // Dimension i, which must be there; negative counts from the end.
  int64_t dim(int i) const;
  std::string text() const;  // "f32[4,7]"
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// Reads "f32[4,7]" from the start of `text` and removes it; false if there is none.
bool parse_tensor_type(std::string_view& text, TensorType& out);

}  // namespace epl
