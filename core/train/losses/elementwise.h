// What the losses that compare element by element share.
#pragma once

#include "core/train/loss.h"

namespace epl::losses {

// The target, of the output's type.
inline Result<Var> target_like_output(LossBuilder& l) {
  const TensorType type = l.output.type();
  if (l.wanted_target() && *l.wanted_target() != type) {
    return invalid("target ", l.wanted_target()->text(), " must be of the output's type ", type.text());
  }
  return l.target(type);
}

}  // namespace epl::losses
