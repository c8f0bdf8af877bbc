// A step that the device keeps and carries out again: what a run of an executor has given to its streams, in two parts.
// Behind the first one the host decides whether the state changes, and the second one changes it. A program that
// changes nothing has the first one alone.
//
// What a command names must lie where it lay when it was recorded. So the caller's tensors go through memory of the
// host that the commands name (staging), and the events between the streams are the recording's own. Of tensors in
// memory of the device the commands name a place there, to which their addresses are uploaded in front of each step, as
// what the host sets for it is.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/device.h"
#include "core/program/program.h"

namespace epl {

// The caller's tensors of a run, by number of the caller.
struct CallerTensors {
  std::span<const void* const> inputs;
  std::span<void* const> outputs;  // null: not wanted
  // In memory of which device they lie; null: of the host. Empty: of the host, all of them.
  std::span<ForeignDevice* const> input_devices = {}, output_devices = {};

  ForeignDevice* device_of_input(int index) const { return of(input_devices, index); }
  ForeignDevice* device_of_output(int index) const { return of(output_devices, index); }

 private:
  static ForeignDevice* of(std::span<ForeignDevice* const> devices, int index) {
    return devices.empty() ? nullptr : devices[static_cast<size_t>(index)];
  }
};

class RecordedStep {
 public:
  enum class Part : uint8_t { first, second };

  // Memory of the host for the caller's tensors, and events. The streams are the executor's, and the first one records.
  static Result<std::unique_ptr<RecordedStep>> create(Device& device, const Program& program,
                                                      std::vector<Stream*> streams);

  // Whether what was recorded serves a run with these tensors, of a rank whose memory begins at these addresses.
  bool serves(const CallerTensors& tensors, std::span<const void* const> memory) const;

  // What was recorded before is forgotten. Outputs that a run has wanted are recorded for later runs too.
  Status begin(const CallerTensors& tensors, std::span<const void* const> memory);
  Status begin_second();
  Status end();
  // Of a recording that has failed: the streams carry out commands again.
  void give_up();

  // While a part is recorded: what commands name in place of the caller's tensors, by number of the caller. Null: the
  // output is not wanted.
  const void* input(int index) const;
  void* output(int index);
  // Of a tensor in memory of the device, where its address will lie; else null.
  const std::byte* input_place(int index) const;
  const std::byte* output_place(int index) const;
  Event& event(int number) { return *events_[static_cast<size_t>(number)]; }

  void take(const CallerTensors& tensors);
  void replay(Part part);
  bool has_second() const { return parts_[1] != nullptr; }
  // What the parts up to this one have given, to whoever wants it. The streams have been waited for.
  void give_outputs(Part part, std::span<void* const> outputs) const;

 private:
  struct Input {
    std::unique_ptr<Buffer> staging;  // where it is in memory of the host
    bool on_device = false;
  };
  struct Output {
    std::unique_ptr<Buffer> staging;  // the same
    bool on_device = false;
    bool wanted = false;
    bool given = false;  // a recorded command writes it
    Part part = Part::first;
  };
  RecordedStep(Device& device, const Program& program, std::vector<Stream*> streams)
      : device_(device), program_(program), streams_(std::move(streams)), recorder_(*streams_[0]->recorder()) {}
  Status make_room(const CallerTensors& tensors);
  std::byte* place(size_t number) const { return static_cast<std::byte*>(places_->data()) + number * sizeof(void*); }
  Status begin_part();
  Status end_part();
  std::unique_ptr<StreamRecorder::Recording>& recording(Part part) { return parts_[static_cast<size_t>(part)]; }

  Device& device_;
  const Program& program_;
  const std::vector<Stream*> streams_;
  StreamRecorder& recorder_;
  std::vector<Input> inputs_;    // by number of the caller
  std::vector<Output> outputs_;  // the same
  // The addresses of tensors in memory of the device, inputs and behind them outputs, and where they lie there.
  std::vector<const void*> addresses_;
  std::unique_ptr<Buffer> places_;              // null: there is none yet
  std::vector<std::unique_ptr<Event>> events_;  // of the program
  std::unique_ptr<Event> parted_;               // behind which the other streams begin
  std::vector<std::unique_ptr<Event>> joined_;  // by stream, behind its last command
  std::vector<const void*> memory_;             // where the rank's memory began
  std::array<std::unique_ptr<StreamRecorder::Recording>, 2> parts_;
  Part part_ = Part::first;  // that is recorded
  bool open_ = false;        // it has begun and has not ended
};

}  // namespace epl
