#include "core/base/tensor.h"

#include <algorithm>
#include <new>

#include "core/base/check.h"

namespace epl {

Tensor::Tensor(TensorType type) : type_(std::move(type)) {
  // Aligned for every vector width; at least one byte, so that an empty tensor is not a missing one.
  size_t bytes = std::max<size_t>(static_cast<size_t>(type_.bytes()), 1);
  void* memory = ::operator new(bytes, std::align_val_t{64});
  std::memset(memory, 0, bytes);
  owner_ = std::shared_ptr<const void>(memory, [](const void* p) {
    ::operator delete(const_cast<void*>(p), std::align_val_t{64});
  });
  data_ = memory;
}

Tensor Tensor::scalar(DType dtype, double value) {
  Tensor tensor(TensorType{dtype, {}});
  tensor.set(0, value);
  return tensor;
}

Tensor Tensor::from_ints(const std::vector<int64_t>& values) {
  const TensorType type{DType::i64, {static_cast<int64_t>(values.size())}};
  return values.empty() ? Tensor(type) : from<int64_t>(type, values);  // an empty vector has no address to copy from
}

Tensor Tensor::from_floats(const Shape& shape, const std::vector<float>& values) {
  EPL_CHECK(element_count(shape) == static_cast<int64_t>(values.size()), "shape ", shape);
  return values.empty() ? Tensor(TensorType{DType::f32, shape}) : from<float>({DType::f32, shape}, values);
}

std::vector<int64_t> Tensor::to_ints() const {
  std::vector<int64_t> out(elements());
  for (int64_t i = 0; i < elements(); ++i) out[i] = get_int(i);
  return out;
}

Tensor Tensor::reshaped(Shape shape) const {
  Tensor out = *this;
  EPL_CHECK(element_count(shape) == elements(), "reshape ", type_.shape, " to ", shape);
  out.type_.shape = std::move(shape);
  return out;
}

Tensor Tensor::clone() const {
  Tensor out(type_);
  if (bytes() > 0) std::memcpy(out.data(), data_, bytes());
  return out;
}

bool identical(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0);
}

}  // namespace epl
