// A small model with a skip connection, and batches of samples for it, to be spread over ranks in every way.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/philox.h"
#include "core/base/tensor.h"
#include "core/base/text.h"

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

// The same with a draw for each element, so that a sample that goes to another rank's position shows.
inline constexpr std::string_view dropout_mlp = R"(graph mlp(x: f32[8,12] batch 0) {
  w1: f32[12,16] = param
  b1: f32[16] = param
  w2: f32[16,16] = param
  w3: f32[16,4] = param
  forward:
  h: f32[8,16] = matmul(x, w1)
  hb: f32[8,16] = add(h, b1)
  a: f32[8,16] = relu(hb)
  ad: f32[8,16], am: bool[8,16] = dropout(a) {ratio=0.3}
  g: f32[8,16] = matmul(ad, w2)
  skip: f32[8,16] = add(g, a)
  gd: f32[8,16], gm: bool[8,16] = dropout(skip) {ratio=0.3}
  r: f32[8,16] = relu(gd)
  y: f32[8,4] = matmul(r, w3)
  output y = y
}
)";

// One of these for so many samples.
inline std::string with_samples(std::string_view model, int samples) {
  std::string text(model);
  for (size_t at = 0; (at = text.find("[8,", at)) != std::string::npos; ++at)
    text.replace(at, 3, cat("[", samples, ","));
  return text;
}

// The inputs and the target classes, of which there are four, of a step; one target does not count.
inline std::vector<Tensor> skip_mlp_samples(int step, int samples, int width = 12) {
  Tensor x(TensorType{DType::f32, {samples, width}}), target(TensorType{DType::i64, {samples}});
  for (int i = 0; i < samples * width; ++i) x.set(i, philox_uniform(static_cast<uint64_t>(step), i) - 0.5);
  for (int i = 0; i < samples; ++i) target.set_int(i, i == 3 ? -100 : (i + step) % 4);
  return {x, target};
}
inline std::vector<Tensor> skip_mlp_batch(int step) { return skip_mlp_samples(step, 8); }

// Stage "first" of a strategy is what makes h and a, "second" the rest.
inline std::string two_stages(std::string_view first, std::string_view second) {
  return cat(R"("scopes": [{"name": "first", "match": ["h*", "a*"], )", first,
             R"(}, {"name": "second", "match": "*", )", second, "}]");
}

}  // namespace epl
