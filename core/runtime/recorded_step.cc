#include "core/runtime/recorded_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace epl {

Result<std::unique_ptr<RecordedStep>> RecordedStep::create(Device& device, const Program& program,
                                                           std::vector<Stream*> streams) {
  std::unique_ptr<RecordedStep> step(new RecordedStep(device, program, std::move(streams)));
  const auto room = [](auto& all, int index) -> auto& {
    if (std::ssize(all) <= index) all.resize(static_cast<size_t>(index) + 1);
    return all[static_cast<size_t>(index)];
  };
  for (const ProgramPort& port : program.inputs) room(step->inputs_, port.index);
  for (const ProgramPort& port : program.outputs) room(step->outputs_, port.index);
  for (int e = 0; e < program.events; ++e) step->events_.push_back(device.create_event());
  step->parted_ = device.create_event();
  for (size_t s = 0; s < step->streams_.size(); ++s) step->joined_.push_back(device.create_event());
  return step;
}

bool RecordedStep::serves(const CallerTensors& tensors, std::span<const void* const> memory) const {
  if (parts_[0] == nullptr || !std::ranges::equal(memory, memory_)) return false;
  for (const ProgramPort& port : program_.inputs) {
    const bool on_device = tensors.device_of_input(port.index) != nullptr;
    if (on_device != inputs_[static_cast<size_t>(port.index)].on_device) return false;
  }
  for (const ProgramPort& port : program_.outputs) {
    if (tensors.outputs[static_cast<size_t>(port.index)] == nullptr) continue;
    const Output& output = outputs_[static_cast<size_t>(port.index)];
    const bool on_device = tensors.device_of_output(port.index) != nullptr;
    if (!output.wanted || on_device != output.on_device) return false;
  }
  return true;
}

Status RecordedStep::begin(const CallerTensors& tensors, std::span<const void* const> memory) {
  for (auto& recording : parts_) recording.reset();
  EPL_TRY(make_room(tensors));
  memory_.assign(memory.begin(), memory.end());
  part_ = Part::first;
  EPL_TRY(begin_part());
  // The numbers are there when the recording begins.
  if (program_.numbers_event >= 0) streams_[0]->record(event(program_.numbers_event));
  return {};
}

// What is allocated cannot be recorded.
Status RecordedStep::make_room(const CallerTensors& tensors) {
  bool any = false;
  const auto stage = [&](auto& one, const ProgramPort& port) -> Status {
    any = any || one.on_device;
    if (one.on_device || one.staging != nullptr) return {};
    EPL_ASSIGN(one.staging, recorder_.allocate_staging(port.global_type.bytes()));
    return {};
  };
  for (const ProgramPort& port : program_.inputs) {
    Input& input = inputs_[static_cast<size_t>(port.index)];
    input.on_device = tensors.device_of_input(port.index) != nullptr;
    EPL_TRY(stage(input, port));
  }
  for (const ProgramPort& port : program_.outputs) {
    Output& output = outputs_[static_cast<size_t>(port.index)];
    output.given = false;
    if (tensors.outputs[static_cast<size_t>(port.index)] != nullptr) {
      output.wanted = true;
      output.on_device = tensors.device_of_output(port.index) != nullptr;
    }
    if (output.wanted) EPL_TRY(stage(output, port));
  }
  if (!any) return {};
  if (places_ == nullptr) {
    addresses_.resize(inputs_.size() + outputs_.size());
    EPL_ASSIGN(places_, device_.allocate(static_cast<int64_t>(addresses_.size() * sizeof(void*))));
  }
  return streams_[0]->foreign()->make_ready();
}

Status RecordedStep::begin_second() {
  EPL_TRY(end_part());
  part_ = Part::second;
  return begin_part();
}

Status RecordedStep::end() { return end_part(); }

// All streams take part, so that each part is one command of the first stream.
Status RecordedStep::begin_part() {
  EPL_TRY(recorder_.begin());
  open_ = true;
  streams_[0]->record(*parted_);
  for (size_t s = 1; s < streams_.size(); ++s) streams_[s]->wait(*parted_);
  return {};
}

Status RecordedStep::end_part() {
  for (size_t s = 1; s < streams_.size(); ++s) {
    streams_[s]->record(*joined_[s]);
    streams_[0]->wait(*joined_[s]);
  }
  open_ = false;
  EPL_ASSIGN(recording(part_), recorder_.end());
  return {};
}

void RecordedStep::give_up() {
  if (std::exchange(open_, false)) static_cast<void>(recorder_.end());
  for (Stream* stream : streams_) static_cast<void>(stream->synchronize());
  for (auto& recording : parts_) recording.reset();
}

const void* RecordedStep::input(int index) const {
  const Input& input = inputs_[static_cast<size_t>(index)];
  return input.on_device ? input_place(index) : input.staging->data();
}

const std::byte* RecordedStep::input_place(int index) const {
  const auto number = static_cast<size_t>(index);
  return inputs_[number].on_device ? place(number) : nullptr;
}

void* RecordedStep::output(int index) {
  Output& output = outputs_[static_cast<size_t>(index)];
  if (!output.wanted) return nullptr;
  output.given = true;
  output.part = part_;
  return output.on_device ? place(inputs_.size() + static_cast<size_t>(index)) : output.staging->data();
}

const std::byte* RecordedStep::output_place(int index) const {
  const auto number = static_cast<size_t>(index);
  return outputs_[number].on_device ? place(inputs_.size() + number) : nullptr;
}

void RecordedStep::take(const CallerTensors& tensors) {
  for (const ProgramPort& port : program_.inputs) {
    const auto index = static_cast<size_t>(port.index);
    if (inputs_[index].on_device) {
      addresses_[index] = tensors.inputs[index];
    } else {
      std::memcpy(inputs_[index].staging->data(), tensors.inputs[index], static_cast<size_t>(port.global_type.bytes()));
    }
  }
  if (places_ == nullptr) return;
  for (const ProgramPort& port : program_.outputs) {
    const auto index = static_cast<size_t>(port.index);
    const bool goes_there = outputs_[index].on_device && tensors.device_of_output(port.index) != nullptr;
    addresses_[inputs_.size() + index] = goes_there ? tensors.outputs[index] : nullptr;  // null: nothing is written
  }
  streams_[0]->upload(places_->data(), addresses_.data(),
                      static_cast<int64_t>(addresses_.size() * sizeof(const void*)));
}

void RecordedStep::replay(Part part) {
  if (recording(part) != nullptr) recorder_.replay(*recording(part));
}

void RecordedStep::give_outputs(Part part, std::span<void* const> outputs) const {
  for (const ProgramPort& port : program_.outputs) {
    const auto index = static_cast<size_t>(port.index);
    const Output& output = outputs_[index];
    if (!output.given || output.on_device || output.part > part || outputs[index] == nullptr) continue;
    std::memcpy(outputs[index], output.staging->data(), static_cast<size_t>(port.global_type.bytes()));
  }
}

}  // namespace epl
