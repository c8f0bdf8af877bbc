#include "core/train/schedules/common.h"

namespace epl {

EPL_SCHEDULE(constant) {
  return {.doc = "The base rate.", .factor = [](const Attributes&, int64_t, int64_t) { return 1.0; }};
}

}  // namespace epl
