// What the optimizer rows share: options, scalars.
#pragma once

#include "core/base/math.h"
#include "core/train/optimizer.h"

namespace epl::optimizers {

// The options that all have.
inline Option lr_option(double value) {
  return {.name = "lr", .value = value, .doc = "learning rate", .range = at_least(0)};
}
inline Option weight_decay_option(double value) {
  return {
      .name = "weight_decay", .value = value, .doc = "how strongly weights are drawn to zero", .range = at_least(0)};
}
inline Option eps_option(double value) {
  return {.name = "eps", .value = value, .doc = "added to what the step is divided by", .range = at_least(0)};
}

// Of rows that keep states. The op of bf16 is that of the row with `_bf16` behind its name
// (core/ops/optimizer_bf16.cc).
inline Option state_type_option() {
  return {.name = "state_type",
          .value = std::string("f32"),
          .doc = "how states are stored; bf16: in half the bytes, rounded at random so that their mean is kept",
          .words = {"f32", "bf16"}};
}

inline double learning_rate(const Attributes&, double lr, int64_t) { return lr; }

template <int index> double bias_correction(const Attributes& options, double, int64_t step) {
  const double beta = std::get<Doubles>(*options.find("betas"))[index];
  return 1 - math::power(beta, step + 1);
}

inline Result<Attributes> adam_attributes(const Attributes& options) {
  const Doubles& betas = std::get<Doubles>(*options.find("betas"));
  if (betas.size() != 2) return invalid("option betas holds two numbers, got ", betas.size());
  return Attributes{{"beta1", betas[0]},
                    {"beta2", betas[1]},
                    {"epsilon", options.number("eps")},
                    {"weight_decay", options.number("weight_decay")}};
}

// Adam's options, states and scalars; AdamW differs in its step and in the default of weight_decay.
inline OptimizerRow adam_row(std::string op, std::string doc, double decay) {
  return {.doc = std::move(doc),
          .options = {lr_option(1e-3),
                      {.name = "betas",
                       .value = Doubles{0.9, 0.999},
                       .doc = "how much of the means of the gradients and of their squares a step keeps",
                       .range = {.from = 0, .to = 1, .without_to = true}},
                      eps_option(1e-8),
                      weight_decay_option(decay),
                      state_type_option()},
          .states = {"mean", "square"},
          .op = std::move(op),
          .scalars = {{"lr", learning_rate},
                      {"bias_correction1", bias_correction<0>},
                      {"bias_correction2", bias_correction<1>}},
          .attributes = adam_attributes};
}

}  // namespace epl::optimizers
