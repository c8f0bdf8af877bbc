// T5 (Raffel et al. 2020): an encoder and a decoder of pre-norm blocks without biases, norms without a mean, positions
// as a bias of the scores that depends on the distance, and one table of tokens for both ends and the head.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/frontend/template.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

constexpr int64_t distance_buckets = 32, furthest_distance = 128;

struct T5Size {
  int64_t layers, width, heads, head, inner, context, target, vocab;
  uint64_t seed;
};

Result<T5Size> read_t5_size(const Attributes& options) {
  T5Size size{};
  for (auto [name, to] :
       {std::pair{"layers", &size.layers}, std::pair{"width", &size.width}, std::pair{"heads", &size.heads},
        std::pair{"head", &size.head}, std::pair{"inner", &size.inner}, std::pair{"context", &size.context},
        std::pair{"target", &size.target}, std::pair{"vocab", &size.vocab}}) {
    EPL_ASSIGN(*to, size_option(options, name));
  }
  size.seed = static_cast<uint64_t>(options.integer("seed"));
  const auto width = static_cast<double>(size.width), each = static_cast<double>(size.heads) * size.head;
  EPL_TRY(check_template_size(static_cast<double>(size.layers) * width * (12 * each + 4.0 * size.inner) +
                                  static_cast<double>(size.vocab) * width +
                                  static_cast<double>(size.context) * static_cast<double>(size.context) +
                                  static_cast<double>(size.target) * static_cast<double>(size.target),
                              2 * size.layers));
  return size;
}

// The bucket of a distance: one for each small one, then logarithmic ones. Of both directions each has half of them.
int64_t bucket_of(int64_t distance, bool both) {
  const int64_t count = both ? distance_buckets / 2 : distance_buckets, exact = count / 2;
  const int64_t first = both && distance > 0 ? count : 0;
  const int64_t far = both ? std::abs(distance) : std::max<int64_t>(-distance, 0);
  if (far < exact) return first + far;
  const double share = std::log(static_cast<double>(far) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(furthest_distance) / static_cast<double>(exact));
  return first + std::min(count - 1, exact + static_cast<int64_t>(share * static_cast<double>(count - exact)));
}

// Names are those of Hugging Face, and linear layers hold their weights as [outputs, inputs], as there.
class T5 {
 public:
  explicit T5(const T5Size& size) : size_(size) {}

  Status write(const std::string& path, const FileHook& hook) {
    const std::string ids = m_.input("input_ids", DType::i64, {"batch", size_.context});
    const std::string given = m_.input("decoder_input_ids", DType::i64, {"batch", size_.target});
    const std::string table =
        m_.initializer("shared.weight", {DType::f32, {size_.vocab, size_.width}}, drawn("shared.weight", 1));
    std::string x = m_.node("encoder.embedded", "Gather", {table, ids});
    const std::string bias = distance_bias("encoder", size_.context, true);
    for (int64_t layer = 0; layer < size_.layers; ++layer) {
      const std::string name = cat("encoder.block.", layer, ".layer.");
      x = attended(name + "0", "SelfAttention", x, "", bias);
      x = fed_forward(name + "1", x);
    }
    const std::string memory = norm("encoder.final_layer_norm", x);
    x = m_.node("decoder.embedded", "Gather", {table, given});
    const std::string causal = distance_bias("decoder", size_.target, false);
    for (int64_t layer = 0; layer < size_.layers; ++layer) {
      const std::string name = cat("decoder.block.", layer, ".layer.");
      x = attended(name + "0", "SelfAttention", x, "", causal);
      x = attended(name + "1", "EncDecAttention", x, memory, "");
      x = fed_forward(name + "2", x);
    }
    x = norm("decoder.final_layer_norm", x);
    x = m_.node("head.scaled", "Mul", {x, m_.number(1 / std::sqrt(static_cast<double>(size_.width)))});
    const std::string turned = m_.node("head.turned", "Transpose", {table}, {{"perm", Ints{1, 0}}});
    m_.output(m_.node("logits", "MatMul", {x, turned}), DType::f32, {"batch", size_.target, size_.vocab});
    m_.metadata("epl.template", cat("t5 layers=", size_.layers, " width=", size_.width, " heads=", size_.heads,
                                    " head=", size_.head, " inner=", size_.inner, " context=", size_.context,
                                    " target=", size_.target, " vocab=", size_.vocab, " seed=", size_.seed));
    return m_.write(path, hook);
  }

 private:
  ModelWriter::Fill drawn(const std::string& name, double deviation) {
    return normal_weights(size_.seed, name, deviation);
  }

  std::string linear(const std::string& name, const std::string& x, int64_t in, int64_t out, double deviation) {
    const std::string weight =
        m_.initializer(name + ".weight", {DType::f32, {out, in}}, drawn(name + ".weight", deviation));
    return m_.node(name, "MatMul", {x, m_.node(name + ".turned", "Transpose", {weight}, {{"perm", Ints{1, 0}}})});
  }

  // x over the root of the mean of its squares.
  std::string norm(const std::string& name, const std::string& x) {
    const std::string weight = m_.initializer(name + ".weight", {DType::f32, {size_.width}}, constant_weights(1));
    const std::string square = m_.node(name + ".square", "Mul", {x, x});
    const std::string mean = m_.node(name + ".mean", "ReduceMean", {square, m_.ints({-1})}, {{"keepdims", int64_t{1}}});
    const std::string root =
        m_.node(name + ".root", "Sqrt", {m_.node(name + ".above_0", "Add", {mean, m_.number(1e-6)})});
    return m_.node(name, "Mul", {m_.node(name + ".normal", "Div", {x, root}), weight});
  }

