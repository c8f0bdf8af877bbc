#include "core/base/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <utility>

#include "core/base/check.h"
#include "core/base/spin.h"
#include "core/base/stop_tasks.h"
#include "core/base/thread.h"

namespace epl {
namespace {

int spins_of(ThreadPool::Wait wait) { return wait == ThreadPool::Wait::patient ? 40000 : 2000; }

// A worker of a pool.
struct Seat {
  void (*work)(void* pool, int thread) = nullptr;
  void* pool = nullptr;
  int thread = 0;
  std::atomic<uint32_t>* unfinished = nullptr;  // workers of the current run
};

// The part of a run's tasks that a thread begins with.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// Of `unfinished`: the caller sleeps until the last worker wakes it.
constexpr uint32_t caller_sleeps = uint32_t{1} << 31;

}  // namespace

struct Workers::Worker {
  alignas(64) std::atomic<const Seat*> seat{nullptr};  // what it works for; null: it is free
  std::atomic<bool> asleep{false}, stop{false};
  std::mutex mutex;
  std::condition_variable come;
  int pools = 0;  // that have it; under the mutex of Workers
  Thread thread;

  // False: it works for another pool.
  bool take(const Seat& wanted) {
    const Seat* free = nullptr;
    if (!seat.compare_exchange_strong(free, &wanted)) return false;
    if (asleep.load()) wake();
    return true;
  }
  void wake() {
    {
      std::lock_guard lock(mutex);
    }
    come.notify_one();
  }
  // The last worker of a run wakes its caller by what is the engine's: the pool may be gone as soon as it is told.
  void loop(Workers& owner) {
    Spin own(spins_of(owner.wait_));
    const auto called = [&] { return seat.load() != nullptr || stop.load(); };
    for (;;) {
      if (!own.until(called)) {
        std::unique_lock lock(mutex);
        asleep.store(true);
        come.wait(lock, called);
        asleep.store(false);
      }
      const Seat* const at = seat.load();
      if (at == nullptr) return;
      at->work(at->pool, at->thread);
      std::atomic<uint32_t>& unfinished = *at->unfinished;
      seat.store(nullptr, std::memory_order_release);  // first: the caller's next run wants it
      if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == (caller_sleeps | 1)) {
        {
          std::lock_guard lock(owner.done_mutex_);
        }
        owner.done_.notify_all();
      }
    }
  }
  void leave() {
    if (--pools > 0) return;
    stop.store(true);
    wake();
    thread.join();
    stop.store(false);
  }
};

Workers::Workers(int threads, ThreadPool::Wait wait) : threads_(threads), wait_(wait), process_(::getpid()) {}

Workers::~Workers() {
  std::lock_guard lock(mutex_);
  leave_to_parent();
}

int Workers::started() const {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::ranges::count_if(workers_, [](const auto& worker) { return worker->pools > 0; }));
}

// What a parent process has started is not here, and would be waited for in vain.
void Workers::leave_to_parent() {
  if (process_ == ::getpid()) return;
  process_ = ::getpid();
  for (auto& worker : workers_) static_cast<void>(worker.release());
  workers_.clear();
  teams_.clear();
}

std::vector<Workers::Worker*> Workers::attach(int count) {
  std::lock_guard lock(mutex_);
  leave_to_parent();
  while (static_cast<int>(workers_.size()) < std::max(threads_ - 1, count))
    workers_.push_back(std::make_unique<Worker>());
  std::vector<Worker*> out;
  for (const auto& worker : workers_) out.push_back(worker.get());
  // Ranks of one session have workers of their own, as far as there are as many.
  std::ranges::stable_sort(out, {}, [](const Worker* worker) { return worker->pools; });
  out.resize(static_cast<size_t>(count));
  size_t started = 0;
  try {
    for (; started < out.size(); ++started) {
      Worker* const worker = out[started];
      if (worker->pools == 0) {
        auto thread = Thread::start("epl-w", [worker, this] { worker->loop(*this); });
        if (!thread.ok()) throw std::system_error(EAGAIN, std::generic_category(), "starting a thread");
        worker->thread = std::move(thread).value();
      }
      ++worker->pools;
    }
  } catch (...) {  // the host must survive when there are no more: those that were started end
    for (size_t i = 0; i < started; ++i) out[i]->leave();
    throw;
  }
  return out;
}

void Workers::detach(const std::vector<Worker*>& workers) {
  std::lock_guard lock(mutex_);
  if (process_ != ::getpid()) return;
  for (Worker* worker : workers) worker->leave();
}

std::shared_ptr<Teams> Workers::teams(int ranks) {
  std::lock_guard lock(mutex_);
  leave_to_parent();
  std::weak_ptr<Teams>& known = teams_[ranks];
  std::shared_ptr<Teams> out = known.lock();
  if (!out) known = out = std::make_shared<Teams>(ranks, ranks <= threads_ ? wait_ : ThreadPool::Wait::brief);
  return out;
}

