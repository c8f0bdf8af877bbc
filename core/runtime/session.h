// A running job: a compiled plan with memory, threads and state.
// Thread safety: one caller at a time (the C API checks); `stop` of a call may be cancelled from any thread. What is
// marked "any thread" may be called beside it.
#pragma once

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/job_call.h"
#include "core/base/function_ref.h"
#include "core/compile/compiled_plan.h"
#include "core/compile/sample_slices.h"
#include "core/runtime/executor.h"
#include "core/runtime/facts.h"
#include "core/runtime/pending_join.h"
#include "core/runtime/progress.h"
#include "core/runtime/state_gate.h"

namespace epl {

struct StepMetrics {
  int64_t step = 0;  // of this step, counted from 0
  double loss = 0;
  double gradient_norm = -1;  // before clipping; -1 when it was not computed
  double learning_rate = 0;
  double seconds = 0;  // that it took
  // Nothing in the batch counts, as where all targets are ignored: the loss is NaN, and the step has counted but
  // changed nothing besides. Gradients that are kept are zero.
  bool counts_nothing = false;
  bool counts_in_part = false;  // one of several means is over nothing: the loss is NaN, and the others have trained
  // Why the step has not changed the state, Code::not_finite: the loss or a gradient is not finite. Its message names
  // the first parameter whose gradient is not, and `where` is the node (input, parameter) that the first NaN came out
  // of.
  Status skipped;
};

struct CallOptions {
  Stop stop;
  int64_t samples = 0;  // of slices: how many of the whole batch count, its first ones; 0: all
  // Which sample stands in a row of an input, for messages; "" where nobody knows. May be empty.
  std::function<std::string(size_t input, int64_t row)> place{};
};

// Which ranks of the plan live in this process, and how they find the others.
struct SessionOptions {
  uint64_t seed = 0;
  std::shared_ptr<Device> device;            // null: the plan's; else one that stands for it
  int first_rank = 0, ranks = 0;             // [first_rank, first_rank + ranks); 0: all of them
  std::shared_ptr<Rendezvous> rendezvous;    // where some live elsewhere
  Secret secret{};                           // that they share: Joining::secret
  std::string address = "127.0.0.1";         // under which they reach this process
  std::string transport = "shared,sockets";  // Joining::transport
  double join_seconds = 60;                  // to wait for the others to come
  double silence_seconds = 600;              // to wait in a call for one that says nothing
  bool signs_frames = false;                 // Joining::signs_frames
  // Weights of the model's file that differ from those of rank 0 are taken from there; otherwise they are an error.
  bool take_weights = false;
  int64_t compare_every = 100;  // steps, before the next of which ranks compare what they share; 0: never
  bool slices = false;          // inputs are the samples that these ranks read: samples_read
  Stop stop;                    // while the session is made; not kept
  // The predict entry alone, with what it reads of the state and no initial values: a Predictor gives it others.
  bool predicts_only = false;
};

Status check_rate_scale(const RateScale& scale);

// Over processes, each makes the same calls with the same inputs, the whole batch of all ranks, of which its ranks take
// their pieces, or with its slice of them (SessionOptions::slices), a whole batch in all; outputs that are wanted are
// the same, and whole on each. What fails on one fails on all: a step may be called again when the reason is gone, but
// not when a process is, which `Code::peer_failed` tells from then on. State is read by all at the same time as well: a
// process may hold none of it, or pieces. A process that cannot make its call says so by `give_up`.
class Session {
 public:
  static Result<std::unique_ptr<Session>> create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 const SessionOptions& options);
  static Result<std::unique_ptr<Session>> create(const Host& host, std::shared_ptr<const CompiledPlan> plan,
                                                 uint64_t seed = 0);
  ~Session();

