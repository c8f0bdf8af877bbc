// GPT-2 (Radford et al. 2019) at any size, with the names and the initial weights of the transformers package: normal with
// deviation 0.02, the projections back into the residual stream smaller by sqrt(2 layers), biases zero.
#include <cmath>

#include "core/ir/template.h"
#include "frontends/onnx/writer.h"

namespace epl {
namespace {

using onnx::ModelWriter;

struct Sizes {
  int64_t layers, width, heads, context, vocab;
  uint64_t seed;
};

class Gpt2 {
 public:
  explicit Gpt2(const Sizes& sizes) : s_(sizes), w_("gpt2") {}

  Status write(const std::string& path) {
    std::string ids = w_.input({"input_ids", DType::i64, {{-1, "batch"}, {s_.context, ""}}});
    std::string table = weight("transformer.wte.weight", {s_.vocab, s_.width}, 0.02);
    std::string positions = weight("transformer.wpe.weight", {s_.context, s_.width}, 0.02);
    std::string x = w_.node("Gather", {table, ids}, {"transformer.wte"}, {{"axis", int64_t{0}}});
    x = w_.node("Add", {x, positions}, {"transformer.wpe"});
    for (int64_t layer = 0; layer < s_.layers; ++layer) x = block(x, cat("transformer.h.", layer));
    x = norm(x, "transformer.ln_f");
    std::string across = w_.node("Transpose", {table}, {"lm_head.weight"}, {{"perm", Ints{1, 0}}});
    w_.node("MatMul", {x, across}, {"logits"});
    w_.output({"logits", DType::f32, {{-1, "batch"}, {s_.context, ""}, {s_.vocab, ""}}});
    return w_.save(path);
  }

 private:
  std::string weight(const std::string& name, const Shape& shape, double deviation) {
    return w_.initializer(name, {DType::f32, shape}, [=, seed = s_.seed] { return onnx::normal_weight(shape, deviation, seed, name); });
  }
  std::string filled(const std::string& name, int64_t size, float value) {
    return w_.initializer(name, {DType::f32, {size}}, [=] { return onnx::filled_weight({size}, value); });
  }
  std::string norm(const std::string& x, const std::string& name) {
    return w_.node("LayerNormalization", {x, filled(name + ".weight", s_.width, 1), filled(name + ".bias", s_.width, 0)}, {name},
                   {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  }
  std::string linear(const std::string& x, const std::string& name, int64_t in, int64_t out, double deviation = 0.02) {
    std::string product = w_.node("MatMul", {x, weight(name + ".weight", {in, out}, deviation)}, {name + ".product"});
    return w_.node("Add", {product, filled(name + ".bias", out, 0)}, {name});
  }

  std::string block(const std::string& x, const std::string& name) {
    const double small = 0.02 / std::sqrt(2.0 * static_cast<double>(s_.layers));
    std::string all = linear(norm(x, name + ".ln_1"), name + ".attn.c_attn", s_.width, 3 * s_.width);
    std::string q = name + ".attn.q", k = name + ".attn.k", v = name + ".attn.v";
    w_.node("Split", {all}, {q, k, v}, {{"axis", int64_t{2}}, {"num_outputs", int64_t{3}}});
    std::string mixed = w_.node("Attention", {q, k, v}, {name + ".attn"}, {{"q_num_heads", s_.heads}, {"kv_num_heads", s_.heads}, {"is_causal", int64_t{1}}});
    std::string middle = w_.node("Add", {x, linear(mixed, name + ".attn.c_proj", s_.width, s_.width, small)}, {name + ".residual"});
    std::string wide = linear(norm(middle, name + ".ln_2"), name + ".mlp.c_fc", s_.width, 4 * s_.width);
    wide = w_.node("Gelu", {wide}, {name + ".mlp.act"}, {{"approximate", std::string("tanh")}});
    return w_.node("Add", {middle, linear(wide, name + ".mlp.c_proj", 4 * s_.width, s_.width, small)}, {name});
  }

  Sizes s_;
  ModelWriter w_;
};

}  // namespace

EPL_TEMPLATE(gpt2) {
  return {.doc = "GPT-2 with tied embeddings: input_ids i64[batch, context] -> logits f32[batch, context, vocab]",
          .options = {{"layers", int64_t{12}}, {"width", int64_t{768}}, {"heads", int64_t{12}}, {"context", int64_t{1024}}, {"vocab", int64_t{50257}}, {"seed", int64_t{0}}},
          .write = [](const Attributes& o, const std::string& path) -> Status {
            const Sizes sizes{o.integer("layers"), o.integer("width"), o.integer("heads"), o.integer("context"), o.integer("vocab"), static_cast<uint64_t>(o.integer("seed"))};
            for (const char* name : {"layers", "width", "heads", "context", "vocab"}) {
              if (o.integer(name) < 1 || o.integer(name) > (int64_t{1} << 31)) return invalid("template gpt2: ", name, " is ", o.integer(name), "; it must be positive");
            }
            if (sizes.width % sizes.heads != 0) return invalid("template gpt2: width ", sizes.width, " is no multiple of heads ", sizes.heads);
            return Gpt2(sizes).write(path);
          }};
}

}  // namespace epl
