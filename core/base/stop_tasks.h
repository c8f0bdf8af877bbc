// Lets a parallel loop end early: a call with a deadline does not wait for an instruction that takes a minute.
//
// While a StopTasks lives, the loops of its pool ask `stopped` before each task, on the thread that is to run it. Once
// it is true, tasks that have not begun are left out, in this loop and in later ones. Their results are then missing:
// whoever made the StopTasks checks `left_out` before reading anything.
#pragma once

#include <atomic>

#include "core/base/function_ref.h"
#include "core/base/thread_pool.h"

namespace epl {

class StopTasks {
 public:
  // A null pool has no loops to end.
  StopTasks(ThreadPool* pool, FunctionRef<bool()> stopped) : pool_(pool), stopped_(stopped) {
    if (pool_ != nullptr) pool_->watch(this);
  }
  ~StopTasks() {
    if (pool_ != nullptr) pool_->watch(nullptr);
  }
  StopTasks(const StopTasks&) = delete;
  StopTasks& operator=(const StopTasks&) = delete;
  bool left_out() const { return left_out_.load(std::memory_order_relaxed); }

  // The pool asks before each task.
  bool leaves_out() {
    if (left_out()) return true;
    if (!stopped_()) return false;
    left_out_.store(true, std::memory_order_relaxed);
    return true;
  }

 private:
  ThreadPool* pool_;
  FunctionRef<bool()> stopped_;
  std::atomic<bool> left_out_{false};
};

}  // namespace epl