  const CompiledPlan& plan() const { return *plan_; }
  const std::shared_ptr<const CompiledPlan>& shared_plan() const { return plan_; }
  // Inputs of the global batch in the order of the entry's program, exactly of the types of one of the plan's shapes;
  // evaluate and predict take fewer samples as well. On an error that leaves the state whole, the same step may be
  // called again. A step that was skipped is none, and does not count.
  Status step(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options = {});
  // The two halves of a step, where the trainer keeps gradients: those of a batch, which become state, and an update by
  // the gradients that the state has. A step is one behind the other, bit by bit; buffers are those of the first half.
  // An update takes each gradient once, computed or set since the last update, and since weights were set or loaded.
  // The metrics of an update have the loss of the last batch, NaN where there was none.
  Status gradients(std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options = {});
  Status apply(StepMetrics& metrics, const CallOptions& options = {});
  // The mean of what counts among the samples given.
  Status evaluate(std::span<const Tensor> inputs, double& loss, const CallOptions& options = {});
  // One forward pass of an entry but train. Outputs are tensors of the global types of a whole batch of the entry that
  // `fit` names, made by the caller; empty ones are not wanted. Of fewer samples than a batch the first rows are theirs
  // (first_samples).
  Status run(EntryKind kind, std::span<const Tensor> inputs, std::span<Tensor> outputs,
             const CallOptions& options = {});
  Status predict(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options = {}) {
    return run(EntryKind::predict, inputs, outputs, options);
  }
  // A prediction into the caller's own tensors: outputs of the types of what `given_output` gives of as many samples.
  Status predict_into(std::span<const Tensor> inputs, std::span<Tensor> outputs, const CallOptions& options = {});
  // The entry whose shape these inputs have, and how many samples of its batch they hold, or of slices how many count,
  // as the call says. Of several shapes it is the one that they fill, else the first that they fill in part. An error
  // names the input that does not fit, or all shapes.
  struct Fit {
    const Entry* entry = nullptr;
    int64_t samples = 0;
  };
  Result<Fit> fit(EntryKind kind, std::span<const Tensor> inputs, const CallOptions& options = {}) const;
  // Of an input, what a call was given of it, as a whole batch: of slices the processes gather those of all.
  Result<Tensor> whole_input(const Entry& entry, size_t input, const Tensor& given);
  // Over processes: the call that the others are in, or their next one, ends with Code::peer_failed and this reason,
  // because this process will not make it. All can go on afterwards. Returns the reason.
  Status give_up(const Status& why);
  const Status& lost() const { return lost_; }  // why it cannot go on over its processes; ok: it can
  // The job is to end: a process that does not even answer is lost within some seconds.
  void hasten() { hastened_ = true; }
  // Of a session that has lost a process: the first rank of the first one left that has all of the state by itself; -1:
  // there is none. All that are left know the same one.
  int keeper() const;
  // Waits until that process has done what is left to do, which it says by `leave`, or is gone.
  Status await_leave(int rank, const Stop& stop);
  void leave();
  // What this process has of a value of which it has everything. An error where the last step has changed it by half.
  Result<Tensor> state_here(std::string_view name) const;
  // A call in which processes give each other parts of the state: all come together, and one that cannot go on gives it
  // up, unless that is done. No error is none.
  Status enter_call() { return reconnect(stop_); }
  Status leave_call(const Status& why);
  // The same for what this process may be alone to refuse, before it comes to the others; no error is none.
  Status refuse(const Status& why);
  // Runs a call that all processes make. An error of it before it came to the others is told to them (give_up).
  Status make_call(FunctionRef<Status()> call);
  // An output of the last step besides the loss, for example "gradient_norm:<parameter>".
  Result<double> step_scalar(std::string_view name) const;
  Result<Tensor> step_output(std::string_view name) const;
  // Of the last step, or of the last call of `evaluate`, an output that the strategy merges, as it asks. Of a step also
  // the others.
  Result<Tensor> output(EntryKind kind, std::string_view name) const;
  // What the caller gets of an output of a batch of which so many samples count.
  Tensor given_output(const Entry& entry, size_t index, const Tensor& whole, int64_t samples) const;
  TensorType given_type(const Entry& entry, size_t index, int64_t samples) const;

