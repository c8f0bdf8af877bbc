// The threads of one rank: a caller and `size() - 1` workers that share its parallel loops.
//
// Purpose: kernels cut their work into tasks; which thread runs a task never changes a result. Waits spin and then
// sleep, so that more ranks than cores work; how long they spin is up to who makes the pool. Nothing allocates after
// construction. Thread safety: one caller of `run` at a time; a task may not call `run`. Invariant: `run` returns when
// every task has finished or was left out (StopTasks); a task's exception is rethrown in the caller.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/function_ref.h"

namespace epl {

class StopTasks;

class ThreadPool {
 public:
  // How long a thread that waits keeps its processor. `brief`, some 50 us, where others may need it; `patient`, some
  // 250 us, where every thread has a processor: a step has stretches of small work on one thread, and waking a sleeper
  // after each of them costs more than the work that is shared.
  enum class Wait : uint8_t { brief, patient };
  // `size` threads in all, the caller included; at least 1. Throws std::system_error where the system gives no more.
  explicit ThreadPool(int size, Wait wait = Wait::brief);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  // Calls task(i) for every i in [0, count), in any order and on any thread; thread() is the index of the executing
  // thread in [0, size()), for per-thread scratch.
  void run(int64_t count, FunctionRef<void(int64_t index, int thread)> task);
  // Cuts [0, count) into runs of about `grain` and calls task(begin, end) for each.
  void run_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> task);
  // Called by StopTasks, between runs; null: every task runs.
  void watch(StopTasks* stop_tasks);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epl
