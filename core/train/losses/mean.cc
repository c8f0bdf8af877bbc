// The mean that every loss is which gives its terms.
#include "core/train/loss.h"

namespace epl {

Var loss_mean(const Loss& loss) {
  if (!loss.terms) return {};
  Builder& b = loss.terms.builder();
  Ints axes;
  for (int i = 0; i < loss.terms.ndim(); ++i) axes.push_back(i);
  // Of no sample: a mean over nothing, as that of samples none of which counts.
  if (!loss.weights && loss.terms.type().elements() == 0)
    return b.emit("counted_mean", {b.sum(loss.terms, axes, false), b.scalar(loss.terms.dtype(), 0)});
  if (!loss.weights) return axes.empty() ? loss.terms : b.mean(loss.terms, std::move(axes), false);
  if (axes.empty()) return b.emit("counted_mean", {loss.terms, loss.weights});
  return b.emit("counted_mean", {b.sum(loss.terms, axes, false), b.sum(loss.weights, axes, false)});
}

}  // namespace epl
