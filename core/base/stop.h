// Why a call should end early: its caller's token was triggered, or its time is over. Asked between pieces of work.
#pragma once

#include <atomic>
#include <functional>

#include "core/base/status.h"

namespace epl {

// Triggered once and for all, by any thread and from signal handlers.
class StopToken {
 public:
  void cancel() { cancelled_.store(true, std::memory_order_relaxed); }
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> cancelled_{false};
};

// What one call was given. It lives as long as the call; many threads may ask it. By default it never stops.
class Stop {
 public:
  Stop() = default;
  // `seconds` is the host's clock, on which the deadline is; 0: none. Both pointers must outlive this.
  Stop(const StopToken* token, const std::function<double()>* seconds, double deadline)
      : token_(token), seconds_(seconds), deadline_(deadline) {}
  // A deadline that is so many seconds from now; 0: none.
  static Stop after(const std::function<double()>& seconds, double timeout, const StopToken* token = nullptr) {
    return {token, &seconds, timeout > 0 ? seconds() + timeout : 0};
  }
  Code why() const {
    if (token_ != nullptr && token_->cancelled()) return Code::cancelled;
    return deadline_ > 0 && (*seconds_)() > deadline_ ? Code::deadline_exceeded : Code::ok;
  }
  Status check() const {
    const Code code = why();
    return code == Code::ok ? Status() : status(code);
  }
  static Status status(Code code) {
    return code == Code::cancelled ? Status(code, "the call was cancelled")
                                   : Status(code, "the deadline of the call has passed");
  }
  // Of work that is better done late than not at all.
  Stop without_deadline() const { return {token_, nullptr, 0}; }
  bool can_stop() const { return token_ != nullptr || deadline_ > 0; }
  const StopToken* token() const { return token_; }
  double deadline() const { return deadline_; }

 private:
  const StopToken* token_ = nullptr;
  const std::function<double()>* seconds_ = nullptr;
  double deadline_ = 0;
};

}  // namespace epl
