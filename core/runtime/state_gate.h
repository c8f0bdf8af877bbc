// Keeps the state of a session from changing while somebody copies it, and the other way round. Readers come from any
// thread, beside steps: a step changes the state in its update alone, so readers wait for an update at most, and an
// update for those who copy.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/base/status.h"
#include "core/base/stop.h"

namespace epl {

class StateGate {
 public:
  // Returns when nobody reads; until `end` nobody does. The ranks of a step say so each, before they change anything.
  void begin() {
    std::unique_lock lock(mutex_);
    changing_ = true;
    changed_.wait(lock, [&] { return readers_ == 0; });
  }
  void end() {
    {
      const std::lock_guard lock(mutex_);
      if (!changing_) return;
      changing_ = false;
    }
    changed_.notify_all();
  }

  // What begins in its life, an update or a checkpoint that is loaded, ends with it. They may be inside each other.
  class Change {
   public:
    explicit Change(StateGate& gate, bool now = true) : gate_(gate) {
      ++gate_.depth_;
      if (now) gate_.begin();
    }
    ~Change() {
      if (--gate_.depth_ == 0) gate_.end();
    }
    Change(const Change&) = delete;

   private:
    StateGate& gate_;
  };

  // Runs `read` while nothing changes. `stop` is asked now and then, and no more once it reads.
  template <class F> Status read(const Stop& stop, F&& read) {
    {
      std::unique_lock lock(mutex_);
      EPL_TRY(stop.check());
      while (changing_) {
        changed_.wait_for(lock, std::chrono::milliseconds(1));
        EPL_TRY(stop.check());
      }
      ++readers_;
    }
    struct Leave {
      StateGate& gate;
      ~Leave() {
        {
          const std::lock_guard lock(gate.mutex_);
          --gate.readers_;
        }
        gate.changed_.notify_all();
      }
    } leave{*this};
    return read();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int readers_ = 0;
  bool changing_ = false;
  int depth_ = 0;  // of Change; the session's caller alone
};

}  // namespace epl
