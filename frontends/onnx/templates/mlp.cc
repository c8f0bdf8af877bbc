// Fully connected layers with an activation between them.
#include <cmath>

#include "core/base/shown.h"
#include "core/frontend/template.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

// x f32[batch, sizes[0]] -> logits f32[batch, sizes.back()]. Names are those of a torch.nn.Sequential called `net`;
// weights and biases are uniform in +-1/sqrt(inputs), torch.nn.Linear's start.
Status write_mlp(const Attributes& options, const std::string& path, const FileHook& hook) {
  const Ints& sizes = options.ints("sizes");
  if (sizes.size() < 2) return invalid("option sizes lists at least the sizes of input and output, got ", sizes.size());
  for (int64_t size : sizes) {
    if (size < 1 || size > INT32_MAX) return invalid("option sizes holds ", size, "; a layer has 1 unit or more");
  }
  double numbers = 0;
  for (size_t i = 0; i + 1 < sizes.size(); ++i)
    numbers += static_cast<double>(sizes[i]) * static_cast<double>(sizes[i + 1]);
  EPL_TRY(check_template_size(numbers, static_cast<int64_t>(sizes.size())));
  const std::string& activation = options.text("activation");
  const std::vector<std::pair<std::string, std::string>> activations = {
      {"relu", "Relu"}, {"tanh", "Tanh"}, {"gelu", "Gelu"}};
  std::string op;
  for (const auto& [name, onnx_name] : activations) {
    if (name == activation) op = onnx_name;
  }
  if (op.empty()) return invalid("option activation is ", shown(activation, 200), "; it is relu, tanh or gelu");
  const auto seed = static_cast<uint64_t>(options.integer("seed"));

  ModelWriter model("mlp");
  std::string x = model.input("x", DType::f32, {"batch", sizes.front()});
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    const std::string name = cat("net.", 2 * i);
    const double bound = 1 / std::sqrt(static_cast<double>(sizes[i]));
    const bool last = i + 2 == sizes.size();
    const std::string weight = name + ".weight", bias = name + ".bias";
    model.initializer(weight, {DType::f32, {sizes[i + 1], sizes[i]}}, uniform_weights(seed, weight, bound));
    model.initializer(bias, {DType::f32, {sizes[i + 1]}}, uniform_weights(seed, bias, bound));
    x = model.node(last ? "logits" : name, "Gemm", {x, weight, bias}, {{"transB", int64_t{1}}});
    if (!last) x = model.node(cat("net.", 2 * i + 1), op, {x});
  }
  model.output(x, DType::f32, {"batch", sizes.back()});
  model.metadata("epl.template", cat("mlp sizes=", sizes, " activation=", activation, " seed=", seed));
  return model.write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(mlp) {
  return {.doc = "Fully connected layers, x f32[batch, first size] to logits f32[batch, last size].",
          .options = {{"sizes", Ints{784, 512, 512, 10}}, {"activation", std::string("relu")}, {"seed", int64_t{1}}},
          .write = onnx::write_mlp};
}

}  // namespace epl