  // Parameters, buffers and optimizer state by name, whole on each process.
  Result<Tensor> state(std::string_view name);
  // The same without a copy where that is possible: for those who are done with it before the session's next call.
  Result<Tensor> state_view(std::string_view name);
  // Whether each process has all of it, so that no other one takes part in these two.
  bool has_whole(std::string_view name) const;
  // What this process has of it. The ranks that hold one piece take turns, so that over all processes each piece is
  // given once.
  struct StatePiece {
    int rank = 0;
    const Mesh* mesh = nullptr;
    Tensor value;
  };
  Result<std::vector<StatePiece>> state_pieces(std::string_view name, size_t turn);
  Status set_state(std::string_view name, const Tensor& value);
  int64_t steps_done() const { return steps_done_; }
  // The last step that was done. Any thread.
  Progress::Numbers progress() const { return progress_.read(); }
  // What the next step's host scalars are computed from.
  StepFacts facts() const { return facts(Part::all); }
  void set_steps_done(int64_t steps);
  // What the learning rate is multiplied with besides its schedule, from the next step on.
  const RateScale& rate_scale() const { return rate_scale_; }
  Status set_rate_scale(const RateScale& scale);
  // What is set between steps, by its name: "learning_rate_scale", "learning_rate" (the option lr) and of a group
  // "learning_rate:0", and "frozen:PATTERN" of trained parameters, 1 or 0.
  Result<double> number(std::string_view name) const;
  Status set_number(std::string_view name, double value);
  // The same besides the scale, as a checkpoint keeps it. What does not fit this plan is left out.
  Facts describe_numbers() const;
  void restore_numbers(const Facts& facts);
  // A number was measured, which a schedule that watches may lower the rate for.
  Status observe(double value, bool higher_is_better);
  // What the caller's call was given, which everything that reads the state looks at between pieces of work. What
  // changes it does not: it is asked before it begins.
  class Call {
   public:
    Call(Session& session, const Stop& stop) : session_(session), outer_(std::exchange(session.stop_, stop)) {}
    ~Call() { session_.stop_ = outer_; }
    Call(const Call&) = delete;

   private:
    Session& session_;
    const Stop outer_;
  };
  const Stop& stop() const { return stop_; }
  // The call of the host's that a process is in, by the name that the others are told; one within another is part of
  // that. Over processes all are to make the same calls.
  class InCall {
   public:
    InCall(Session& session, const char* name) : session_(session), outer_(session.call_name_) {
      if (outer_ == nullptr) session_.begin_call(name);
    }
    ~InCall() {
      if (outer_ == nullptr) session_.begin_call(nullptr);
    }
    InCall(const InCall&) = delete;

   private:
    Session& session_;
    const char* const outer_;
  };
  const SessionOptions& options() const { return options_; }
  uint64_t seed() const { return seed_; }
  void set_seed(uint64_t seed) {
    seed_ = seed;
    common_lines_ = nullptr;
  }
  const Host& host() const { return host_; }
  int world() const { return static_cast<int>(plan_->options().ranks); }
  bool over_processes() const { return static_cast<int>(ranks_.size()) < world(); }
  // Over processes: the caller's own failure, or else that of another process; all of them ask at the same time.
  Status agree(const Status& own);
  // What each process has to say to all, in the order of their ranks. The same.
  Result<std::vector<std::string>> tell(const std::string& own);
  // A number of each. Who waits for the others looks at `stop`.
  Result<std::vector<int64_t>> tell(int64_t own, const Stop& stop);
  // The same of lines "key: value", which are to be the same in all processes: an error names the first that differs,
  // by its key and rank, in all of them.
  Status compare(const std::string& lines);
  // Ranks that hold the same piece of the state compare what they have, by hashes: none of it moves. Copies that are
  // not the same are an error that names the value and the rank, and the session is no longer `healthy`.
  Status compare_copies();
  // Whether a rank of the world lives in this process.
  bool is_local(int rank) const;
  // False after a step failed halfway through changing the state: restore a checkpoint and call `restored`.
  bool healthy() const { return healthy_; }
  void restored() {
    healthy_ = whole_here_ = true;
    values_set_.clear();
    common_lines_ = nullptr;
  }
  // Says that the state is no longer of one step: a checkpoint that could not be read to its end.
  void torn() { healthy_ = whole_here_ = false; }
  // Whoever changes the state other than by `step` and `set_state` does it in the life of a StateGate::Change.
  StateGate& gate() { return gate_; }

