// The state of one rank: parameters, buffers, optimizer state, by name, in one buffer. Entries of a plan share it.
// Thread safety: none; its rank's executor and, between steps, the session use it.
#pragma once

#include <memory>
#include <string>

#include "core/backend/device.h"
#include "core/program/link.h"

namespace epl {

class ParameterStore {
 public:
  // Allocates and fills with initial values.
  static Result<ParameterStore> create(Device& device, Stream& stream, const StateLayout& layout);
  std::byte* data() { return static_cast<std::byte*>(buffer_->data()); }
  int64_t bytes() const { return buffer_->bytes(); }
  Result<Tensor> get(Stream& stream, const StateLayout& layout, std::string_view name) const;
  // The same without a copy where the store lies in host memory: valid until the store changes or goes.
  Result<Tensor> view(Stream& stream, const StateLayout& layout, std::string_view name) const;
  Status set(Stream& stream, const StateLayout& layout, std::string_view name, const Tensor& value);

 private:
  std::unique_ptr<Buffer> buffer_;
};

}  // namespace epl
