// A thread of the engine inside a host process: it has a name, a small stack and the default floating-point
// environment. It takes no signals; those are the host's.
#pragma once

#include <pthread.h>

#include <functional>
#include <string>
#include <utility>

#include "core/base/status.h"

namespace epl {

class Thread {
 public:
  // `name` has up to 15 bytes. `work` must not throw. An error (out of memory) where the system gives no thread.
  static Result<Thread> start(const std::string& name, std::function<void()> work);
  Thread(Thread&& other) noexcept : thread_(other.thread_), joinable_(std::exchange(other.joinable_, false)) {}
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = other.thread_;
    joinable_ = std::exchange(other.joinable_, false);
    return *this;
  }
  Thread() = default;
  ~Thread() { join(); }
  // Waits for the end of its work; at most once.
  void join();
  // It ends by itself, and nobody waits for it.
  void detach();
  bool joinable() const { return joinable_; }
  pthread_t id() const { return thread_; }

 private:
  pthread_t thread_{};
  bool joinable_ = false;
};

}  // namespace epl
