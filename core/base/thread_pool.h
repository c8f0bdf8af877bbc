// The threads of one rank: a caller and `size() - 1` workers that share its parallel loops.
//
// Kernels cut their work into tasks. Which thread runs a task never changes a result. A waiting thread spins and then
// sleeps, so that there may be more ranks than cores; whoever makes the pool says how long it spins. Nothing allocates
// after construction. Thread safety: one caller of `run` at a time; a task may not call `run`. Invariant: `run` returns
// when every task has finished or was left out (StopTasks); a task's exception is rethrown in the caller.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/function_ref.h"

namespace epl {

class StopTasks;

class ThreadPool {
 public:
  // How long a waiting thread keeps its processor. `brief`: about 50 us, where others may need it. `patient`: about 250
  // us, where every thread has a processor. A step has stretches of small work on one thread, and waking a sleeper
  // after each of them costs more than sharing the work gains.
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
