// What a function of the pack answers to libepl.so: a number, and the reason as text. No exception goes out.
#pragma once

#include <cstdio>
#include <exception>

#include "core/base/pack_abi.h"
#include "core/base/status.h"

namespace epl::cuda {

inline void write_reason(const epl_pack_reason* reason, const char* text) {
  if (reason != nullptr && reason->size > 0) std::snprintf(reason->text, reason->size, "%s", text);
}

inline int32_t answer(const Status& status, const epl_pack_reason* reason) {
  if (status.ok()) return 0;
  write_reason(reason, status.message().c_str());
  switch (status.code()) {
    case Code::out_of_memory:
      return EPL_PACK_NO_MEMORY;
    case Code::not_found:
    case Code::unsupported:
      return EPL_PACK_MISSING;
    case Code::state_lost:
      return EPL_PACK_LOST;
    default:
      return EPL_PACK_FAILED;
  }
}

// What f() answers, a Status.
template <class F> int32_t answered(const epl_pack_reason* reason, const F& f) noexcept {
  try {
    return answer(f(), reason);
  } catch (const std::exception& e) {
    write_reason(reason, e.what());
    return EPL_PACK_FAILED;
  }
}

}  // namespace epl::cuda
