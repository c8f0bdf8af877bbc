// Memory of a device in which a program of the host has a tensor. The host cannot read it, and nothing here can: who
// has the device open does (core/backend/foreign.h).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/base/tensor.h"

namespace epl {

class DeviceMemory final : public TensorSource {
 public:
  // `device`: as devices are named, "cuda:1"; `number`: the number in it.
  DeviceMemory(std::string device, int number, void* data, std::shared_ptr<const void> owner)
      : device_(std::move(device)), number_(number), data_(data), owner_(std::move(owner)) {}

  const std::string& device() const { return device_; }
  int number() const { return number_; }
  void* data() const { return data_; }
  Status read(int64_t, int64_t, void*) const override {
    return unsupported("the tensor lies on ", device_, ", where the host cannot read it; copy it to the host first");
  }
  const DeviceMemory* of_device() const override { return this; }

 private:
  const std::string device_;
  const int number_;
  void* const data_;
  const std::shared_ptr<const void> owner_;
};

// Null: the tensor is not in such memory.
inline const DeviceMemory* device_memory_of(const Tensor& tensor) {
  return tensor.source_ == nullptr ? nullptr : tensor.source_->of_device();
}
// Where the elements lie, whoever can read them there. Of a tensor in memory, or in that of a device.
inline void* address_of(const Tensor& tensor) {
  const DeviceMemory* there = device_memory_of(tensor);
  return there != nullptr ? there->data() : const_cast<void*>(tensor.data());
}

}  // namespace epl
