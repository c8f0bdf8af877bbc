// How the entry points of a session begin.
#pragma once

#include "core/base/check.h"
#include "core/capi/objects.h"

namespace epl::capi {

// Runs f with the session to itself. A bug of ours (InternalError) poisons the session: it must not go on with weights
// that may be wrong.
template <class F>
Status in_session(epl_session* session, F&& f) {
  return with_caller(session, "session", [&]() -> Status {
    if (session->poisoned) return error(Code::misuse, "this session has met an internal error and cannot go on; make a new one and load a checkpoint");
    try {
      return f();
    } catch (const InternalError&) {
      session->poisoned = true;
      throw;
    }
  });
}

// The same as a whole entry point.
template <class F>
epl_error* with_session(epl_session* session, F&& f) {
  return guarded([&] { return in_session(session, f); });
}

}  // namespace epl::capi
