#include "core/capi/async.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

#if defined(__linux__)
#include <sys/eventfd.h>
#endif

namespace epl::capi {

void Event::complete(Status status, const epl_metrics& metrics) {
  std::vector<Callback> callbacks;
  {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
    metrics_ = metrics;
    ready_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
    const uint64_t one = 1;
    if (descriptor_ >= 0) static_cast<void>(!::write(descriptor_, &one, sizeof one));
  }
  changed_.notify_all();
  for (const Callback& callback : callbacks) callback.run();
}

Status Event::check_process() const {
  if (process_ == ::getpid()) return {};
  return error(Code::misuse, "this event belongs to the process that called fork(), and its work goes on there");
}

Status Event::wait(const Stop& stop) {
  if (ready()) return {};
  EPL_TRY(check_process());
  if (::pthread_equal(thread_, ::pthread_self()) != 0) {
    return error(Code::misuse,
                 "a callback of an event waits for work of the same session, which its own thread would have to do");
  }
  // A token may be triggered by a signal handler, which can wake nobody.
  const auto slice = std::chrono::milliseconds(stop.token() != nullptr ? 2 : 10);
  std::unique_lock lock(mutex_);
  while (!ready()) {
    if (!stop.can_stop()) {
      changed_.wait(lock);
      continue;
    }
    EPL_TRY(stop.check());
    changed_.wait_for(lock, slice);
  }
  return {};
}

Result<int> Event::descriptor() {
  EPL_TRY(check_process());
#if defined(__linux__)
  const std::lock_guard lock(mutex_);
  if (descriptor_ < 0) descriptor_ = ::eventfd(ready() ? 1 : 0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (descriptor_ < 0) {
    return error(Code::exhausted, "the operating system gives no descriptor (", std::generic_category().message(errno),
                 ")");
  }
  return descriptor_;
#else
  return unsupported("this operating system has no descriptors for events; use its on_ready");
#endif
}

void Event::close_descriptor() {
  const std::lock_guard lock(mutex_);
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
}

Status Event::on_ready(const Callback& callback) {
  if (!ready()) {
    EPL_TRY(check_process());
    const std::lock_guard lock(mutex_);
    if (!ready()) {
      callbacks_.push_back(callback);
      return {};
    }
  }
  callback.run();
  return {};
}

Result<std::unique_ptr<Worker>> Worker::start(const std::string& name) {
  auto worker = std::make_unique<Worker>();
  EPL_ASSIGN(worker->thread_, Thread::start(name, [state = worker->state_] { run(*state); }));
  return worker;
}

Worker::~Worker() {
  bool works = false;
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
    works = state_->works;
  }
  state_->changed.notify_all();
  if (works) thread_.detach();
}

void Worker::give(std::function<void()> work) {
  const std::shared_ptr<State> state = state_;  // the work may be done, and this object gone, before it is woken
  {
    const std::lock_guard lock(state->mutex);
    state->next = std::move(work);
  }
  state->changed.notify_all();
}

void Worker::run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return state.next || state.ends; });
    if (!state.next) return;
    std::function<void()> work = std::exchange(state.next, nullptr);
    state.works = true;
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
    state.works = false;
  }
}

}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

void epl_event_destroy(epl_event* event) { destroy(event); }

int32_t epl_event_ready(const epl_event* event) { return alive(event) && event->event->ready() ? 1 : 0; }

epl_error* epl_event_wait(epl_event* event, const epl_call_options* call, epl_metrics* metrics) {
  std::shared_ptr<Event> waited;
  epl_error* refused = guarded([&]() -> Status {
    EPL_REQUIRE(event);
    if (metrics != nullptr) EPL_TRY(check_output(metrics, "epl_metrics"));
    const std::shared_ptr<Engine> engine = event->engine;
    waited = event->event;
    if (waited->ready()) return {};
    EPL_ASSIGN(const Call begun, begin_call(*engine, call));
    return waited->wait(begun.stop);
  });
  if (refused != nullptr) return refused;
  return guarded(
      [&]() -> Status {
        EPL_TRY(waited->status());
        return metrics == nullptr ? Status() : write_output(waited->metrics(), metrics, "epl_metrics");
      },
      waited->work());
}

epl_error* epl_event_fd(epl_event* event, int32_t* fd) {
  if (fd != nullptr) *fd = -1;
  return guarded([&]() -> Status {
    EPL_REQUIRE(event);
    EPL_REQUIRE(fd);
    EPL_ASSIGN(*fd, event->event->descriptor());
    return {};
  });
}

epl_error* epl_event_on_ready(epl_event* event, epl_event_fn fn, void* userdata, epl_destroy_fn destroy) {
  return guarded([&]() -> Status {
    EPL_REQUIRE(event);
    if (fn == nullptr) return invalid("fn is missing");
    return std::shared_ptr<Event>(event->event)->on_ready({fn, userdata, destroy});
  });
}
