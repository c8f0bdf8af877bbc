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

// The sum is over the whole batch and the count is the global one, so that no cut of the batch changes the result.
inline Var mean_of_all(const Var& x) {
  if (!x) return {};
  Ints axes;
  for (int i = 0; i < x.ndim(); ++i) axes.push_back(i);
  return x.builder().mean(x, std::move(axes), false);
}

}  // namespace epl::losses
