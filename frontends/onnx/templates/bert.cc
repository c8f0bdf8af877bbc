// BERT (Devlin et al. 2019) as a classifier: post-norm blocks, learned positions, attention in both directions to what
// a mask says is there, GELU, and a head on the first token.
#include <array>

#include "core/frontend/template.h"
#include "frontends/onnx/templates/attention.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

struct BertSize {
  int64_t layers, width, heads, context, vocab, classes;
  uint64_t seed;
};

Result<BertSize> read_bert_size(const Attributes& options) {
  BertSize size{};
  for (auto [name, to] :
       {std::pair{"layers", &size.layers}, std::pair{"width", &size.width}, std::pair{"heads", &size.heads},
        std::pair{"context", &size.context}, std::pair{"vocab", &size.vocab}, std::pair{"classes", &size.classes}}) {
    EPL_ASSIGN(*to, size_option(options, name));
  }
  if (size.width % size.heads != 0)
    return invalid("option width is ", size.width, ", no multiple of heads, ", size.heads);
  size.seed = static_cast<uint64_t>(options.integer("seed"));
  const auto width = static_cast<double>(size.width);
  EPL_TRY(check_template_size((12 * static_cast<double>(size.layers) + 1) * width * width +
                                  static_cast<double>(size.vocab + size.context + size.classes) * width,
                              size.layers));
  return size;
}

// Names are those of Hugging Face, and linear layers hold their weights as [outputs, inputs], as there.
class Bert {
 public:
  explicit Bert(const BertSize& size) : size_(size) {}

  Status write(const std::string& path, const FileHook& hook) {
    const std::string ids = m_.input("input_ids", DType::i64, {"batch", size_.context});
    const std::string attended = m_.input("attention_mask", DType::i64, {"batch", size_.context});
    const std::string there = m_.node("there", "Cast", {attended}, {{"to", int64_t{9}}});  // as booleans
    mask_ = m_.node("mask", "Reshape", {there, m_.ints({-1, 1, 1, size_.context})});
    const std::string embeddings = "bert.embeddings";
    const std::string words =
        m_.node("words", "Gather", {normal(embeddings + ".word_embeddings.weight", {size_.vocab, size_.width}), ids});
    const std::string positions = normal(embeddings + ".position_embeddings.weight", {size_.context, size_.width});
    std::string x = norm(embeddings + ".LayerNorm", m_.node("embedded", "Add", {words, positions}));
    for (int64_t layer = 0; layer < size_.layers; ++layer) x = block(cat("bert.encoder.layer.", layer), x);
    x = m_.node("first", "Gather", {x, first_token()}, {{"axis", int64_t{1}}});
    x = m_.node("pooled", "Tanh", {linear("bert.pooler.dense", x, size_.width, size_.width)});
    x = head("classifier", x);
    m_.output(x, DType::f32, {"batch", size_.classes});
    m_.metadata("epl.template", cat("bert layers=", size_.layers, " width=", size_.width, " heads=", size_.heads,
                                    " context=", size_.context, " vocab=", size_.vocab, " classes=", size_.classes,
                                    " seed=", size_.seed));
    return m_.write(path, hook);
  }

 private:
  std::string normal(const std::string& name, Shape shape) {
    return m_.initializer(name, {DType::f32, std::move(shape)}, normal_weights(size_.seed, name, 0.02));
  }
  std::string constant(const std::string& name, double value, int64_t n) {
    return m_.initializer(name, {DType::f32, {n}}, constant_weights(value));
  }
  std::string first_token() {
    return m_.initializer("first_token", {DType::i64, {}}, [](epl::Tensor&) {});  // 0
  }

  std::string norm(const std::string& name, const std::string& x) {
    const std::string weight = constant(name + ".weight", 1, size_.width),
                      bias = constant(name + ".bias", 0, size_.width);
    return m_.node(name, "LayerNormalization", {x, weight, bias}, {{"axis", int64_t{-1}}, {"epsilon", 1e-12}});
  }

  std::string linear(const std::string& name, const std::string& x, int64_t in, int64_t out) {
    const std::string turned =
        m_.node(name + ".turned", "Transpose", {normal(name + ".weight", {out, in})}, {{"perm", Ints{1, 0}}});
    const std::string product = m_.node(name + ".product", "MatMul", {x, turned});
    return m_.node(name, "Add", {product, constant(name + ".bias", 0, out)});
  }

  std::string head(const std::string& name, const std::string& x) {
    const std::string weight = normal(name + ".weight", {size_.classes, size_.width});
    return m_.node("logits", "Gemm", {x, weight, constant(name + ".bias", 0, size_.classes)}, {{"transB", int64_t{1}}});
  }

  std::string block(const std::string& name, const std::string& x) {
    std::string y =
        linear(name + ".attention.output.dense", attention(name + ".attention.self", x), size_.width, size_.width);
    const std::string middle =
        norm(name + ".attention.output.LayerNorm", m_.node(name + ".attention.residual", "Add", {y, x}));
    y = linear(name + ".intermediate.dense", middle, size_.width, 4 * size_.width);
    y = m_.node(name + ".intermediate.act", "Gelu", {y}, {{"approximate", std::string("none")}});
    y = linear(name + ".output.dense", y, 4 * size_.width, size_.width);
    return norm(name + ".output.LayerNorm", m_.node(name + ".residual", "Add", {y, middle}));
  }

  std::string attention(const std::string& name, const std::string& x) {
    const int64_t each = size_.width / size_.heads;
    std::array<std::string, 3> heads;
    const char* const names[] = {".query", ".key", ".value"};
    for (size_t i = 0; i < 3; ++i) {
      const std::string part = name + names[i];
      const std::string made = linear(part, x, size_.width, size_.width);
      const std::string split = m_.node(part + ".split", "Reshape", {made, m_.ints({0, 0, size_.heads, each})});
      const Ints order = i == 1 ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3};
      heads[i] = m_.node(part + ".heads", "Transpose", {split}, {{"perm", order}});
    }
    return masked_attention(m_, name, heads, mask_, size_.heads, each);
  }

  const BertSize size_;
  ModelWriter m_{"bert"};
  std::string mask_;
};

Status write_bert(const Attributes& options, const std::string& path, const FileHook& hook) {
  EPL_ASSIGN(const BertSize size, read_bert_size(options));
  return Bert(size).write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(bert) {
  return {.doc =
              "A BERT encoder as a classifier, input_ids and attention_mask i64[batch, context] to logits f32[batch, "
              "classes]. attention_mask: 1 where there is a token, 0 where a text has ended.",
          .options = {{"layers", int64_t{4}},
                      {"width", int64_t{128}},
                      {"heads", int64_t{4}},
                      {"context", int64_t{64}},
                      {"vocab", int64_t{256}},
                      {"classes", int64_t{2}},
                      {"seed", int64_t{1}}},
          .write = onnx::write_bert};
}

}  // namespace epl
