#include "core/base/tensor.h"

#include <algorithm>
#include <new>

#include "core/base/check.h"
#include "core/base/memory.h"

namespace epl {

Tensor::Tensor(TensorType type) : type_(std::move(type)) {
  // Aligned for every vector width; at least one byte, so that an empty tensor is not a missing one.
  size_t bytes = std::max<size_t>(static_cast<size_t>(type_.bytes()), 1);
  void* memory = ::operator new(bytes, std::align_val_t{64}, std::nothrow);
  if (memory == nullptr) throw OutOfMemory(bytes);
  std::memset(memory, 0, bytes);
  owner_ = std::shared_ptr<const void>(
      memory, [](const void* p) { ::operator delete(const_cast<void*>(p), std::align_val_t{64}); });
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
  if (bytes() > 0) std::memcpy(out.data(), data(), bytes());
  return out;
}

Status Tensor::read(int64_t begin, int64_t bytes, void* target) const {
  EPL_CHECK(begin >= 0 && bytes >= 0 && begin <= this->bytes() - bytes, "bytes ", begin, " to ", begin + bytes, " of ",
            type_.text());
  if (source_ != nullptr) return source_->read(begin, bytes, target);
  if (bytes > 0) std::memcpy(target, static_cast<const std::byte*>(data_) + begin, static_cast<size_t>(bytes));
  return {};
}

Result<Tensor> Tensor::load() const {
  if (in_memory()) return *this;
  Tensor out(type_);
  EPL_TRY(source_->read(0, bytes(), out.data()));
  return out;
}

void Tensor::not_in_memory() const {
  check_failed("in_memory()", __FILE__, __LINE__,
               cat("the elements of ", type_.text(), " are looked at before they are loaded"));
}

namespace {

// The bits of element i as a number; of a NaN, always the same.
template <class Bits> Bits bits_at(const void* data, int64_t i, Bits infinity) {
  Bits bits;
  std::memcpy(&bits, static_cast<const char*>(data) + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
  constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
  const bool nan = static_cast<Bits>(bits & static_cast<Bits>(~sign)) > infinity;
  return nan ? static_cast<Bits>(~Bits{0}) : bits;
}

template <class Bits> bool equal_but_for_nans(const Tensor& a, const Tensor& b, Bits infinity) {
  for (int64_t i = 0; i < a.elements(); ++i)
    if (bits_at(a.data(), i, infinity) != bits_at(b.data(), i, infinity)) return false;
  return true;
}

template <class Bits> void add_with_plain_nans(Hash64& hash, const Tensor& t, Bits infinity) {
  Bits block[512];
  for (int64_t i = 0; i < t.elements();) {
    int64_t n = 0;
    for (; n < 512 && i < t.elements(); ++n, ++i) block[n] = bits_at(t.data(), i, infinity);
    hash.add(block, static_cast<size_t>(n) * sizeof(Bits));
  }
}

// Calls f(bits of infinity) in the unsigned type that is as wide as a float type.
template <class F> auto with_infinity(DType type, F f) {
  switch (type) {
    case DType::f64:
      return f(uint64_t{0x7ff0000000000000});
    case DType::f16:
      return f(uint16_t{0x7c00});
    case DType::bf16:
      return f(uint16_t{0x7f80});
    default:
      return f(uint32_t{0x7f800000});
  }
}

}  // namespace

// Tensors that are not in memory are compared chunk by chunk.
static bool identical_by_chunks(const Tensor& a, const Tensor& b) {
  constexpr int64_t chunk_elements = 64 << 10;
  const TensorType chunk{a.dtype(), {std::min(chunk_elements, a.elements())}};
  const auto size = static_cast<int64_t>(dtype_bytes(a.dtype()));
  Tensor left(chunk), right(chunk);
  for (int64_t at = 0; at < a.elements(); at += chunk_elements) {
    const int64_t count = std::min(chunk_elements, a.elements() - at);
    if (!a.read(at * size, count * size, left.data()).ok() || !b.read(at * size, count * size, right.data()).ok())
      return false;
    const TensorType part{a.dtype(), {count}};
    if (!identical(Tensor(part, nullptr, left.data()), Tensor(part, nullptr, right.data()))) return false;
  }
  return true;
}

bool identical(const Tensor& a, const Tensor& b) {
  if (a.type() != b.type()) return false;
  if (!a.in_memory() || !b.in_memory()) {
    return identical_by_chunks(a, b);
  }
  if (a.bytes() == 0 || std::memcmp(a.data(), b.data(), a.bytes()) == 0) return true;
  return is_float(a.dtype()) &&
         with_infinity(a.dtype(), [&](auto infinity) { return equal_but_for_nans(a, b, infinity); });
}

void add_to_hash(Hash64& hash, const Tensor& tensor) {
  if (!is_float(tensor.dtype())) return hash.add(tensor.data(), static_cast<size_t>(tensor.bytes()));
  with_infinity(tensor.dtype(), [&](auto infinity) { add_with_plain_nans(hash, tensor, infinity); });
}

}  // namespace epl
