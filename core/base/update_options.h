// The formula of an optimizer's op with the attributes of a node. Not for files that are compiled for one level of
// processors: those take core/base/update_step.h alone.
#pragma once

#include "core/base/attributes.h"
#include "core/base/update_step.h"

namespace epl::update {

template <class Step> Step step_of(const Attributes& attributes);

template <> inline Sgd step_of(const Attributes& a) { return {a.number("weight_decay")}; }
template <> inline Momentum step_of(const Attributes& a) {
  return {a.number("momentum"), a.number("weight_decay"), a.flag("nesterov")};
}
template <> inline Rmsprop step_of(const Attributes& a) {
  return {a.number("alpha"), a.number("epsilon"), a.number("weight_decay")};
}
template <> inline Adagrad step_of(const Attributes& a) { return {a.number("epsilon"), a.number("weight_decay")}; }
template <> inline Adam step_of(const Attributes& a) {
  return {a.number("beta1"), a.number("beta2"), a.number("epsilon"), a.number("weight_decay")};
}
template <> inline Adamw step_of(const Attributes& a) {
  return {a.number("beta1"), a.number("beta2"), a.number("epsilon"), a.number("weight_decay")};
}

}  // namespace epl::update
