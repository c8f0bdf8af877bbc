// Work that goes on after the call that asked for it: what a host waits for, and the thread of a session that does it.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/thread.h"
#include "core/capi/handle.h"

namespace epl::capi {

// The outcome of such work. Thread safety: all of it.
class Event {
 public:
  struct Callback {
    epl_event_fn fn = nullptr;
    void* userdata = nullptr;
    epl_destroy_fn destroy = nullptr;
    void run() const {
      fn(userdata);
      if (destroy) destroy(userdata);
    }
  };

  ~Event() { close_descriptor(); }
  // Before the work begins: the thread that will do it, where nobody may wait for it, and the function that asked for
  // it.
  void done_by(pthread_t thread, const char* work) { thread_ = thread, work_ = work; }
  const char* work() const { return work_; }
  // Once, by that thread: whoever waits goes on, then callbacks run.
  void complete(Status status, const epl_metrics& metrics);
  bool ready() const { return ready_.load(std::memory_order_acquire); }
  // An error: the wait is over before the work is.
  Status wait(const Stop& stop);
  // Of what is ready.
  const Status& status() const { return status_; }
  const epl_metrics& metrics() const { return metrics_; }
  // Becomes readable, and stays so.
  Result<int> descriptor();
  void close_descriptor();
  // Runs it at once where the work is done.
  Status on_ready(const Callback& callback);

 private:
  Status check_process() const;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> ready_{false};
  Status status_;
  epl_metrics metrics_ = EPL_METRICS_INIT;
  std::vector<Callback> callbacks_;
  int descriptor_ = -1;
  pthread_t thread_{};
  const char* work_ = "";
  pid_t process_ = ::getpid();
};

// A thread that does one thing after another. Its owner may go at any time: what it does then is its last.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> start(const std::string& name);
  // Waits for the thread where it has nothing to do, which takes no time; else it ends by itself.
  ~Worker();
  // Of what it was given before, everything has been done but for callbacks.
  void give(std::function<void()> work);
  pthread_t thread() const { return thread_.id(); }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::function<void()> next;
    bool works = false, ends = false;
  };
  static void run(State& state);

  std::shared_ptr<State> state_ = std::make_shared<State>();
  Thread thread_;
};

}  // namespace epl::capi

struct epl_event : epl::capi::Handle<epl::capi::HandleType::event> {
  std::shared_ptr<epl::capi::Engine> engine;
  std::shared_ptr<epl::capi::Event> event = std::make_shared<epl::capi::Event>();
  ~epl_event() { event->close_descriptor(); }
};
