// The tensors of a call that lie in memory of a device, where the program of the host has put them: on which device of
// the session, and behind which event they may be read and written. What the host looks at itself comes here as a copy.
// Thread safety: one caller at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/device.h"
#include "core/base/device_memory.h"
#include "core/compile/compiled_plan.h"

namespace epl {

class ForeignTensors {
 public:
  // `device` is that of a session, as `name` names it; it lives longer.
  ForeignTensors(Device& device, std::string name) : device_(device), name_(std::move(name)) {}

  // What a call is given. `stream`: of the program, as epl_call_options numbers it; what the stream has been given by
  // now comes before the call. An error names a tensor that lies on no device of the session.
  Status begin(const Entry& entry, std::span<const Tensor> inputs, std::span<const Tensor> outputs, int64_t stream);
  // That of the current call. Null: the tensor is in memory of the host.
  ForeignDevice* device_of(const Tensor& tensor) const;
  static bool any(std::span<const Tensor> tensors);
  // Behind which the tensors of the call are there.
  std::span<Event* const> events() const { return events_; }

  // In memory of the host: itself if it is. Each is copied once for a call.
  Result<Tensor> load(const Tensor& tensor);
  Result<std::vector<Tensor>> load_all(std::span<const Tensor> tensors);
  // The elements of a tensor of the host, of the same type, to where `to` lies.
  Status store(const Tensor& value, const Tensor& to);

 private:
  struct Side {
    std::string name;
    std::shared_ptr<ForeignDevice> device;
    std::unique_ptr<Event> event = nullptr;
    bool used = false;  // by the current call
  };
  Result<Side*> side_of(const DeviceMemory& memory);
  Status note(const Tensor& tensor, const Port& port, const char* what);
  Event* event_of(const Side& side) const { return waits_ ? side.event.get() : nullptr; }

  Device& device_;
  const std::string name_;
  std::vector<std::unique_ptr<Side>> sides_;  // that were met so far
  std::vector<Event*> events_;
  std::vector<std::pair<const void*, Tensor>> loaded_;  // by where they lie
  bool waits_ = true;
};

}  // namespace epl
