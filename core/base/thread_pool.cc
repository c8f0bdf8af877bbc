#include "core/base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <vector>

#include "core/base/check.h"
#include "core/base/spin.h"
#include "core/base/stop_tasks.h"
#include "core/base/thread.h"

namespace epl {
struct ThreadPool::State {
  using Task = FunctionRef<void(int64_t, int)>;
  explicit State(int spins) : max_spins(spins), spin(spins) {}

  const int max_spins;
  Spin spin;  // of the thread that runs tasks here

  std::mutex mutex;
  std::condition_variable work_ready, work_done;
  std::atomic<uint64_t> generation{0};  // raised for every run; workers wait for a new one
  std::atomic<int> busy{0};             // workers that have not finished the current run
  std::atomic<int64_t> next{0};
  int64_t count = 0;
  const Task* task = nullptr;
  StopTasks* stop_tasks = nullptr;
  std::exception_ptr failure;
  bool stop = false;
  std::vector<Thread> workers;

  void work(int thread) {
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      if (stop_tasks != nullptr && stop_tasks->leaves_out()) return;
      try {
        (*task)(i, thread);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  }

  void end() {
    {
      std::lock_guard lock(mutex);
      stop = true;
      generation.fetch_add(1, std::memory_order_release);
    }
    work_ready.notify_all();
    for (Thread& worker : workers) worker.join();
  }

  void loop(int thread) {
    uint64_t seen = 0;
    Spin own(max_spins);
    const auto come = [&] { return generation.load(std::memory_order_acquire) != seen; };
    for (;;) {
      if (!own.until(come)) {
        std::unique_lock lock(mutex);
        work_ready.wait(lock, come);
      }
      seen = generation.load(std::memory_order_acquire);
      if (stop) return;
      work(thread);
      if (busy.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        std::lock_guard lock(mutex);
        work_done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int size, Wait wait) : state_(std::make_unique<State>(wait == Wait::patient ? 40000 : 2000)) {
  EPL_CHECK(size >= 1, "a pool needs a thread, got ", size);
  state_->workers.reserve(size - 1);
  try {
    for (int i = 1; i < size; ++i) {
      auto worker = Thread::start(cat("epl-w", i), [state = state_.get(), i] { state->loop(i); });
      if (!worker.ok()) throw std::system_error(EAGAIN, std::generic_category(), "starting a thread");
      state_->workers.push_back(std::move(worker).value());
    }
  } catch (...) {
    state_->end();  // ends the threads that were started: the host must survive when there are no more
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->end(); }

void ThreadPool::watch(StopTasks* stop_tasks) { state_->stop_tasks = stop_tasks; }

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(int64_t count, FunctionRef<void(int64_t, int)> task) {
  if (count <= 0) return;
  if (count == 1 || state_->workers.empty()) {
    StopTasks* stop_tasks = state_->stop_tasks;
    for (int64_t i = 0; i < count && !(stop_tasks != nullptr && stop_tasks->leaves_out()); ++i) task(i, 0);
    return;
  }
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.count = count;
    s.task = &task;
    s.failure = nullptr;
    s.next.store(0, std::memory_order_relaxed);
    s.busy.store(static_cast<int>(s.workers.size()), std::memory_order_relaxed);
    s.generation.fetch_add(1, std::memory_order_release);
  }
  s.work_ready.notify_all();
  s.work(0);
  const auto done = [&s] { return s.busy.load(std::memory_order_acquire) == 0; };
  if (!s.spin.until(done)) {
    std::unique_lock lock(s.mutex);
    s.work_done.wait(lock, done);
  }
  if (s.failure) std::rethrow_exception(s.failure);
}

void ThreadPool::run_ranges(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> task) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  // Many small tasks only where someone may not want to wait for a large one.
  const int64_t max_tasks = state_->stop_tasks != nullptr ? int64_t{64} * size()
                            : size() == 1                 ? 1
                                                          : int64_t{4} * size();
  const int64_t tasks = std::min<int64_t>((count + grain - 1) / grain, max_tasks);
  run(tasks, [&](int64_t i, int) { task(count * i / tasks, count * (i + 1) / tasks); });
}

}  // namespace epl
