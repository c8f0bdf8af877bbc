// How a job ends when a signal asks it to (tools/signals.h). No process decides that alone, since the others would wait
// for it: its next call is cancelled, which ends the call of all.
#pragma once

#include "tools/api.h"
#include "tools/signals.h"

namespace epl::tools {

class Ending {
 public:
  explicit Ending(const Engine& engine) : cancel_(make<Cancel>(epl_cancel_create, engine.get())) {
    call_.cancel = cancel_.get();
  }
  Ending(const Ending&) = delete;
  // What the next call of the job is given.
  const epl_call_options* call() {
    if (interrupted()) epl_cancel_trigger(cancel_.get());
    return &call_;
  }
  // Whether a call that failed so has ended because this process was asked to end, or another one, whose signal may
  // still be on its way to this one.
  static bool explains(const ApiError& failure);

 private:
  Cancel cancel_;
  epl_call_options call_ = EPL_CALL_OPTIONS_INIT;
};

}  // namespace epl::tools
