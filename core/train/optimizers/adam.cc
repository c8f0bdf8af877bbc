#include "core/train/optimizers/common.h"

namespace epl {

EPL_OPTIMIZER(adam) {
  return optimizers::adam_row(
      "adam", "Adam as torch.optim.Adam (Kingma and Ba 2015); weight_decay is added to the gradient (L2).", 0);
}

}  // namespace epl
