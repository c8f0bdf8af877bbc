// Waiting for what another thread is about to do: for a while by looking again, which is quicker than sleeping where it
// comes soon, and a waste where the other thread does not run, because the machine is busy.
#pragma once

#include <algorithm>
#include <cstdint>

namespace epl {

// How long looking pays, learnt from whether it has paid: no clock is read. Of one thread.
class Spin {
 public:
  // `limit`: pauses, of some 25 ns each.
  explicit Spin(int limit) : limit_(limit), now_(limit) {}

  // True as soon as `come` is; false after looking in vain, when the caller sleeps.
  template <class Come> bool until(const Come& come) {
    if (come()) return true;
    // Now and then as long as is allowed, or what comes again soon would not be seen any more.
    const int spins = ++waits_ % probe_every == 0 ? limit_ : now_;
    for (int i = 0; i < spins; ++i) {
      pause();
      if (!come()) continue;
      now_ = std::min(limit_, std::max(spins, now_) * 2);
      return true;
    }
    now_ = std::max(std::min(limit_, least), now_ / 2);
    return false;
  }
  int spins() const { return now_; }

  static constexpr int least = 50, probe_every = 32;

 private:
  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

  int limit_, now_;
  uint32_t waits_ = 0;
};

}  // namespace epl
