// Waiting for what another thread is about to do: it spins for a while, and the caller then sleeps. Spinning is quicker
// than sleeping if the wait is short. It is a waste if the machine is busy and the other thread does not run.
#pragma once

#include <algorithm>
#include <cstdint>

namespace epl {

// How long to spin, adapted to whether spinning has paid before; no clock is read. Used by one thread.
class Spin {
 public:
  // `limit`: pauses, of some 25 ns each.
  explicit Spin(int limit) : limit_(limit), now_(limit) {}

  // True as soon as `come` is; false after spinning in vain: then the caller sleeps.
  template <class Come> bool until(const Come& come) {
    if (come()) return true;
    // Now and then it spins up to the limit, to notice when waits have become short again.
    const int spins = ++waits_ % probe_every == 0 ? limit_ : now_;
    for (int i = 0; i < spins; ++i) {
      pause();
      if (!come()) continue;
      now_ = std::min(limit_, std::max(spins, now_) * 2);
      return true;
    }
    now_ = std::max(std::min(limit_, min_spins), now_ / 2);
    return false;
  }
  int spins() const { return now_; }

  static constexpr int min_spins = 50, probe_every = 32;

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
