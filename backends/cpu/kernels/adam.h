// The step of Adam and AdamW in one pass: inner loop, once per processor level.
#pragma once

#include <cstdint>

namespace epl::cpu {

// What is the same for every element; float32 as the op's expression computes it.
struct AdamNumbers {
  float decay;         // added to the gradient times the parameter; 0 for none
  float keep;          // the parameter is first multiplied by this; 1 for AdamW without decay, and for Adam
  float mean_share;    // 1 - beta1
  float square_keep;   // beta2
  float square_share;  // 1 - beta2
  float spread;        // 1 / sqrt(correction2)
  float epsilon;
  float rate;  // lr / correction1
};

// Elements [0, n). A result may lie over an operand, element over element.
using AdamLoop = void (*)(const AdamNumbers& numbers, const float* parameter, const float* gradient, const float* mean,
                          const float* square, float* parameter_new, float* mean_new, float* square_new, int64_t n);

namespace v3 {
AdamLoop adam_loop();
}
namespace v4 {
AdamLoop adam_loop();
}

}  // namespace epl::cpu
