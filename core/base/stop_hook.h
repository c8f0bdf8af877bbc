// A call that may stop, as writers of files look at it.
#pragma once

#include "core/base/file.h"
#include "core/base/stop.h"

namespace epl {

// Refuses to write more once the call is to stop, up to the renaming that makes what was written count. What is behind
// that, and what cleans up, goes on. `stop` must outlive it.
inline FileHook stop_hook(const Stop& stop) {
  if (!stop.can_stop()) return nullptr;
  return [&stop](std::string_view operation, const std::string&) {
    return operation == "remove" || operation == "sync" ? Status() : stop.check();
  };
}

}  // namespace epl
