#include "backends/cuda/ahead.h"

#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace epl::cuda {
namespace {

class Pool {
 public:
  // Before the libraries that the work uses are taken down: they were opened before the pool was made.
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

 private:
  void run() {
    for (;;) {
      std::weak_ptr<Ahead> next;
      {
        const std::lock_guard lock(mutex_);
        if (queue_.empty()) {
          --running_;
          return;
        }
        next = std::move(queue_.front());
        queue_.pop_front();
      }
      const std::shared_ptr<Ahead> work = next.lock();
      try {
        if (work) work->begin();
      } catch (const std::exception&) {
        // Whoever needs it finds the same.
      }
    }
  }

  std::mutex mutex_;
  std::deque<std::weak_ptr<Ahead>> queue_;
  std::vector<std::thread> threads_;
  int running_ = 0;
};

}  // namespace

void begin_ahead(const std::shared_ptr<Ahead>& work, int threads) {
  static Pool pool;
  pool.add(work, threads);
}

}  // namespace epl::cuda
