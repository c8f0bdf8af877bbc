#include "frontends/onnx/templates/attention.h"

#include <cmath>
#include <limits>

namespace epl::onnx {

std::string masked_attention(ModelWriter& model, const std::string& name, const std::array<std::string, 3>& heads,
                             const std::string& mask, int64_t count, int64_t size) {
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  std::string scores = model.node(name + ".scores", "MatMul", {heads[0], heads[1]});
  scores = model.node(name + ".scaled", "Mul", {scores, model.number(static_cast<float>(scale))});
  scores = model.node(name + ".masked", "Where", {mask, scores, model.number(std::numeric_limits<float>::lowest())});
  const std::string weights = model.node(name + ".softmax", "Softmax", {scores}, {{"axis", int64_t{-1}}});
  std::string y = model.node(name + ".mixed", "MatMul", {weights, heads[2]});
  y = model.node(name + ".transposed", "Transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
  return model.node(name + ".joined", "Reshape", {y, model.ints({0, 0, count * size})});
}

}  // namespace epl::onnx
