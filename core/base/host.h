// What the engine gets from its host process: a clock, memory, a logger, a thread budget. Nothing below the C API asks
// the operating system for these, so that a host can replace each, and tests can make them fail.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <string_view>

#include "core/base/shown.h"
#include "core/base/text.h"
#include "core/base/thread_pool.h"

namespace epl {

enum class LogLevel : int { debug = 0, info = 1, warning = 2, error = 3 };

// What all that comes from one host may have together, in bytes that were asked for: what a plan says of itself.
struct MemoryBudget {
  uint64_t bytes = 0;  // 0: no bound
  std::atomic<uint64_t> in_use{0};

  bool take(uint64_t wanted) {
    const uint64_t before = in_use.fetch_add(wanted, std::memory_order_relaxed);
    if (bytes == 0 || (before <= bytes && wanted <= bytes - before)) return true;
    give_back(wanted);
    return false;
  }
  void give_back(uint64_t taken) { in_use.fetch_sub(taken, std::memory_order_relaxed); }
};

struct Host {
  std::function<double()> seconds;                                // monotonic clock
  std::function<void*(size_t bytes, size_t alignment)> allocate;  // null on failure
  std::function<void(void* memory, size_t bytes, size_t alignment)> release;
  std::shared_ptr<MemoryBudget> budget = {};            // null: none
  std::function<void(LogLevel, std::string_view)> log;  // through `log` below, which makes no text that nobody reads
  LogLevel least_logged = LogLevel::warning;
  int threads = 1;  // for all ranks of this process together
  // Of this many threads, which the sessions of an engine share. Null: each stream has its own.
  std::shared_ptr<Workers> workers;
  bool spare_processors = false;  // each of these threads may keep a processor busy while it waits
  std::string packs;              // the folder of optional packs; empty: there are none
  std::string kernel_cache;       // the folder where kernels that are compiled stay for later processes; empty: nowhere
};

inline ThreadPool::Wait wait_of(const Host& host) {
  return host.spare_processors ? ThreadPool::Wait::patient : ThreadPool::Wait::brief;
}

// A path in a line of the log. The text is made with the line, so that a path which finds no memory ends no call whose
// work is done.
struct LoggedPath {
  std::string_view path;
};

template <class T> const T& as_logged(const T& argument) { return argument; }
inline std::string as_logged(const LoggedPath& argument) { return shown_path(argument.path); }

// Writes to the host's log, if the host wants this level. A line that finds no memory is left out.
template <class... Args> void log(const Host& host, LogLevel level, const Args&... args) {
  if (!host.log || level < host.least_logged) return;
  try {
    host.log(level, cat(as_logged(args)...));
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace epl
