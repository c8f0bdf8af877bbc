#include "core/runtime/recorded_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"

namespace epl {

Result<std::unique_ptr<RecordedStep>> RecordedStep::create(Device& device, const Program& program,
                                                           std::vector<Stream*> streams) {
  std::unique_ptr<RecordedStep> step(new RecordedStep(program, std::move(streams)));
  const auto room = [](auto& all, int index) -> auto& {
    if (std::ssize(all) <= index) all.resize(static_cast<size_t>(index) + 1);
    return all[static_cast<size_t>(index)];
  };
  for (const ProgramPort& port : program.inputs) {
    EPL_ASSIGN(room(step->inputs_, port.index), step->recorder_.allocate_staging(port.global_type.bytes()));
  }
  for (const ProgramPort& port : program.outputs) {
    EPL_ASSIGN(room(step->outputs_, port.index).staging, step->recorder_.allocate_staging(port.global_type.bytes()));
  }
  for (int e = 0; e < program.events; ++e) step->events_.push_back(device.create_event());
  step->parted_ = device.create_event();
  for (size_t s = 0; s < step->streams_.size(); ++s) step->joined_.push_back(device.create_event());
  return step;
}

bool RecordedStep::serves(std::span<void* const> outputs, std::span<const void* const> memory) const {
  if (parts_[0] == nullptr || !std::ranges::equal(memory, memory_)) return false;
  const auto is_served = [&](size_t i) {
    return i >= outputs_.size() || outputs_[i].staging == nullptr || outputs_[i].wanted || outputs[i] == nullptr;
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!is_served(i)) return false;
  }
  return true;
}

Status RecordedStep::begin(std::span<void* const> outputs, std::span<const void* const> memory) {
  for (auto& recording : parts_) recording.reset();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs_[i].wanted = outputs_[i].wanted || (i < outputs.size() && outputs[i] != nullptr);
    outputs_[i].given = false;
  }
  memory_.assign(memory.begin(), memory.end());
  part_ = Part::first;
  EPL_TRY(begin_part());
  // The numbers are there when the recording begins.
  if (program_.numbers_event >= 0) streams_[0]->record(event(program_.numbers_event));
  return {};
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

void* RecordedStep::output(int index) {
  Output& output = outputs_[static_cast<size_t>(index)];
  if (!output.wanted) return nullptr;
  output.given = true;
  output.part = part_;
  return output.staging->data();
}

void RecordedStep::take_inputs(std::span<const void* const> inputs) {
  for (const ProgramPort& port : program_.inputs) {
    const auto index = static_cast<size_t>(port.index);
    std::memcpy(inputs_[index]->data(), inputs[index], static_cast<size_t>(port.global_type.bytes()));
  }
}

void RecordedStep::replay(Part part) {
  if (recording(part) != nullptr) recorder_.replay(*recording(part));
}

void RecordedStep::give_outputs(Part part, std::span<void* const> outputs) const {
  for (const ProgramPort& port : program_.outputs) {
    const auto index = static_cast<size_t>(port.index);
    const Output& output = outputs_[index];
    if (!output.given || output.part > part || outputs[index] == nullptr) continue;
    std::memcpy(outputs[index], output.staging->data(), static_cast<size_t>(port.global_type.bytes()));
  }
}

}  // namespace epl
