// How a step goes on a device that keeps commands (core/runtime/recorded_step.h): it is recorded before it is carried
// out, so that a recording that fails has changed nothing, and the step is then given as any other.
#include <algorithm>
#include <array>
#include <iterator>

#include "core/runtime/executor.h"

namespace epl {

Event& Executor::event(int number) {
  return recording_ ? recorded_->event(number) : *events_[static_cast<size_t>(number)];
}

const void* Executor::input(int index) const {
  return recording_ ? recorded_->input(index) : request_->inputs[static_cast<size_t>(index)];
}

void* Executor::output(int index) {
  return recording_ ? recorded_->output(index) : request_->outputs[static_cast<size_t>(index)];
}

CallerTensors Executor::caller_tensors() const {
  return {.inputs = request_->inputs,
          .outputs = request_->outputs,
          .input_devices = request_->input_devices,
          .output_devices = request_->output_devices};
}

CallerMemory Executor::memory_of_input(const Location& location) const {
  if (location.space != Location::Space::input) return {};
  const int index = program_.inputs[static_cast<size_t>(location.index)].index;
  if (recording_) return {.place = recorded_->input_place(index)};
  return {.device = caller_tensors().device_of_input(index)};
}

// What is recorded may be an output that an earlier run has wanted, and this one does not.
CallerMemory Executor::memory_of_output(int index) const {
  if (recording_) return {.place = recorded_->output_place(index)};
  return {.device = caller_tensors().device_of_output(index)};
}

// What is recorded finds tensors on its own device alone.
bool Executor::finds_tensors() {
  const CallerTensors tensors = caller_tensors();
  const auto is_found = [&](ForeignDevice* device) { return device == nullptr || stream().foreign()->finds(*device); };
  return std::ranges::all_of(program_.inputs,
                             [&](const ProgramPort& port) { return is_found(tensors.device_of_input(port.index)); }) &&
         std::ranges::all_of(program_.outputs,
                             [&](const ProgramPort& port) { return is_found(tensors.device_of_output(port.index)); });
}

// Whether the device carries out what it keeps. Where that is due it is recorded here.
bool Executor::ready_to_replay(const Groups& groups) {
  const bool special = request_->diagnose || request_->hashes_gradients || request_->applies || records();
  if (special || stream().recorder() == nullptr || device_decides() || !not_recorded_.empty()) return false;
  if (groups.world != nullptr) {
    not_recorded_ = "its ranks meet on the host";
    return false;
  }
  const auto is_missing = [&](const ProgramPort& port) { return input(port.index) == nullptr; };
  if (std::ranges::any_of(program_.inputs, is_missing)) return false;
  if (!gave_all_) return false;  // what has to be loaded cannot be recorded
  if (!finds_tensors()) return false;
  std::array<const void*, 2 * std::size(memory_kinds)> begins{};
  size_t count = 0;
  for (const ProgramMemory& memory : program_.memories) {
    begins[count++] = arenas_[memory.kind] ? arenas_[memory.kind]->data() : nullptr;
    begins[count++] = memory.state_bytes > 0 ? store_.data(memory.kind) : nullptr;
  }
  const std::span<const void* const> memory(begins.data(), count);
  if (recorded_ && recorded_->serves(caller_tensors(), memory)) return true;
  const Status status = record_step(memory);
  if (status.ok()) return true;
  if (recorded_) recorded_->give_up();
  if (!check_stop().ok()) return false;
  not_recorded_ = status.message();
  recorded_.reset();
  log(host_, LogLevel::info, "each step of ", program_.name, " is given to the device anew: ", not_recorded_);
  return false;
}

Status Executor::record_step(std::span<const void* const> memory) {
  if (!recorded_) {
    EPL_ASSIGN(recorded_, RecordedStep::create(device_, program_, streams_));
  }
  struct Recording {
    explicit Recording(bool& goes_on) : on(goes_on) { on = true; }
    ~Recording() { on = false; }
    Recording(const Recording&) = delete;
    bool& on;
  };
  const Recording recording(recording_);
  EPL_TRY(recorded_->begin(caller_tensors(), memory));
  for (size_t c = 0; c < program_.calls.size(); ++c) {
    call_ = static_cast<int>(c);
    EPL_TRY(run_call(program_.calls[c], {}));
  }
  return recorded_->end();
}

// The host waits twice: to decide, and at the end.
Status Executor::replay_step(const Groups& groups) {
  using Part = RecordedStep::Part;
  EPL_TRY(check_stop());
  recorded_->take(caller_tensors());
  recorded_->replay(Part::first);
  if (program_.commits || recorded_->has_second()) {
    EPL_TRY(commit(groups));
    if (verdict_ >= 0) {  // the step is not applied
      recorded_->give_outputs(Part::first, request_->outputs);
      return {};
    }
    recorded_->replay(Part::second);
  }
  EPL_TRY(synchronize());
  recorded_->give_outputs(Part::second, request_->outputs);
  return {};
}

}  // namespace epl
