// The threads of one rank: a caller and `size() - 1` workers that share its parallel loops.
//
// Purpose: kernels cut their work into tasks; which thread runs a task never changes a result. Waits spin briefly and
// then sleep, so that more ranks than cores work. Nothing allocates after construction.
// Thread safety: one caller of `run` at a time; a task may not call `run`.
// Invariant: `run` returns only when every task has finished; an exception of a task is rethrown in the caller.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/function_ref.h"

namespace epl {

class ThreadPool {
 public:
  explicit ThreadPool(int size);  // threads in all, the caller included; at least 1; std::system_error where there are none
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const;
  // Calls task(i) for every i in [0, count), in any order and on any thread; thread() is the index of the executing
  // thread in [0, size()), for per-thread scratch.
  void run(int64_t count, FunctionRef<void(int64_t index, int thread)> task);
  // Cuts [0, count) into runs of about `grain` and calls task(begin, end) for each.
  void run_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> task);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace epl
