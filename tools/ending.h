// How a job ends when a signal asks it to (tools/signals.h). No process decides that alone, since the others would wait
// for it: the call that it is in is cancelled, or its next one, which ends the call of all.
#pragma once

#include "tools/api.h"
#include "tools/signals.h"

namespace epl::tools {

class Ending {
 public:
  // Signals are watched from here on. There is one of these at a time.
  explicit Ending(const Engine& engine) : cancel_(make<Cancel>(epl_cancel_create, engine.get())) {
    call_.cancel = cancel_.get();
    watch_signals(cancel_.get());
  }
  Ending(const Ending&) = delete;
  ~Ending() { forget_token(); }
  // What the calls of the job are given.
  const epl_call_options* call() const { return &call_; }
  // Whether a call that failed so has ended because this process was asked to end, or another one, whose signal may
  // still be on its way to this one.
  static bool explains(const ApiError& failure);

 private:
  Cancel cancel_;
  epl_call_options call_ = EPL_CALL_OPTIONS_INIT;
};

}  // namespace epl::tools
