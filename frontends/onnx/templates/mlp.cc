// A multilayer perceptron with the names and the initial weights of PyTorch's Linear modules in a Sequential: uniform within
// one over the square root of a layer's inputs.
#include <cmath>

#include "core/ir/template.h"
#include "frontends/onnx/writer.h"

namespace epl {

EPL_TEMPLATE(mlp) {
  return {.doc = "linear layers with ReLU between: x f32[batch, inputs] -> logits f32[batch, outputs]; `layers` hidden ones of `width`",
          .options = {{"inputs", int64_t{784}}, {"width", int64_t{512}}, {"layers", int64_t{2}}, {"outputs", int64_t{10}}, {"seed", int64_t{0}}},
          .write = [](const Attributes& o, const std::string& path) -> Status {
            for (const char* name : {"inputs", "width", "outputs"}) {
              if (o.integer(name) < 1 || o.integer(name) > (int64_t{1} << 31)) return invalid("template mlp: ", name, " is ", o.integer(name), "; it must be positive");
            }
            const int64_t layers = o.integer("layers");
            if (layers < 0 || layers > 10000) return invalid("template mlp: layers is ", layers, "; 0 to 10000 hidden layers can be written");
            const uint64_t seed = static_cast<uint64_t>(o.integer("seed"));
            onnx::ModelWriter w("mlp");
            std::string x = w.input({"x", DType::f32, {{-1, "batch"}, {o.integer("inputs"), ""}}});
            int64_t in = o.integer("inputs");
            for (int64_t layer = 0; layer <= layers; ++layer) {
              const bool last = layer == layers;
              const int64_t out = last ? o.integer("outputs") : o.integer("width");
              const std::string name = cat(2 * layer);   // a ReLU lies between two layers
              const double bound = 1.0 / std::sqrt(static_cast<double>(in));
              auto draw = [&](const std::string& tail, const Shape& shape) {
                return w.initializer(name + tail, {DType::f32, shape}, [=] { return onnx::uniform_weight(shape, bound, seed, name + tail); });
              };
              x = w.node("Gemm", {x, draw(".weight", {out, in}), draw(".bias", {out})}, {last ? "logits" : name}, {{"transB", int64_t{1}}});
              if (!last) x = w.node("Relu", {x}, {cat(2 * layer + 1)});
              in = out;
            }
            w.output({"logits", DType::f32, {{-1, "batch"}, {o.integer("outputs"), ""}}});
            return w.save(path);
          }};
}

}  // namespace epl
