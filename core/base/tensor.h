// Concrete data: a type and the bytes of its elements, row-major and dense, in host memory.
// The bytes are shared and may be borrowed; copies are cheap and refer to the same bytes. A tensor may also be known
// without being in memory: then its bytes are read from a file or a device when they are asked for.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "core/base/hash.h"
#include "core/base/tensor_type.h"

namespace epl {

class DeviceMemory;  // core/base/device_memory.h

// Where the bytes of a tensor that is not in memory are read. Thread safety: any threads at once, but for state
// that is read where it lies: there one caller at a time.
class TensorSource {
 public:
  virtual ~TensorSource() = default;
  virtual Status read(int64_t begin, int64_t bytes, void* target) const = 0;
  // Null: it is no memory of a device that a program of the host has.
  virtual const DeviceMemory* of_device() const { return nullptr; }
};

class Tensor {
 public:
  Tensor() = default;
  // Zeros.
  explicit Tensor(TensorType type);
  // Bytes that `owner` keeps alive.
  Tensor(TensorType type, std::shared_ptr<const void> owner, const void* data)
      : type_(std::move(type)), owner_(std::move(owner)), data_(const_cast<void*>(data)) {}
  // Not in memory. Such a tensor can only be passed on, `read` and `load`ed. Everything that looks at elements needs a
  // tensor in memory.
  Tensor(TensorType type, std::shared_ptr<const TensorSource> source)
      : type_(std::move(type)), source_(source.get()), owner_(std::move(source)) {}

  template <class T> static Tensor from(TensorType type, std::span<const T> values) {
    Tensor tensor(std::move(type));
    std::memcpy(tensor.data(), values.data(), values.size_bytes());
    return tensor;
  }
  static Tensor scalar(DType dtype, double value);
  static Tensor from_ints(const std::vector<int64_t>& values);                      // i64[n]
  static Tensor from_floats(const Shape& shape, const std::vector<float>& values);  // f32

  bool empty() const { return data_ == nullptr && source_ == nullptr; }
  bool in_memory() const { return source_ == nullptr; }
  // Bytes [begin, begin + bytes), wherever they are.
  Status read(int64_t begin, int64_t bytes, void* target) const;
  // The same tensor in memory: itself if it is.
  Result<Tensor> load() const;
  const TensorType& type() const { return type_; }
  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  int64_t elements() const { return type_.elements(); }
  int64_t bytes() const { return type_.bytes(); }
  const void* data() const {
    if (source_ != nullptr) not_in_memory();
    return data_;
  }
  void* data() {
    if (source_ != nullptr) not_in_memory();
    return data_;
  }
  template <class T> std::span<const T> as() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(elements())};
  }
  template <class T> std::span<T> as() { return {static_cast<T*>(data()), static_cast<size_t>(elements())}; }

  double get(int64_t index) const { return load_double(type_.dtype, data(), index); }
  void set(int64_t index, double value) { store_double(type_.dtype, data(), index, value); }
  int64_t get_int(int64_t index) const { return load_int(type_.dtype, data(), index); }
  void set_int(int64_t index, int64_t value) { store_int(type_.dtype, data(), index, value); }
  // All elements as integers; for shapes, axes and permutations held in tensors.
  std::vector<int64_t> to_ints() const;
  // The same bytes under another shape of as many elements.
  Tensor reshaped(Shape shape) const;
  // An owned copy.
  Tensor clone() const;
  // Drops the bytes and keeps the type with its memory: for slots that are filled again and again.
  void forget_data() {
    source_ = nullptr;
    owner_.reset();
    data_ = nullptr;
  }

  friend const DeviceMemory* device_memory_of(const Tensor& tensor);  // core/base/device_memory.h

 private:
  [[noreturn]] void not_in_memory() const;  // a mistake of ours
  TensorType type_;
  const TensorSource* source_ = nullptr;  // of a tensor that is not in memory; owned by owner_
  std::shared_ptr<const void> owner_;
  void* data_ = nullptr;
};

// Same type and same bytes, wherever they are; false where they cannot be read. Any NaN is like any other: IEEE 754
// leaves a NaN's sign and payload to the processor, and compilers and vector widths choose differently.
bool identical(const Tensor& a, const Tensor& b);
// The bytes of a tensor, with one pattern for every NaN.
void add_to_hash(Hash64& hash, const Tensor& tensor);

}  // namespace epl
