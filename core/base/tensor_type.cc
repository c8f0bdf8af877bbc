#include "core/base/tensor_type.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

int64_t element_count(const Shape& shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

Result<Shape> broadcast_shapes(const Shape& a, const Shape& b) {
  Shape out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    int64_t da = i < a.size() ? a[a.size() - 1 - i] : 1;
    int64_t db = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (da != db && da != 1 && db != 1) return invalid("shapes ", a, " and ", b, " do not broadcast");
    out[out.size() - 1 - i] = da == 1 ? db : da;
  }
  return out;
}

int64_t TensorType::dim(int i) const {
  const int at = i < 0 ? i + ndim() : i;
  EPL_CHECK(at >= 0 && at < ndim(), "dimension ", i, " of ", text());
  return shape[static_cast<size_t>(at)];
}

std::string TensorType::text() const { return cat(dtype_name(dtype), shape); }

bool parse_tensor_type(std::string_view& text, TensorType& out) {
  size_t open = text.find('[');
  size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) return false;
  auto dtype = parse_dtype(text.substr(0, open));
  if (!dtype) return false;
  TensorType type{*dtype, {}};
  std::string_view dims = text.substr(open + 1, close - open - 1);
  int64_t bytes = sizeof(double);  // at most, so that sizes can be computed with
  while (!dims.empty()) {
    int64_t size = 0;
    auto [end, failure] = std::from_chars(dims.data(), dims.data() + dims.size(), size);
    if (failure != std::errc{} || size < 0) return false;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return false;
    type.shape.push_back(size);
    dims.remove_prefix(end - dims.data());
    if (dims.empty()) break;
    if (dims[0] != ',' || dims.size() == 1) return false;
    dims.remove_prefix(1);
  }
  text.remove_prefix(close + 1);
  out = std::move(type);
  return true;
}

}  // namespace epl
