// GPT-2 (Radford et al. 2019): pre-norm blocks, learned positions, causal attention, GELU, a head tied to the
// embedding.
#include <array>
#include <cmath>

#include "core/base/shown.h"
#include "core/frontend/template.h"
#include "frontends/onnx/templates/attention.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

struct Size {
  int64_t layers, width, heads, context, vocab;
  bool symbolic;  // the sequence is a symbol, up to `context` tokens; else it is `context` tokens
  uint64_t seed;
};

Result<Size> read_size(const Attributes& options) {
  Size size{};
  for (auto [name, to] :
       {std::pair{"layers", &size.layers}, std::pair{"width", &size.width}, std::pair{"heads", &size.heads},
        std::pair{"context", &size.context}, std::pair{"vocab", &size.vocab}}) {
    EPL_ASSIGN(*to, size_option(options, name));
  }
  if (size.width % size.heads != 0)
    return invalid("option width is ", size.width, ", no multiple of heads, ", size.heads);
  const std::string& sequence = options.text("sequence");
  if (sequence != "fixed" && sequence != "symbolic")
    return invalid("option sequence is ", shown(sequence, 200), "; it is fixed or symbolic");
  size.symbolic = sequence == "symbolic";
  size.seed = static_cast<uint64_t>(options.integer("seed"));
  const double width = static_cast<double>(size.width), context = static_cast<double>(size.context);
  EPL_TRY(check_template_size(12 * static_cast<double>(size.layers) * width * width +
                                  (static_cast<double>(size.vocab) + context) * width + context * context,
                              size.layers));
  return size;
}

// Names are those of Hugging Face; linear layers hold their weights as [inputs, outputs], as there.
class Gpt2 {
 public:
  explicit Gpt2(const Size& size) : size_(size) {}

  Status write(const std::string& path, const FileHook& hook) {
    const WriterDim sequence = size_.symbolic ? WriterDim("sequence") : WriterDim(size_.context);
    const std::string ids = m_.input("input_ids", DType::i64, {"batch", sequence});
    const std::string tokens = normal("transformer.wte.weight", {size_.vocab, size_.width}, 0.02);
    std::string positions = normal("transformer.wpe.weight", {size_.context, size_.width}, 0.02);
    mask_ = m_.initializer("causal_mask", {DType::boolean, {size_.context, size_.context}},
                           [n = size_.context](epl::Tensor& out) {
                             for (int64_t i = 0; i < n; ++i) {
                               for (int64_t j = 0; j <= i; ++j) out.set(i * n + j, 1);
                             }
                           });
    if (size_.symbolic) {
      const std::string shape = m_.node("shape", "Shape", {ids});
      const std::string length = m_.node("length", "Slice", {shape, m_.ints({1}), m_.ints({2})});
      const std::string lengths = m_.node("lengths", "Concat", {length, length}, {{"axis", int64_t{0}}});
      positions = m_.node("positions", "Slice", {positions, m_.ints({0}), length, m_.ints({0})});
      mask_ = m_.node("mask", "Slice", {mask_, m_.ints({0, 0}), lengths, m_.ints({0, 1})});
    }
    std::string x = m_.node("embedded", "Gather", {tokens, ids});
    x = m_.node("hidden", "Add", {x, positions});
    for (int64_t layer = 0; layer < size_.layers; ++layer) x = block(cat("transformer.h.", layer), x);
    x = norm("transformer.ln_f", x);
    const std::string head = m_.node("lm_head", "Transpose", {tokens}, {{"perm", Ints{1, 0}}});
    x = m_.node("logits", "MatMul", {x, head});
    m_.output(x, DType::f32, {"batch", sequence, size_.vocab});
    m_.metadata("epl.template", cat("gpt2 layers=", size_.layers, " width=", size_.width, " heads=", size_.heads,
                                    " context=", size_.context, " vocab=", size_.vocab, " seed=", size_.seed));
    return m_.write(path, hook);
  }

 private:
  std::string normal(const std::string& name, Shape shape, double deviation) {
    return m_.initializer(name, {DType::f32, std::move(shape)}, normal_weights(size_.seed, name, deviation));
  }
  std::string constant(const std::string& name, double value, int64_t n) {
    return m_.initializer(name, {DType::f32, {n}}, constant_weights(value));
  }

  std::string norm(const std::string& name, const std::string& x) {
    const std::string weight = constant(name + ".weight", 1, size_.width),
                      bias = constant(name + ".bias", 0, size_.width);
    return m_.node(name, "LayerNormalization", {x, weight, bias}, {{"axis", int64_t{-1}}, {"epsilon", 1e-5}});
  }

  std::string linear(const std::string& name, const std::string& x, int64_t in, int64_t out, double deviation) {
    const std::string product =
        m_.node(name + ".product", "MatMul", {x, normal(name + ".weight", {in, out}, deviation)});
    return m_.node(name, "Add", {product, constant(name + ".bias", 0, out)});
  }

  std::string block(const std::string& name, const std::string& x) {
    // Every block adds to the stream twice, so its last projections start smaller by the root of that number.
    const double residual = 0.02 / std::sqrt(2.0 * static_cast<double>(size_.layers));
    const std::string attended = attention(name + ".attn", norm(name + ".ln_1", x), residual);
    const std::string middle = m_.node(name + ".attn.residual", "Add", {x, attended});
    std::string y = norm(name + ".ln_2", middle);
    y = linear(name + ".mlp.c_fc", y, size_.width, 4 * size_.width, 0.02);
    y = m_.node(name + ".mlp.act", "Gelu", {y}, {{"approximate", std::string("tanh")}});
    y = linear(name + ".mlp.c_proj", y, 4 * size_.width, size_.width, residual);
    return m_.node(name, "Add", {middle, y});
  }

  std::string attention(const std::string& name, const std::string& x, double residual) {
    const int64_t each = size_.width / size_.heads;
    const std::string joined = linear(name + ".c_attn", x, size_.width, 3 * size_.width, 0.02);
    const auto parts =
        m_.node(name + ".split", "Split", {joined}, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{3}}}, 3);
    std::array<std::string, 3> heads;
    const char* const names[] = {".query", ".key", ".value"};
    for (size_t i = 0; i < 3; ++i) {
      const std::string part = name + names[i];
      const std::string split = m_.node(part + ".heads", "Reshape", {parts[i], m_.ints({0, 0, size_.heads, each})});
      heads[i] = m_.node(part, "Transpose", {split}, {{"perm", i == 1 ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3}}});
    }
    const std::string y = masked_attention(m_, name, heads, mask_, size_.heads, each);
    return linear(name + ".c_proj", y, size_.width, size_.width, residual);
  }

  const Size size_;
  ModelWriter m_{"gpt2"};
  std::string mask_;
};

Status write_gpt2(const Attributes& options, const std::string& path, const FileHook& hook) {
  EPL_ASSIGN(Size size, read_size(options));
  return Gpt2(size).write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(gpt2) {
  return {.doc =
              "GPT-2 of any size, input_ids i64[batch, sequence] to logits f32[batch, sequence, vocab]. sequence: "
              "fixed (context "
              "tokens) or symbolic (up to context tokens).",
          .options = {{"layers", int64_t{4}},
                      {"width", int64_t{128}},
                      {"heads", int64_t{4}},
                      {"context", int64_t{64}},
                      {"vocab", int64_t{256}},
                      {"sequence", std::string("fixed")},
                      {"seed", int64_t{1}}},
          .write = onnx::write_gpt2};
}

}  // namespace epl
