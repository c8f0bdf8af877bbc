#include "core/runtime/mean_loss.h"

namespace epl {
namespace {

// The samples' part of an output; all of it if the batch is full.
Tensor part_of(const Entry& entry, std::span<const Tensor> outputs, int port, int64_t samples) {
  const size_t i = static_cast<size_t>(port);
  return samples == entry.samples.batch
             ? outputs[i]
             : first_samples(outputs[i], entry.samples.outputs[i], entry.samples.batch, samples);
}

void add_all(ExactSum& sum, const Tensor& values) {
  const int64_t count = values.elements();
  for (int64_t i = 0; i < count; ++i) sum.add(values.get(i));
}

}  // namespace

std::vector<Tensor> MeanLoss::room(const Entry& evaluate) {
  std::vector<Tensor> out(evaluate.outputs.size());
  const auto want = [&](int port) {
    if (port >= 0) out[static_cast<size_t>(port)] = Tensor(evaluate.outputs[static_cast<size_t>(port)].global_type);
  };
  want(evaluate.loss_terms >= 0 ? evaluate.loss_terms : evaluate.loss_output);
  want(evaluate.loss_weights);
  want(evaluate.counted_output);
  return out;
}

void MeanLoss::add(const Entry& evaluate, std::span<const Tensor> outputs, int64_t samples) {
  if (evaluate.loss_terms < 0) {
    // The model's own mean of a batch: each of its samples counts the same, and none where the mean is over nothing.
    if (evaluate.counted_output >= 0 && outputs[static_cast<size_t>(evaluate.counted_output)].get(0) == 0) return;
    terms_.add(outputs[static_cast<size_t>(evaluate.loss_output)].get(0) * static_cast<double>(samples));
    weights_.add(static_cast<double>(samples));
    return;
  }
  const Tensor terms = part_of(evaluate, outputs, evaluate.loss_terms, samples);
  add_all(terms_, terms);
  if (evaluate.loss_weights >= 0) {
    add_all(weights_, part_of(evaluate, outputs, evaluate.loss_weights, samples));
  } else {
    weights_.add(static_cast<double>(terms.elements()));
  }
}

void MeanLoss::merge(const MeanLoss& other) {
  terms_.add(other.terms_);
  weights_.add(other.weights_);
}

double MeanLoss::value() const { return terms_.value() / weights_.value(); }

}  // namespace epl
