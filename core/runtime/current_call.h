// The call of the host that a process is in: what may stop it, and, over processes, what the other processes are told
// of it. Nothing is sent for that: the others look at it where they meet this process (Communicator::enter). Thread
// safety: one caller at a time.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/backend/job_call.h"
#include "core/base/stop.h"
#include "core/base/tensor.h"
#include "core/compile/entry.h"
#include "core/runtime/host_state.h"

namespace epl {

class CurrentCall {
 public:
  // What everything that reads the state looks at between pieces of work. What changes the state does not: it is asked
  // before it begins.
  const Stop& stop() const { return stop_; }

  // A program runs, whatever function of the host was called for that. Each run is a call of its own: an evaluation of
  // many batches may have another one in some process.
  void begin_program(EntryKind kind, StepPhase phase);
  // Of this run alone: its step and its inputs.
  void describe_run(int64_t step, const Entry& entry, std::span<const Tensor> inputs);
  // A value of the state that the host has set, until all of the state is set or compared otherwise.
  Status note_value_set(std::string_view name, const Tensor& value);
  void forget_values_set();

  // The ranks have joined a new group, where nobody has been told anything.
  void restart();
  bool is_told() const { return told_; }
  // As the others are told of it from now on.
  const JobCall& tell(const HostState& host_state);

 private:
  friend class StopScope;
  friend class CallScope;
  void begin(const char* name);

  Stop stop_;
  const char* name_ = nullptr;     // see CallScope; null: between calls
  const char* program_ = nullptr;  // where it runs a program: what it does
  JobCall call_;
  bool told_ = false;                                        // since it began
  std::shared_ptr<const std::string> lines_;                 // JobCall::lines; null: a value was set since
  uint64_t version_ = 0;                                     // of the host state that `lines_` are of
  std::map<std::string, uint64_t, std::less<>> values_set_;  // by name: hashes
  std::map<const Entry*, std::vector<std::string>> keys_;    // by input: of JobCall::numbers, which the ranks keep
};

// While it lives, this stops what the host has asked for.
class StopScope {
 public:
  StopScope(CurrentCall& call, const Stop& stop) : call_(call), outer_(std::exchange(call.stop_, stop)) {}
  ~StopScope() { call_.stop_ = outer_; }
  StopScope(const StopScope&) = delete;

 private:
  CurrentCall& call_;
  const Stop outer_;
};

// While it lives, the process is in a call of this name; one within another is part of that. Over processes all are to
// make the same calls.
class CallScope {
 public:
  CallScope(CurrentCall& call, const char* name) : call_(call), outer_(call.name_) {
    if (outer_ == nullptr) call_.begin(name);
  }
  ~CallScope() {
    if (outer_ == nullptr) call_.begin(nullptr);
  }
  CallScope(const CallScope&) = delete;

 private:
  CurrentCall& call_;
  const char* const outer_;
};

}  // namespace epl
