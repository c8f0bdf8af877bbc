#include "backends/cuda/ahead.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

namespace epl::cuda {
namespace {

class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      queue_.clear();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  void add(std::weak_ptr<Ahead> work, int most) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
    if (running_ >= most) return;
    if (running_ == 0) {
      for (std::thread& thread : threads_) thread.join();  // they have ended, or are about to
      threads_.clear();
    }
    try {
      threads_.emplace_back([this] { run(); });
      ++running_;
    } catch (const std::system_error&) {
      // Then whoever needs the work does it.
    }
  }

  // Until all that is at work now is done. What waits may begin.
  void settle() {
    std::unique_lock lock(mutex_);
    const std::set<uint64_t> now = at_work_;
    ended_.wait(lock, [&] { return std::ranges::none_of(now, [&](uint64_t one) { return at_work_.contains(one); }); });
  }

 private:
  void run() {
    for (;;) {
      std::weak_ptr<Ahead> next;
      uint64_t number = 0;
      {
        const std::lock_guard lock(mutex_);
        if (queue_.empty()) {
          --running_;
          return;
        }
        next = std::move(queue_.front());
        queue_.pop_front();
        number = ++begun_;
        at_work_.insert(number);
      }
      std::shared_ptr<Ahead> work = next.lock();
      try {
        if (work) work->begin();
      } catch (const std::exception&) {
        // Whoever needs it finds the same.
      }
      work.reset();
      const std::lock_guard lock(mutex_);
      at_work_.erase(number);
      ended_.notify_all();
    }
  }

  std::mutex mutex_;
  std::deque<std::weak_ptr<Ahead>> queue_;
  std::vector<std::thread> threads_;
  int running_ = 0;
  uint64_t begun_ = 0;
  std::set<uint64_t> at_work_;  // by their numbers
  std::condition_variable ended_;
};
Pool& pool() {
  static Pool one;
  return one;
}

}  // namespace

void begin_ahead(const std::shared_ptr<Ahead>& work, int threads) { pool().add(work, threads); }
void settle_ahead() { pool().settle(); }

}  // namespace epl::cuda
