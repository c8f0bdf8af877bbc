#include "core/runtime/foreign_tensors.h"

#include <algorithm>

namespace epl {
namespace {

// As epl_call_options numbers the program's streams.
constexpr int64_t waits_for_nothing = -1, default_stream = 0, legacy_stream = 1, thread_stream = 2;

}  // namespace

Result<ForeignTensors::Side*> ForeignTensors::side_of(const DeviceMemory& memory) {
  for (const auto& side : sides_)
    if (side->name == memory.device()) return side.get();
  auto made = std::make_unique<Side>(Side{.name = memory.device(), .device = device_.foreign(memory.device())});
  if (made->device == nullptr) return unsupported("no device of this session");
  made->event = made->device->create_event();
  return sides_.emplace_back(std::move(made)).get();
}

Status ForeignTensors::note(const Tensor& tensor, const Port& port, const char* what) {
  const DeviceMemory* memory = device_memory_of(tensor);
  if (memory == nullptr) return {};
  auto side = side_of(*memory);
  if (!side.ok()) {
    return invalid(what, " ", port.name, " lies on ", memory->device(), ", and the session is on ", name_,
                   "; copy it to the host or to a device of the session first")
        .at(port.name);
  }
  (*side)->used = true;
  return {};
}

Status ForeignTensors::begin(const Entry& entry, std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                             int64_t stream) {
  events_.clear();
  loaded_.clear();
  for (const auto& side : sides_) side->used = false;
  for (size_t i = 0; i < std::min(inputs.size(), entry.inputs.size()); ++i)
    EPL_TRY(note(inputs[i], entry.inputs[i], "input"));
  for (size_t i = 0; i < std::min(outputs.size(), entry.outputs.size()); ++i)
    EPL_TRY(note(outputs[i], entry.outputs[i], "output"));
  waits_ = stream != waits_for_nothing;
  if (!waits_) return {};
  const auto used = std::ranges::count_if(sides_, [](const auto& side) { return side->used; });
  if (used > 1 && stream > thread_stream) {
    return invalid(
        "tensors of the call lie on several devices, and a stream is of one; wait for the others, or give "
        "them to the default stream");
  }
  for (const auto& side : sides_) {
    if (!side->used) continue;
    EPL_TRY(side->device->record(stream == default_stream ? legacy_stream : stream, *side->event));
    events_.push_back(side->event.get());
  }
  return {};
}

ForeignDevice* ForeignTensors::device_of(const Tensor& tensor) const {
  const DeviceMemory* memory = device_memory_of(tensor);
  if (memory == nullptr) return nullptr;
  const auto found = std::ranges::find(sides_, memory->device(), [](const auto& side) { return side->name; });
  return found == sides_.end() ? nullptr : (*found)->device.get();
}

bool ForeignTensors::any(std::span<const Tensor> tensors) {
  return std::ranges::any_of(tensors, [](const Tensor& tensor) { return device_memory_of(tensor) != nullptr; });
}

Result<Tensor> ForeignTensors::load(const Tensor& tensor) {
  const DeviceMemory* memory = device_memory_of(tensor);
  if (memory == nullptr) return tensor;
  for (const auto& [at, there] : loaded_)
    if (at == memory) return there;
  EPL_ASSIGN(Side* const side, side_of(*memory));
  Tensor here(tensor.type());
  EPL_TRY(side->device->read(here.data(), memory->data(), here.bytes(), event_of(*side)));
  return loaded_.emplace_back(memory, std::move(here)).second;
}

Result<std::vector<Tensor>> ForeignTensors::load_all(std::span<const Tensor> tensors) {
  std::vector<Tensor> all;
  for (const Tensor& tensor : tensors) {
    EPL_ASSIGN(all.emplace_back(), load(tensor));
  }
  return all;
}

Status ForeignTensors::store(const Tensor& value, const Tensor& to) {
  const DeviceMemory& memory = *device_memory_of(to);
  EPL_ASSIGN(Side* const side, side_of(memory));
  return side->device->write(memory.data(), value.data(), value.bytes(), event_of(*side));
}

}  // namespace epl
