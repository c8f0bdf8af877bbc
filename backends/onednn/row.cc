#include "core/base/pack.h"

namespace epl {

EPL_PACK(onednn) {
  return {.doc = "products and convolutions by oneDNN, for reproducible.level run",
          .packages = "libdnnl-dev",
          .device = "cpu",
          .any_order = true};
}

}  // namespace epl
