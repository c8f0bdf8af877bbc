// Runs a program on one rank. Everything is allocated when the executor is made; a run allocates nothing. Thread
// safety: one run at a time; its stop asks from any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/base/stop.h"
#include "core/base/stop_tasks.h"
#include "core/program/program.h"
#include "core/program/step_trace.h"
#include "core/program/transfer.h"
#include "core/runtime/parameter_store.h"
#include "core/runtime/recorded_step.h"
#include "core/runtime/state_gate.h"

namespace epl {

struct RunRequest {
  // The caller's global tensors and numbers, to which ports and scalars of the programs refer by index.
  std::span<const void* const> inputs;
  std::span<void* const> outputs;  // null: not wanted
  // In memory of which device they lie, which the program of the host has; null: of the host. Empty: all of the host.
  std::span<ForeignDevice* const> input_devices = {}, output_devices = {};
  // Behind which they are there, and all of the run comes.
  std::span<Event* const> behind = {};
  std::span<const uint64_t> scalars;  // each as its slot holds it
  uint64_t seed = 0;
  int64_t step = 0;
  // The i64 output that says whether the state may change: it may where this is -1, on every rank. -1: it does.
  int verdict_output = -1;
  // Do not commit; look at every result on the way for where what the verdict refused came from (see
  // Executor::origin).
  bool diagnose = false;
  int64_t refused = 0;  // of a diagnosing run: the verdict
  // A diagnosing run looks at gradients alone (Executor::gradient_hashes).
  bool hashes_gradients = false;
  // What `set_applied` says alone: the update by gradients that the state has, without a batch.
  bool applies = false;
  Stop stop;                  // shared by the ranks of the session
  StateGate* gate = nullptr;  // passed before the state changes
};

// How a rank reaches its peers.
struct Groups {
  Communicator* world = nullptr;          // all ranks of the job; null: there is one
  std::vector<Communicator*> of_program;  // in the order of Program::groups
};

class Diagnosis;  // core/runtime/diagnosis.h
struct LookedAt;

class Executor {
 public:
  ~Executor();
  // The arena must hold Program::arena_bytes. `agreement_bytes`: Entry::agreement_bytes.
  static Result<std::unique_ptr<Executor>> create(const Host& host, Device& device, Stream& stream,
                                                  const Program& program, int64_t agreement_bytes,
                                                  ParameterStore& store, Buffers& arenas, const Mesh& mesh, int rank);
  // Carries out the step. On an error before the ranks have agreed to change the state it is as it was. Afterwards
  // `drain`.
  Status run(const RunRequest& request, const Groups& groups = {});
  // From now on what runs do is written behind what `events` has, as far as it has room; null: no longer. On a
  // simulated device the times are there when all ranks have made their calls.
  void record(std::vector<TraceEvent>* events) { events_of_run_ = events; }
  bool records() const { return events_of_run_ != nullptr; }
  // By instruction, what a run that `applies` carries out; it must live as long.
  void set_applied(const std::vector<bool>* applied) { applied_ = applied; }
  // Why the current run should end early, before it has begun to commit.
  Status check_stop() const { return request_->stop.check(); }
  // Whether this rank gives the outputs that are the same on every rank, and the shards of those that are cut.
  void give_outputs(bool common, bool shards) {
    gives_common_ = common;
    gives_shards_ = shards;
  }
  // Waits for what a run that failed has issued: until then it may read and write memory of the caller. What became of
  // it is forgotten, so that no later call meets it. Of a rank with peers, once the group has been aborted.
  void drain() { static_cast<void>(synchronize()); }
  // The verdict of a run without an error: why the step has not changed the state; -1: it has.
  int64_t verdict() const { return verdict_; }
  // How far the last run came on its way to change the state: it has not asked the other ranks; it has, and has not
  // heard what they decided; all have decided to change it, so that a rank that fails now tears it. Of a device that
  // decides itself this is known once the step has ended; what cannot be known is taken for the last.
  enum class Agreement : uint8_t { none, asked, reached };
  Agreement agreement() const { return agreement_; }
  // What a diagnosing run has found: where that began which made the loss, or the gradient, not finite. Origins of
  // different ranks are compared by `traced`, then by `order`.
  struct Origin {
    int64_t order = -1;      // instructions looked at before it; -1: nothing found
    bool traced = false;     // from what was refused back to here; else it has left this rank, for another one
    bool given = false;      // in what the caller gave, which is of no rank
    std::string node, text;  // "input x holds nan at element 7", "nan comes first out of node y (softmax)"
  };
  const Origin& origin() const { return origin_; }
  // By operand of the verdict, a hash of the bytes that this rank has of it; 0: none. Of a run that hashes gradients.
  const std::vector<uint64_t>& gradient_hashes() const { return gradient_hashes_; }
  // Why a device that records is given each step anew; empty: from the second one on it replays them, or it records
  // nothing.
  const std::string& not_recorded() const { return not_recorded_; }
  // The highest byte of each arena that any instruction of any run has touched.
  const MemoryBytes& arena_high_water() const { return high_water_; }

