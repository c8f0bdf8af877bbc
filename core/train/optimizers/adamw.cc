#include "core/train/optimizers/common.h"

namespace epl {

EPL_OPTIMIZER(adamw) {
  return optimizers::adam_row(
      "adamw", "AdamW as torch.optim.AdamW (Loshchilov and Hutter 2019); weight_decay is apart from the gradient.",
      1e-2);
}

}  // namespace epl
