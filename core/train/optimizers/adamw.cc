#include "core/train/optimizers/common.h"

namespace epl {

EPL_OPTIMIZER(adamw) {
  OptimizerRow row = optimizers::adam_row(
      "adamw", "AdamW as torch.optim.AdamW (Loshchilov and Hutter 2019); weight_decay is apart from the gradient.",
      1e-2);
  row.shrinks_weights = true;
  return row;
}

}  // namespace epl
