#include "tools/ending.h"

#include <chrono>
#include <thread>

namespace epl::tools {

bool Ending::explains(const ApiError& failure) {
  constexpr std::chrono::milliseconds slice(10);
  constexpr int slices = 100;
  if (failure.code == EPL_ERROR_CANCELLED) return true;
  if (failure.code != EPL_ERROR_PEER_FAILED) return false;
  for (int i = 0; i < slices && !interrupted(); ++i) std::this_thread::sleep_for(slice);
  return interrupted();
}

}  // namespace epl::tools