  // [1, heads, length, length], the same in all layers of a side. In the decoder later positions are not seen.
  std::string distance_bias(const std::string& side, int64_t length, bool both) {
    const std::string name = side + ".block.0.layer.0.SelfAttention.relative_attention_bias";
    const std::string weight = m_.initializer(name + ".weight", {DType::f32, {distance_buckets, size_.heads}},
                                              drawn(name + ".weight", 1 / std::sqrt(static_cast<double>(size_.width))));
    const std::string buckets =
        m_.initializer(side + ".buckets", {DType::i64, {length, length}}, [length, both](epl::Tensor& out) {
          for (int64_t i = 0; i < length * length; ++i) out.set_int(i, bucket_of(i % length - i / length, both));
        });
    std::string bias = m_.node(name, "Gather", {weight, buckets});
    bias = m_.node(name + ".turned", "Transpose", {bias}, {{"perm", Ints{2, 0, 1}}});
    bias = m_.node(name + ".of_all", "Unsqueeze", {bias, m_.ints({0})});
    if (both) return bias;
    const std::string seen =
        m_.initializer(side + ".seen", {DType::boolean, {length, length}}, [length](epl::Tensor& out) {
          for (int64_t i = 0; i < length * length; ++i) out.set_int(i, i % length <= i / length);
        });
    return m_.node(name + ".masked", "Where", {seen, bias, m_.number(std::numeric_limits<float>::lowest())});
  }

  std::string heads(const std::string& name, const std::string& x, double deviation, const Ints& order) {
    const std::string made = linear(name, x, size_.width, size_.heads * size_.head, deviation);
    const std::string split = m_.node(name + ".split", "Reshape", {made, m_.ints({0, 0, size_.heads, size_.head})});
    return m_.node(name + ".heads", "Transpose", {split}, {{"perm", order}});
  }

  // Adds attention to x, in `memory` if there is one. The scores are not scaled: weights of queries are drawn smaller.
  std::string attended(const std::string& name, const std::string& kind, const std::string& x,
                       const std::string& memory, const std::string& bias) {
    const std::string at = cat(name, ".", kind), h = norm(name + ".layer_norm", x), &from = memory.empty() ? h : memory;
    const double width = 1 / std::sqrt(static_cast<double>(size_.width)),
                 each = 1 / std::sqrt(static_cast<double>(size_.head)),
                 all = 1 / std::sqrt(static_cast<double>(size_.heads * size_.head));
    const std::string q = heads(at + ".q", h, width * each, {0, 2, 1, 3}),
                      k = heads(at + ".k", from, width, {0, 2, 3, 1}), v = heads(at + ".v", from, width, {0, 2, 1, 3});
    std::string scores = m_.node(at + ".scores", "MatMul", {q, k});
    if (!bias.empty()) scores = m_.node(at + ".placed", "Add", {scores, bias});
    const std::string weights = m_.node(at + ".softmax", "Softmax", {scores}, {{"axis", int64_t{-1}}});
    std::string y = m_.node(at + ".mixed", "MatMul", {weights, v});
    y = m_.node(at + ".transposed", "Transpose", {y}, {{"perm", Ints{0, 2, 1, 3}}});
    y = m_.node(at + ".joined", "Reshape", {y, m_.ints({0, 0, size_.heads * size_.head})});
    y = linear(at + ".o", y, size_.heads * size_.head, size_.width, all);
    return m_.node(name + ".residual", "Add", {x, y});
  }

  std::string fed_forward(const std::string& name, const std::string& x) {
    const std::string at = name + ".DenseReluDense";
    const double width = 1 / std::sqrt(static_cast<double>(size_.width)),
                 inner = 1 / std::sqrt(static_cast<double>(size_.inner));
    std::string y = linear(at + ".wi", norm(name + ".layer_norm", x), size_.width, size_.inner, width);
    y = linear(at + ".wo", m_.node(at + ".act", "Relu", {y}), size_.inner, size_.width, inner);
    return m_.node(name + ".residual", "Add", {x, y});
  }

  const T5Size size_;
  ModelWriter m_{"t5"};
};

Status write_t5(const Attributes& options, const std::string& path, const FileHook& hook) {
  EPL_ASSIGN(const T5Size size, read_t5_size(options));
  return T5(size).write(path, hook);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(t5) {
  return {.doc =
              "T5, an encoder and a decoder, input_ids i64[batch, context] and decoder_input_ids i64[batch, target] to "
              "logits f32[batch, target, vocab]. T5-base has layers=12, width=768, heads=12, head=64, inner=3072; "
              "T5-3B layers=24, width=1024, heads=32, head=128, inner=16384.",
          .options = {{"layers", int64_t{2}},
                      {"width", int64_t{128}},
                      {"heads", int64_t{4}},
                      {"head", int64_t{32}},
                      {"inner", int64_t{512}},
                      {"context", int64_t{64}},
                      {"target", int64_t{64}},
                      {"vocab", int64_t{256}},
                      {"seed", int64_t{1}}},
          .write = onnx::write_t5};
}

}  // namespace epl
