// Threads that share parallel loops. A pool is the caller of a loop and workers; the workers are an engine's, and its
// sessions share them, so that there are not more of them the more sessions there are.
//
// A loop is cut into tasks. It takes those of its workers that are free and does without the others: which thread runs
// a task never changes a result, so neither does who else is at work. A waiting thread spins and then sleeps, so that
// there may be more ranks than cores. Nothing allocates after construction.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/function_ref.h"

namespace epl {

class StopTasks;
class Team;
class Teams;
class Workers;

// Thread safety: one caller of `run` at a time; a task may not call `run`. Invariant: `run` returns when every task has
// finished or was left out (StopTasks); a task's exception is rethrown in the caller.
class ThreadPool {
 public:
  // How long a waiting thread keeps its processor. `brief`: about 50 us, where others may need it. `patient`: about 250
  // us, where every thread has a processor. A step has stretches of small work on one thread, and waking a sleeper
  // after each of them costs more than sharing the work gains.
  enum class Wait : uint8_t { brief, patient };
  // `size` threads in all, the caller included; at least 1. Throws std::system_error where the system gives no more.
  ThreadPool(std::shared_ptr<Workers> workers, int size);
  // With workers that nobody else has: they are free whenever a loop begins.
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
  friend class Workers;
  struct State;
  std::unique_ptr<State> state_;
};

// The workers of an engine. They start with the first pool that has them and end with the last one.
// Thread safety: any threads at once. In a child of fork, which has no threads, workers are started anew.
class Workers {
 public:
  // `threads`: of the engine, the caller of a loop included. A pool of more threads gets its workers all the same.
  Workers(int threads, ThreadPool::Wait wait);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // How many have been started and not ended.
  int started() const;
  ThreadPool::Wait wait() const { return wait_; }
  // Threads for `ranks` ranks, each with one of its own because they wait for one another. Sessions of as many ranks
  // share them between their steps. Throws std::system_error where the system gives no more.
  std::shared_ptr<Teams> teams(int ranks);

 private:
  friend class ThreadPool;
  struct Worker;
  std::vector<Worker*> attach(int count);
  void detach(const std::vector<Worker*>& workers);
  void leave_to_parent();

  const int threads_;
  const ThreadPool::Wait wait_;
  std::mutex done_mutex_;  // for callers that sleep until their last worker has finished
  std::condition_variable done_;
  mutable std::mutex mutex_;
  int process_;                                   // that the threads are of
  std::vector<std::unique_ptr<Worker>> workers_;  // those that no pool has are not started
  std::map<int, std::weak_ptr<Teams>> teams_;
};

// Teams of as many threads that nobody uses now.
class Teams {
 public:
  Teams(int size, ThreadPool::Wait wait);
  ~Teams();

 private:
  friend class Team;
  const int size_;
  const ThreadPool::Wait wait_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadPool>> idle_;
  size_t made_ = 0;
};

// A team of threads, while it lives: a loop of as many tasks runs each on a thread of its own. Where others use all
// that there are, another one is made, or std::system_error thrown. The teams outlive it.
class Team {
 public:
  explicit Team(Teams& teams);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ThreadPool& threads() { return *pool_; }

 private:
  Teams& teams_;
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace epl