struct ThreadPool::State {
  using Task = FunctionRef<void(int64_t, int)>;

  const std::shared_ptr<Workers> owner;
  std::vector<Seat> seats;
  std::vector<Share> shares;  // of the threads
  const std::vector<Workers::Worker*> workers;
  Spin spin;  // of the caller

  std::atomic<uint32_t> unfinished{0};
  int64_t count = 0;
  const Task* task = nullptr;
  StopTasks* stop_tasks = nullptr;
  std::mutex failure_mutex;
  std::exception_ptr failure;

  State(std::shared_ptr<Workers> of, int size)
      : owner(std::move(of)),
        seats(static_cast<size_t>(size - 1)),
        shares(static_cast<size_t>(size)),
        workers(owner->attach(size - 1)),
        spin(spins_of(owner->wait())) {
    for (int i = 1; i < size; ++i) {
      seats[static_cast<size_t>(i - 1)] = {[](void* pool, int thread) { static_cast<State*>(pool)->work(thread); },
                                           this, i, &unfinished};
    }
  }

  // A thread does its own share first, and then what is left of the others'. So loops over the same rows, one after
  // another and step after step, find them in the same core's cache.
  void work(int thread) {
    const int threads = static_cast<int>(shares.size());
    for (int other = 0; other < threads; ++other) {
      Share& share = shares[static_cast<size_t>((thread + other) % threads)];
      while (share.next.load(std::memory_order_relaxed) < share.end) {
        const int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
        if (i >= share.end) break;
        if (stop_tasks != nullptr && stop_tasks->leaves_out()) return;
        try {
          (*task)(i, thread);
        } catch (...) {
          std::lock_guard lock(failure_mutex);
          if (!failure) failure = std::current_exception();
        }
      }
    }
  }

  void share_out() {
    const auto threads = static_cast<int64_t>(shares.size());
    for (int64_t t = 0; t < threads; ++t) {
      shares[static_cast<size_t>(t)].next.store(count * t / threads, std::memory_order_relaxed);
      shares[static_cast<size_t>(t)].end = count * (t + 1) / threads;
    }
  }

  // Gives the run to workers that are free, as many as it has work for.
  void call_workers() {
    const auto wanted = static_cast<uint32_t>(std::min(count - 1, static_cast<int64_t>(workers.size())));
    unfinished.store(wanted, std::memory_order_relaxed);
    uint32_t taken = 0;
    for (size_t i = 0; i < workers.size() && taken < wanted; ++i) taken += workers[i]->take(seats[i]) ? 1 : 0;
    if (taken < wanted) unfinished.fetch_sub(wanted - taken, std::memory_order_relaxed);
  }

  void wait_for_workers() {
    const auto done = [&] { return (unfinished.load(std::memory_order_acquire) & ~caller_sleeps) == 0; };
    if (spin.until(done) || unfinished.fetch_or(caller_sleeps, std::memory_order_acq_rel) == 0) return;
    std::unique_lock lock(owner->done_mutex_);
    owner->done_.wait(lock, done);
  }
};

ThreadPool::ThreadPool(std::shared_ptr<Workers> workers, int size) {
  EPL_CHECK(size >= 1, "a pool needs a thread, got ", size);
  state_ = std::make_unique<State>(std::move(workers), size);
}

ThreadPool::ThreadPool(int size, Wait wait) : ThreadPool(std::make_shared<Workers>(size, wait), size) {}

ThreadPool::~ThreadPool() { state_->owner->detach(state_->workers); }

void ThreadPool::watch(StopTasks* stop_tasks) { state_->stop_tasks = stop_tasks; }

int ThreadPool::size() const { return static_cast<int>(state_->workers.size()) + 1; }

void ThreadPool::run(int64_t count, FunctionRef<void(int64_t, int)> task) {
  if (count <= 0) return;
  State& s = *state_;
  if (count == 1 || s.workers.empty()) {
    for (int64_t i = 0; i < count && !(s.stop_tasks != nullptr && s.stop_tasks->leaves_out()); ++i) task(i, 0);
    return;
  }
  s.count = count;
  s.task = &task;
  s.failure = nullptr;
  s.share_out();
  s.call_workers();
  s.work(0);
  s.wait_for_workers();
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

Teams::Teams(int size, ThreadPool::Wait wait) : size_(size), wait_(wait) {}

Teams::~Teams() = default;

Team::Team(Teams& teams) : teams_(teams) {
  std::lock_guard lock(teams.mutex_);
  if (!teams.idle_.empty()) {
    pool_ = std::move(teams.idle_.back());
    teams.idle_.pop_back();
    return;
  }
  teams.idle_.reserve(teams.made_ + 1);  // so that giving it back allocates nothing
  pool_ = std::make_unique<ThreadPool>(teams.size_, teams.wait_);
  ++teams.made_;
}

Team::~Team() {
  std::lock_guard lock(teams_.mutex_);
  teams_.idle_.push_back(std::move(pool_));
}

}  // namespace epl
