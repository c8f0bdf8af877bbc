// For packs: exceptions of the library that a pack wraps become the reason that a call gives.
#pragma once

#include <cstdio>
#include <exception>

#include "core/base/pack_abi.h"

namespace epl {

inline void refuse(const epl_pack_reason* reason, const char* library, const char* why) {
  if (reason != nullptr && reason->size > 0) std::snprintf(reason->text, reason->size, "%s: %s", library, why);
}

// What f() gives, or `otherwise` with the reason.
template <class F, class T> T guarded(const epl_pack_reason* reason, const char* library, T otherwise, const F& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    refuse(reason, library, e.what());
    return otherwise;
  }
}

// `send` of a carrier whose end is an End.
template <class End>
int32_t send_from(void* end, const char* library, int32_t peer, const void* bytes, uint64_t size, uint64_t* number,
                  const epl_pack_reason* reason) {
  return guarded(reason, library, -1, [&] {
    *number = static_cast<End*>(end)->send(peer, bytes, size);
    return 0;
  });
}

}  // namespace epl
