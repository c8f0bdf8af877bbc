// A step that the device keeps and carries out again: what a run of an executor has given to its streams, in two parts.
// Behind the first one the host decides whether the state changes, and the second one changes it. A program that
// changes nothing has the first one alone.
//
// What a command names must lie where it lay when it was recorded. So the caller's tensors go through memory of the
// host that the commands name (staging), and the events between the streams are the recording's own. What the host sets
// for a step is uploaded in front of it as ever.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/device.h"
#include "core/program/program.h"

namespace epl {

class RecordedStep {
 public:
  enum class Part : uint8_t { first, second };

  // Memory of the host for the caller's tensors, and events. The streams are the executor's, and the first one records.
  static Result<std::unique_ptr<RecordedStep>> create(Device& device, const Program& program,
                                                      std::vector<Stream*> streams);

  // Whether what was recorded serves a run that wants these outputs, of a rank whose memory begins at these addresses.
  bool serves(std::span<void* const> outputs, std::span<const void* const> memory) const;

  // What was recorded before is forgotten. Outputs that a run has wanted are recorded for later runs too.
  Status begin(std::span<void* const> outputs, std::span<const void* const> memory);
  Status begin_second();
  Status end();
  // Of a recording that has failed: the streams carry out commands again.
  void give_up();

  // While a part is recorded: what commands name in place of the caller's tensors, by number of the caller. Null: the
  // output is not wanted.
  const void* input(int index) const { return inputs_[static_cast<size_t>(index)]->data(); }
  void* output(int index);
  Event& event(int number) { return *events_[static_cast<size_t>(number)]; }

  void take_inputs(std::span<const void* const> inputs);
  void replay(Part part);
  bool has_second() const { return parts_[1] != nullptr; }
  // What the parts up to this one have given, to whoever wants it. The streams have been waited for.
  void give_outputs(Part part, std::span<void* const> outputs) const;

 private:
  struct Output {
    std::unique_ptr<Buffer> staging;  // null: it is not of this program
    bool wanted = false;
    bool given = false;  // a recorded command writes it
    Part part = Part::first;
  };
  RecordedStep(const Program& program, std::vector<Stream*> streams)
      : program_(program), streams_(std::move(streams)), recorder_(*streams_[0]->recorder()) {}
  Status begin_part();
  Status end_part();
  std::unique_ptr<StreamRecorder::Recording>& recording(Part part) { return parts_[static_cast<size_t>(part)]; }

  const Program& program_;
  const std::vector<Stream*> streams_;
  StreamRecorder& recorder_;
  std::vector<std::unique_ptr<Buffer>> inputs_;  // by number of the caller; null: not of this program
  std::vector<Output> outputs_;                  // the same
  std::vector<std::unique_ptr<Event>> events_;   // of the program
  std::unique_ptr<Event> parted_;                // behind which the other streams begin
  std::vector<std::unique_ptr<Event>> joined_;   // by stream, behind its last command
  std::vector<const void*> memory_;              // where the rank's memory began
  std::array<std::unique_ptr<StreamRecorder::Recording>, 2> parts_;
  Part part_ = Part::first;  // that is recorded
  bool open_ = false;        // it has begun and has not ended
};

}  // namespace epl
