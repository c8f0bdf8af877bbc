// Steps of optimizers with states in bf16, rounded at random: inner loops, once per processor level.
#pragma once

#include <cstdint>

#include "core/base/update_step.h"

namespace epl::cpu {

// Elements [0, n), which stand one behind the other in one row of the tensor, from number `element` on
// (core/base/random_rounding.h). A result may lie over an operand, element over element.
struct RoundedUpdate {
  uint64_t key, element;
  const float *scalars, *parameter, *gradient;
  float* parameter_new;
  const uint16_t* states[2];
  uint16_t* states_new[2];
  int64_t n;
};
template <class Step> using RoundedLoop = void (*)(const Step& step, const RoundedUpdate& update);

namespace v3 {
template <class Step> RoundedLoop<Step> rounded_loop();
}
namespace v4 {
template <class Step> RoundedLoop<Step> rounded_loop();
}

}  // namespace epl::cpu