  // What the ranks of this process do in the next `steps` steps is recorded, and what was recorded before is forgotten;
  // 0: nothing is. A step then takes two looks at the clock longer for each instruction, and allocates nothing.
  void record(int64_t steps);
  StepTrace trace() const;

  // Bytes used by the fullest rank so far, from the instructions that ran; never above the plan's. Any thread.
  int64_t memory_bytes_used() const { return memory_bytes_used_.load(std::memory_order_relaxed); }
  // On a simulated device: when the last rank was done, in seconds of the simulation since the session began.
  double virtual_seconds() const;

 private:
  friend class Predictor;
  struct Rank;
  Session(const Host& host, std::shared_ptr<const CompiledPlan> plan, const SessionOptions& options);
  size_t index_of(const Entry& entry) const { return static_cast<size_t>(&entry - plan_->entries().data()); }
  Status find_slices();
  Status check_slices(const Entry& entry, std::span<const Tensor> inputs) const;
  Status check_slices_differ(const Entry& entry) const;
  Result<int64_t> samples_of(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options) const;
  const void* memory_of(const Entry& entry, size_t input, const Tensor& tensor);
  std::vector<Tensor> whole_inputs(const Entry& entry, std::span<const Tensor> inputs) const;
  Status check_room(const Entry& entry, int64_t samples, std::span<const Tensor> outputs) const;
  SampleRange given_range(const Entry& entry, size_t index, int64_t samples) const;
  bool runs(const Entry& entry) const { return !options_.predicts_only || entry.kind == EntryKind::predict; }
  void measure_memory();
  enum class Part : uint8_t { all, gradients, update };  // of a step
  // What became of a call that came to its ranks. Nothing else of a call is kept, so that no later one meets it.
  struct Outcome {
    Status status;
    bool done = false;            // all ranks of this process have carried it out, whatever became of its outputs
    Status skipped;               // why a step that was carried out has not changed the state
    bool counts_nothing = false;  // StepMetrics::counts_nothing
  };
  Status train(Part part, std::span<const Tensor> inputs, StepMetrics& metrics, const CallOptions& options);
  StepFacts facts(Part part) const;
  void make_room(size_t entry, Part part);
  void take_results(size_t entry, Part part);
  Status check_gradients() const;
  void gradients_are(std::string_view why_not);
  void note_set(const StateSlot& slot);
  Result<size_t> group_of(std::string_view name) const;
  std::vector<size_t> trained_matching(std::string_view pattern) const;
  Outcome execute(const Entry& entry, std::span<const Tensor> inputs, const CallOptions& options,
                  Part part = Part::all);
  Outcome run_ranks(size_t entry, const RunRequest& request);
  void run_rank(size_t entry, const RunRequest& request, int rank);
  bool counts_nothing(const Entry& entry) const;
  void clear_gradients();
  Status reason(const Entry& entry, std::span<const Tensor> inputs, RunRequest request, int64_t verdict);
  Result<const Entry*> find_entry(EntryKind kind) const;
  void on_ranks(FunctionRef<void(int)> body);
  Result<int> local_ranks() const;
  Status connect(const Stop& stop);
  Status add_rank(int r, const Stop& stop);
  void reserve_results();
  Status meet(const Stop& stop);
  std::vector<int> members_of(const ProgramGroup& group, int rank_class, int rank) const;
  std::string group_name(const ProgramGroup& group, const std::vector<int>& members) const;
  struct Held;
  Result<Held> held(std::string_view name) const;
  bool everywhere(FunctionRef<bool(int, int)> has, int pieces) const;
  size_t process_of(int rank) const;
  Status meet_processes();
  Status await_processes();
  Status among_processes(const Collective& call);
  Status give_up_world(const Status& why);
  static Status lost_process(const Status& why);
  Status come_together(const Stop& stop);
  Status reconnect(const Stop& stop);
  void begin_call(const char* name);
  Status note_value_set(std::string_view name, const Tensor& value);
  void tell_call();
  void look_at(const Entry& entry, std::span<const Tensor> inputs, Part part);
  Result<std::vector<std::string>> hashes_of_weights();
  Status compare_weights();
  Status compare_if_due(Part part, const Stop& stop);
  Status take_weights(const std::vector<std::string>& names);
  struct Copies;
  Status find_copies();
  Result<int64_t> hash_of_copy(int rank, const std::string& name) const;
  Status who_differs(const std::string& name, const std::vector<int>& holders);
  void disconnect();
  Status make_world();
  Status join_world(const Stop& stop);
  Status join_first(const Stop& stop);
  Status begin_join();
  Status lost_before() const;
  Joining joining_world() const;
  std::string job() const;
  Status share_outputs(const Entry& entry, const RunRequest& request);
  Status share_output(const Mesh& mesh, const ProgramPort& port, std::byte* whole);

