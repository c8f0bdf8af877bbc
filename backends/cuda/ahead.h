// Work that is begun before it is needed: kernels of a plan are compiled on a few threads while the plan is still being
// made. What is needed is waited for by whoever needs it; what nobody wants any more is left out.
#pragma once

#include <memory>

namespace epl::cuda {

class Ahead {
 public:
  virtual ~Ahead() = default;
  virtual void begin() = 0;  // does it, on whichever thread; again it does nothing
};

// On at most so many threads, which end when there is nothing to do.
void begin_ahead(const std::shared_ptr<Ahead>& work, int threads);
// Waits for what is at work now. A library may take itself down when the process ends, and must not be at work then: so
// whoever closes a device waits.
void settle_ahead();

}  // namespace epl::cuda