 private:
  Executor(const Host& host, Device& device, Stream& stream, const Program& program, ParameterStore& store,
           Buffers& arenas);

  std::byte* at(const Location& location, int64_t micro_batch);
  Stream& stream() { return *streams_[0]; }
  // Of the step that is recorded, or of the run.
  Event& event(int number);
  const void* input(int index) const;
  void* output(int index);
  CallerTensors caller_tensors() const;
  CallerMemory memory_of_input(const Location& location) const;
  CallerMemory memory_of_output(int index) const;
  bool finds_tensors();
  bool ready_to_replay(const Groups& groups);
  Status record_step(std::span<const void* const> memory);
  Status replay_step(const Groups& groups);
  void go_to(int64_t micro_batch);
  Status run_call(const BlockCall& call, const Groups& groups);
  bool leaves_out(const BlockCall& call) const;
  Status carry_out(const Instruction& in, int64_t micro_batch, const Groups& groups);
  void upload_numbers();
  void wait(const Instruction& in, int64_t micro_batch, std::span<const CallWait>& of_call);
  void record(const Instruction& in, int64_t micro_batch);
  Status commit(const Groups& groups);
  // Of a device that decides itself.
  bool device_decides() const { return program_.decided_at >= 0; }
  Status decide(const Instruction& in, Communicator* world);
  Status decide_at_end(Communicator* world);
  Status end_decided(bool alone, Status issued);
  Decision* decision_on_device();
  void guard(const int64_t* verdict);
  Status read_decision();
  Status synchronize();
  TraceEvent* begin_event(Stream& stream, int instruction);
  void stamp(Stream& stream, double* seconds);
  void launch(Stream& stream, const Instruction& in, int64_t micro_batch);
  Status transfer(Stream& stream, const Instruction& in, int64_t micro_batch, const Groups& groups);
  Status before_commit(Communicator* world);
  const ProgramPort* output_port(int index) const;  // by the caller's number; null: it is not of this program
  void inspect_leaves();
  LookedAt looked_at(const Instruction& in, int64_t micro_batch);
  Status end_diagnosis();
  Status hash_gradients(const Instruction& in, int64_t micro_batch);
  void observe(const Instruction& in, int64_t micro_batch);
  void poison(const Instruction& in, int64_t micro_batch);

  const Host& host_;
  Device& device_;
  const Program& program_;
  ParameterStore& store_;
  Buffers& arenas_;
  std::vector<Stream*> streams_;  // the first is the session's
  std::vector<std::unique_ptr<Stream>> own_streams_;
  std::vector<std::unique_ptr<Event>> events_;
  std::unique_ptr<Event> looked_at_;  // what a diagnosing run is about to look at
  MeshCoordinates coordinates_;       // in the program's mesh, at the current micro-batch
  int time_axis_ = -1;
  const std::vector<bool>* applied_ = nullptr;
  std::vector<int64_t> first_units_;  // of its calls, by micro-batch
  bool gives_common_ = true, gives_shards_ = true;
  std::unique_ptr<Buffer> constants_, scalars_;
  std::vector<std::byte> numbers_;     // what the scalars are in this step, as they lie on the device
  std::unique_ptr<Buffer> wish_;       // where ranks agree on the end of a step whose program has no verdict
  std::vector<const void*> operands_;  // scratch for one launch
  std::vector<void*> results_;
  std::vector<Collective> calls_;  // of one transfer
  std::vector<TraceEvent>* events_of_run_ = nullptr;
  int call_ = 0;  // the current one, of the program's
  const RunRequest* request_ = nullptr;
  StepContext context_;
  Origin origin_;
  std::unique_ptr<Diagnosis> diagnosis_;  // of a diagnosing run
  std::vector<uint64_t> gradient_hashes_;
  int64_t verdict_ = -1;
  int64_t decided_ = Decision::undecided;  // what the device has decided
  Status stop_wish_;                       // why this rank does not want the step
  MemoryBytes high_water_;
  std::optional<StopTasks> stop_tasks_;  // of a run that a host may stop
  bool committed_ = false;               // of the current run
  Agreement agreement_ = Agreement::none;
  bool gave_all_ = false;  // a run has given every instruction, so that the device has loaded what it needs
  bool recording_ = false;
  std::string not_recorded_;
  std::unique_ptr<RecordedStep> recorded_;  // goes before the streams
};

}  // namespace epl
