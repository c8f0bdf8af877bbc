// What the optimizer rows share: checks of options, scalars.
#pragma once

#include <limits>

#include "core/base/math.h"
#include "core/train/optimizer.h"

namespace epl::optimizers {

// The number, if it lies in [low, high).
inline Result<double> number_in(const Attributes& options, std::string_view name, double low,
                                double high = std::numeric_limits<double>::infinity()) {
  const double value = options.number(name);
  if (!(value >= low && value < high))
    return invalid("option ", name, " = ", value, " is not in [", low, ", ", high, ")");
  return value;
}

// The options that all have.
inline Option lr_option(double value) { return {.name = "lr", .value = value, .doc = "learning rate"}; }
inline Option weight_decay_option(double value) {
  return {.name = "weight_decay", .value = value, .doc = "how strongly weights are drawn to zero"};
}
inline Option eps_option(double value) {
  return {.name = "eps", .value = value, .doc = "added to what the step is divided by"};
}

inline double learning_rate(const Attributes&, double lr, int64_t) { return lr; }

template <int index> double bias_correction(const Attributes& options, double, int64_t step) {
  const double beta = std::get<Doubles>(*options.find("betas"))[index];
  return 1 - math::power(beta, step + 1);
}

inline Result<Attributes> adam_attributes(const Attributes& options) {
  const Doubles& betas = std::get<Doubles>(*options.find("betas"));
  if (betas.size() != 2) return invalid("option betas holds two numbers, got ", betas.size());
  for (double beta : betas) {
    if (!(beta >= 0 && beta < 1)) return invalid("option betas: ", beta, " is not in [0, 1)");
  }
  EPL_ASSIGN(double epsilon, number_in(options, "eps", 0));
  EPL_ASSIGN(double weight_decay, number_in(options, "weight_decay", 0));
  return Attributes{{"beta1", betas[0]}, {"beta2", betas[1]}, {"epsilon", epsilon}, {"weight_decay", weight_decay}};
}

// Adam's options, states and scalars; AdamW differs in its step and in the default of weight_decay.
inline OptimizerRow adam_row(std::string op, std::string doc, double decay) {
  return {.doc = std::move(doc),
          .options = {lr_option(1e-3),
                      {.name = "betas",
                       .value = Doubles{0.9, 0.999},
                       .doc = "how much of the means of the gradients and of their squares a step keeps"},
                      eps_option(1e-8),
                      weight_decay_option(decay)},
          .states = {"mean", "square"},
          .op = std::move(op),
          .scalars = {{"lr", learning_rate},
                      {"bias_correction1", bias_correction<0>},
                      {"bias_correction2", bias_correction<1>}},
          .attributes = adam_attributes};
}

}  // namespace epl::optimizers
