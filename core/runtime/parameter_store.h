// The state of one rank: parameters, buffers, optimizer state, by name, in one buffer. Entries of a plan share it.
// Thread safety: none; its rank's executor and, between steps, the session use it.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/backend/device.h"
#include "core/program/program.h"

namespace epl {

// Where each name lives; the same for all ranks of a replicated plan.
class StateLayout {
 public:
  // Adds the slots of a program that are not there yet, then points the program's state locations here.
  void adopt(Program& program);
  const std::vector<StateSlot>& slots() const { return slots_; }
  const StateSlot* find(std::string_view name) const;
  int64_t bytes() const { return bytes_; }

 private:
  std::vector<StateSlot> slots_;
  std::unordered_map<std::string, size_t> by_name_;
  int64_t bytes_ = 0;
};

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
