// How the entry points of a session begin.
#pragma once

#include "core/base/check.h"
#include "core/capi/objects.h"

namespace epl::capi {

inline Status check_poison(const epl_session& session) {
  if (!session.poisoned) return {};
  return error(Code::state_lost,
               "this session has met an internal error and cannot go on; make a new one and load a checkpoint");
}

// A bug of ours (InternalError) poisons the session: it must not go on with weights that may be wrong.
template <class F> Status unless_poisoned(epl_session& session, F&& f) {
  EPL_TRY(check_poison(session));
  try {
    return f();
  } catch (const InternalError&) {
    session.poisoned = true;
    throw;
  }
}

// Runs f with the session to itself.
template <class F> Status in_session(epl_session* session, F&& f) {
  return with_caller(session, "session", [&] { return unless_poisoned(*session, f); });
}

// The same as a complete entry point.
template <class F> epl_error* with_session(epl_session* session, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return in_session(session, f); }, call);
}

// An entry point that all processes of a job call, by its name. What this one refuses, for whatever reason, the others
// hear of.
template <class F> Status in_job(epl_session* session, F&& f, const char* call) {
  return with_caller(session, "session", [&] {
    const CallScope calling(session->session->world().call(), call);
    return session->session->world().make_call([&] { return unless_poisoned(*session, f); });
  });
}
template <class F> epl_error* with_job(epl_session* session, F&& f, const char* call = __builtin_FUNCTION()) {
  return guarded([&] { return in_job(session, f, call); }, call);
}

// Of a session over processes the others come to the call as well and would wait for this one: the session itself looks
// at token and deadline, and tells them.
inline Result<Call> begin_call(const epl_session& session, const epl_call_options* options) {
  return session.session->world().over_processes() ? read_call(*session.engine, options)
                                                   : begin_call(*session.engine, options);
}

// How one step, evaluation or prediction is to run.
CallOptions session_call(const Call& call);
int64_t nanoseconds(double seconds);
// With the session's inputs, in a call or behind it.
Status step_session(epl_session& session, const CallOptions& options, epl_metrics& metrics);
Status evaluate_session(epl_session& session, const CallOptions& options, double started, epl_metrics& metrics);

// Takes the inputs for the time of a call, without allocating once the slots have their shapes.
class Inputs {
 public:
  explicit Inputs(std::vector<Tensor>& slots, bool slices = false) : slots_(slots), slices_(slices) {}
  explicit Inputs(epl_session& session) : Inputs(session.inputs, session.session->world().options().slices) {}
  Inputs(const Inputs&) = delete;
  ~Inputs() {
    for (Tensor& slot : slots_) slot.forget_data();
  }
  Status take(const epl_tensor* const* inputs, size_t count) {
    if (count > 0 && inputs == nullptr) return invalid("inputs is missing, but count is ", count);
    if (count > 65536) return invalid("count is ", count);
    slots_.resize(count);
    given_ = {inputs, count};
    for (size_t i = 0; i < count; ++i) {
      slots_[i] = Tensor();
      if (inputs[i] == nullptr && slices_) continue;  // the session knows whether it is wanted
      if (!alive(inputs[i])) EPL_TRY(check_pointer(inputs[i], cat("inputs[", i, "]")));
      slots_[i] = inputs[i]->tensor;
    }
    return {};
  }
  // What the call is given besides, while these inputs live.
  CallOptions options(const Call& call) const {
    CallOptions out = session_call(call);
    out.position = [this](size_t input, int64_t row) {
      const epl_tensor* given = input < given_.size() ? given_[input] : nullptr;
      return given != nullptr && given->source != nullptr ? given->source->position_given(given->asked, row)
                                                          : std::string();
    };
    return out;
  }

 private:
  std::vector<Tensor>& slots_;
  std::span<const epl_tensor* const> given_;
  bool slices_;
};

}  // namespace epl::capi
