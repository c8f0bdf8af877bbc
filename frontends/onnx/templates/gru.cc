// A classifier of sequences: gated recurrent units (Cho et al. 2014) over embedded tokens, and a layer on the last
// state.
#include <cmath>

#include "core/frontend/template.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

struct GruSize {
  int64_t layers, width, hidden, context, vocab, classes;
  uint64_t seed;
};

Result<GruSize> read_gru_size(const Attributes& options) {
  GruSize size{};
  for (auto [name, to] :
       {std::pair{"layers", &size.layers}, std::pair{"width", &size.width}, std::pair{"hidden", &size.hidden},
        std::pair{"context", &size.context}, std::pair{"vocab", &size.vocab}, std::pair{"classes", &size.classes}}) {
    EPL_ASSIGN(*to, size_option(options, name));
  }
  size.seed = static_cast<uint64_t>(options.integer("seed"));
  const auto width = static_cast<double>(size.width), hidden = static_cast<double>(size.hidden);
  EPL_TRY(check_template_size(3 * hidden * (width + (2 * static_cast<double>(size.layers) - 1) * hidden) +
                                  static_cast<double>(size.vocab) * width + static_cast<double>(size.classes) * hidden,
                              size.layers));
  return size;
}

// The embedding is normal, all else uniform in +-1/sqrt(hidden), as of torch.nn.Embedding and torch.nn.GRU. The weights
// of a layer are those of the operator GRU: gates in the order update, reset, new, one direction.
Status write_gru(const Attributes& options, const std::string& path, const FileHook& hook) {
  EPL_ASSIGN(const GruSize size, read_gru_size(options));
  ModelWriter model("gru");
  const double bound = 1 / std::sqrt(static_cast<double>(size.hidden));
  const auto uniform = [&](const std::string& name, Shape shape) {
    return model.initializer(name, {DType::f32, std::move(shape)}, uniform_weights(size.seed, name, bound));
  };
  const std::string ids = model.input("input_ids", DType::i64, {"batch", size.context});
  const std::string table = model.initializer("embedding.weight", {DType::f32, {size.vocab, size.width}},
                                              normal_weights(size.seed, "embedding.weight", 1));
  std::string x = model.node("embedded", "Gather", {table, ids});
  x = model.node("by_time", "Transpose", {x}, {{"perm", Ints{1, 0, 2}}});
  int64_t in = size.width;
  for (int64_t layer = 0; layer < size.layers; ++layer) {
    const std::string name = cat("gru.", layer);
    const auto made = model.node(name, "GRU",
                                 {x, uniform(name + ".weight_ih", {1, 3 * size.hidden, in}),
                                  uniform(name + ".weight_hh", {1, 3 * size.hidden, size.hidden}),
                                  uniform(name + ".bias", {1, 6 * size.hidden})},
                                 {{"hidden_size", size.hidden}, {"linear_before_reset", int64_t{1}}}, 2);
    const bool last = layer + 1 == size.layers;
    x = last ? model.node("state", "Squeeze", {made[1], model.ints({0})})
             : model.node(name + ".states", "Squeeze", {made[0], model.ints({1})});
    in = size.hidden;
  }
  const std::string weight = uniform("fc.weight", {size.classes, size.hidden});
  x = model.node("logits", "Gemm", {x, weight, uniform("fc.bias", {size.classes})}, {{"transB", int64_t{1}}});
  model.output(x, DType::f32, {"batch", size.classes});
  model.metadata("epl.template",
                 cat("gru layers=", size.layers, " width=", size.width, " hidden=", size.hidden,
                     " context=", size.context, " vocab=", size.vocab, " classes=", size.classes, " seed=", size.seed));
  return model.write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(gru) {
  return {
      .doc =
          "Gated recurrent units over embedded tokens, input_ids i64[batch, context] to logits f32[batch, classes]. "
          "width: of the embedding. hidden: of the state.",
      .options = {{"layers", int64_t{1}},
                  {"width", int64_t{32}},
                  {"hidden", int64_t{64}},
                  {"context", int64_t{32}},
                  {"vocab", int64_t{256}},
                  {"classes", int64_t{2}},
                  {"seed", int64_t{1}}},
      .write = onnx::write_gru};
}

}  // namespace epl