  Host host_;
  std::shared_ptr<const CompiledPlan> plan_;
  SessionOptions options_;
  uint64_t seed_;
  std::shared_ptr<Device> device_;
  std::vector<std::vector<std::string>> input_keys_;  // by entry and input: JobCall::numbers, which the ranks keep
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::shared_ptr<Teams> rank_threads_;                // none where one thread drives all ranks
  int joins_ = 0;                                      // of the world, over processes
  std::vector<std::unique_ptr<Communicator>> before_;  // the ranks' old world, until the new one stands
  std::vector<std::unique_ptr<PendingJoin>> pending_;  // by local rank; none where nobody is on the way
  bool connected_ = false;
  bool hastened_ = false;
  const char* call_name_ = nullptr;     // see InCall; null: between calls
  const char* program_call_ = nullptr;  // where it runs a program: what it does, whatever function was called for that
  JobCall call_;                        // what the others have been told of the call at hand
  bool told_call_ = false;              // since it began
  std::shared_ptr<const std::string> common_lines_;          // JobCall::lines; null: a number has been set since
  std::map<std::string, uint64_t, std::less<>> values_set_;  // by name: hashes of what the host has set
  std::shared_ptr<const Copies> copies_;                     // null: not looked for yet
  int64_t compared_step_ = 0;                                // before which copies were compared last
  bool compare_due_ = false;                                 // before the next step, whichever that is
  uint64_t meetings_ = 0;                                    // how often this process has come to the others
  std::vector<int> processes_;                               // the first rank of each, ascending
  std::unique_ptr<Communicator> among_;                      // of the first ranks, over processes
  std::vector<std::byte> parts_;                             // of an output, on their way
  Status lost_;                                              // why the world never comes together again
  StateGate gate_;
  Progress progress_;
  std::atomic<int64_t> memory_bytes_used_{0};
  int64_t steps_done_ = 0;
  bool healthy_ = true;
  bool whole_here_ = true;            // the state of this process is of one step, whatever the others have
  const Entry* stepped_ = nullptr;    // of the last step, whose results there are
  const Entry* evaluated_ = nullptr;  // the same of `evaluate`
  int64_t evaluated_samples_ = 0;
  bool last_applied_ = true;  // whether the last step has changed the state
  RateScale rate_scale_;
  std::vector<double> rates_;    // by group; empty: those of the plan
  std::vector<uint8_t> frozen_;  // by trained parameter; empty: none
  // By trained parameter, where gradients are kept: there is one that no update has taken. And why there is none.
  std::vector<uint8_t> has_gradient_;
  std::string_view why_no_gradients_;
  bool gradients_count_nothing_ = false;  // those that there are come from a batch in which nothing counts
  double batch_loss_ = std::numeric_limits<double>::quiet_NaN();  // of the last batch that could be computed
  Stop stop_;                                                     // of the call at hand
  std::vector<uint64_t> scalars_;
  std::vector<const void*> input_pointers_;
  std::vector<void*> output_pointers_;
  // By entry: what the last step, or the last evaluation, gave, and where the next one writes. They change places when
  // it is done.
  std::vector<std::vector<Tensor>> results_, next_results_;
  // By entry and input, where inputs are slices: the samples, and a whole batch where they do not lie in one run.
  std::vector<std::vector<SampleRange>> slices_;
  std::vector<std::vector<Tensor>> staged_;
};

}  // namespace epl
