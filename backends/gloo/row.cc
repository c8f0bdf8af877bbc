#include "core/base/pack.h"

namespace epl {

EPL_PACK(gloo) {
  return {.doc = "what processes send each other goes over Gloo: transport gloo",
          .packages = "libgloo-dev",
          .carries = true};
}

}  // namespace epl
