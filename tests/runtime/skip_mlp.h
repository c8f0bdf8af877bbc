// A small model with a skip connection, and batches of samples for it, to be spread over ranks in every way.
#pragma once

#include <string_view>
#include <vector>

#include "core/base/philox.h"
#include "core/base/tensor.h"

namespace epl {

inline constexpr std::string_view skip_mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,16] = param
  w3: f32[16,4] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  g: f32[8,16] = matmul(a, w2)
  skip: f32[8,16] = add(g, a)
  r: f32[8,16] = relu(skip)
  y: f32[8,4] = matmul(r, w3)
  output y = y
}
)";

// The inputs and the target classes of a step; one target does not count.
inline std::vector<Tensor> skip_mlp_batch(int step) {
  Tensor x(TensorType{DType::f32, {8, 12}}), target(TensorType{DType::i64, {8}});
  for (int i = 0; i < 96; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < 8; ++i) target.set_int(i, i == 3 ? -100 : (i + step) % 4);
  return {x, target};
}

}  // namespace epl
