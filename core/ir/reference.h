// What references run on: views of tensors that others own, and reserved room. A reference allocates nothing, because
// it also runs in steps, where no kernel serves the node.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "core/base/check.h"
#include "core/base/tensor_type.h"

namespace epl {

// A tensor whose type and bytes somebody else owns.
class TensorView {
 public:
  TensorView() = default;
  TensorView(const TensorType* type, void* data) : type_(type), data_(data) {}
  const TensorType& type() const { return *type_; }
  DType dtype() const { return type_->dtype; }
  const Shape& shape() const { return type_->shape; }
  int64_t elements() const { return type_->elements(); }
  int64_t bytes() const { return type_->bytes(); }
  void* data() const { return data_; }
  double get(int64_t index) const { return load_double(type_->dtype, data_, index); }
  void set(int64_t index, double value) const { store_double(type_->dtype, data_, index, value); }
  int64_t get_int(int64_t index) const { return load_int(type_->dtype, data_, index); }
  void set_int(int64_t index, int64_t value) const { store_int(type_->dtype, data_, index, value); }

 private:
  const TensorType* type_ = nullptr;
  void* data_ = nullptr;
};

// The memory that one call may use: handed out in order, taken back at once.
class Room {
 public:
  Room(void* memory, int64_t bytes) : next_(static_cast<std::byte*>(memory)), end_(next_ + bytes) {}
  // What `count` elements take of a room.
  template <class T> static constexpr int64_t bytes(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + 15) / 16 * 16;
  }
  // Zeros.
  template <class T> std::span<T> take(int64_t count) {
    T* first = reinterpret_cast<T*>(next_);
    EPL_CHECK(bytes<T>(count) <= end_ - next_, "a reference takes more room than its record says");
    next_ += bytes<T>(count);
    std::uninitialized_value_construct_n(first, count);
    return {first, static_cast<size_t>(count)};
  }

 private:
  std::byte *next_, *end_;
};

// A short list of numbers, one for each dimension. It allocates only if there are more than 16.
class Dims {
 public:
  explicit Dims(size_t size = 0, int64_t value = 0) : size_(size) {
    if (size > near_.size()) far_.resize(size);
    std::fill_n(data(), size, value);
  }
  Dims(std::span<const int64_t> values) : Dims(values.size()) { std::ranges::copy(values, data()); }
  size_t size() const { return size_; }
  int64_t& operator[](size_t i) { return data()[i]; }
  int64_t operator[](size_t i) const { return data()[i]; }
  operator std::span<const int64_t>() const { return {data(), size_}; }
  Shape shape() const { return Shape(data(), data() + size_); }

 private:
  int64_t* data() { return far_.empty() ? near_.data() : far_.data(); }
  const int64_t* data() const { return far_.empty() ? near_.data() : far_.data(); }
  size_t size_;
  std::array<int64_t, 16> near_{};
  std::vector<int64_t> far_;
};

}  // namespace epl
