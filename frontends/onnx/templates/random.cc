// A small graph drawn from its seed, for those who compare: ways to cut the work of a step, devices, engines. It is put
// together from blocks, each a row below, over vectors, sequences and images, so that seeds differ in structure and not
// in numbers alone.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "core/base/philox.h"
#include "core/frontend/template.h"
#include "frontends/onnx/templates/initial_weights.h"

namespace epl::onnx {
namespace {

enum Kind : unsigned { vector = 1, sequence = 2, image = 4 };

// A value of the graph: [batch, width], [batch, length, width], or [batch, width, length, length].
struct Flow {
  std::string name;
  Kind kind = vector;
  int64_t width = 1, length = 1;
  bool fits(const Flow& other) const { return kind == other.kind && width == other.width && length == other.length; }
};

class RandomGraph {
 public:
  RandomGraph(uint64_t seed, bool mixes) : key_(random_key(seed, 0, "random graph")), seed_(seed), mixes_(mixes) {}

  Status write(int64_t blocks, const std::string& path, const FileHook& hook, std::string_view said) {
    Flow x = begin();
    if (blocks == 0) blocks = 2 + below(5);
    for (int64_t i = 0; i < blocks; ++i) {
      block_ = cat("b", i);
      earlier_.push_back(x);
      x = draw_block()(*this, x);
    }
    block_ = "head";
    finish(x);
    m_.metadata("epl.template", std::string(said));
    return m_.write(path, hook);
  }

  // --- What blocks are written with
  int64_t below(int64_t n) { return static_cast<int64_t>(philox_bits(key_, draws_++) % static_cast<uint64_t>(n)); }
  bool maybe() { return below(2) == 1; }
  template <class T, size_t n> const T& one_of(const T (&all)[n]) { return all[below(static_cast<int64_t>(n))]; }
  int64_t some_width() {
    static constexpr int64_t widths[] = {4, 6, 8, 12, 16};
    return one_of(widths);
  }

  std::string node(const std::string& part, const std::string& op, std::vector<std::string> inputs,
                   Attributes attributes = {}) {
    return m_.node(unique(part), op, std::move(inputs), std::move(attributes));
  }
  std::vector<std::string> nodes(const std::string& part, const std::string& op, std::vector<std::string> inputs,
                                 Attributes attributes, int outputs) {
    return m_.node(unique(part), op, std::move(inputs), std::move(attributes), outputs);
  }
  // Uniform, of a variance that keeps values near 1 through a sum of `inputs` terms.
  std::string weight(const std::string& part, Shape shape, int64_t inputs) {
    const std::string name = unique(part);
    return m_.initializer(name, {DType::f32, std::move(shape)},
                          uniform_weights(seed_, name, std::sqrt(1.5 / static_cast<double>(inputs))));
  }
  std::string constant(const std::string& part, double value, int64_t n) {
    return m_.initializer(unique(part), {DType::f32, {n}}, constant_weights(value));
  }
  std::string ints(const Ints& values) { return m_.ints(values); }
  std::string number(double value) { return m_.number(value); }
  std::string yes() {
    if (yes_.empty()) yes_ = m_.initializer("yes", {DType::boolean, {}}, constant_weights(1));
    return yes_;
  }
  std::string causal_mask(int64_t length) {
    return m_.initializer(unique("mask"), {DType::boolean, {length, length}}, [length](epl::Tensor& out) {
      for (int64_t i = 0; i < length * length; ++i) out.set(i, i % length <= i / length);
    });
  }

  std::string active(const std::string& x) {
    static const std::string ops[] = {"Relu", "Tanh", "Gelu", "Sigmoid", "Softplus", "Elu", "HardSwish", "Mish", "Sin"};
    return node("act", one_of(ops), {x});
  }
  // A product of the last dimension, as one of the ways in which it is exported.
  std::string linear(const std::string& part, const std::string& x, int64_t in, int64_t out, bool plain) {
    if (plain && maybe())
      return node(part, "Gemm", {x, weight(part + ".weight", {out, in}, in), weight(part + ".bias", {out}, 4 * in)},
                  {{"transB", int64_t{1}}});
    const std::string product = node(part + ".product", "MatMul", {x, weight(part + ".weight", {in, out}, in)});
    return maybe() ? node(part, "Add", {product, weight(part + ".bias", {out}, 4 * in)}) : product;
  }
  std::string linear(const std::string& part, const Flow& x, int64_t out) {
    return linear(part, x.name, x.width, out, x.kind == vector);
  }
  std::string normed(const Flow& x) {
    const std::string scale = constant("scale", 1, x.width);
    if (maybe()) return node("norm", "LayerNormalization", {x.name, scale, constant("shift", 0, x.width)});
    const std::string square = node("square", "Mul", {x.name, x.name});
    const std::string mean = node("mean", "ReduceMean", {square, ints({-1})}, {{"keepdims", int64_t{1}}});
    const std::string root = node("root", "Sqrt", {node("safe", "Add", {mean, number(1e-5)})});
    return node("norm", "Mul", {node("unit", "Div", {x.name, root}), scale});
  }
  std::string convolved(const Flow& x, int64_t out, int64_t size, int64_t stride, int64_t groups) {
    const int64_t pad = size / 2, in = x.width / groups;
    return node(
        "conv", "Conv",
        {x.name, weight("conv.weight", {out, in, size, size}, in * size * size), weight("conv.bias", {out}, 16)},
        {{"kernel_shape", Ints{size, size}},
         {"pads", Ints{pad, pad, pad, pad}},
         {"strides", Ints{stride, stride}},
         {"group", groups}});
  }
  // One of the values before of the same size; there is at least `x` itself.
  const Flow& earlier_like(const Flow& x) {
    std::vector<const Flow*> fitting;
    for (const Flow& one : earlier_) {
      if (one.fits(x)) fitting.push_back(&one);
    }
    return *fitting[static_cast<size_t>(below(static_cast<int64_t>(fitting.size())))];
  }
  // Another input of the model, joined to a vector.
  Flow with_side_input(Flow x) {
    if (side_.empty()) {
      side_width_ = some_width();
      side_ = m_.input("side", DType::f32, {"batch", side_width_});
    }
    const std::string joined = node("joined", "Concat", {x.name, side_}, {{"axis", int64_t{1}}});
    x.width += side_width_;
    x.name = joined;
    return x;
  }

 private:
  using Block = Flow (*)(RandomGraph&, Flow);
  struct Row {
    unsigned kinds;
    bool mixes;  // samples mix, so that micro-batches are refused
    Block write;
  };
  static const std::vector<Row>& rows();

  Block draw_block() {
    std::vector<Block> fitting;
    for (const Row& row : rows()) {
      if ((row.kinds & earlier_.back().kind) != 0 && (mixes_ || !row.mixes)) fitting.push_back(row.write);
    }
    return fitting[static_cast<size_t>(below(static_cast<int64_t>(fitting.size())))];
  }

  std::string unique(const std::string& part) {
    const std::string name = cat(block_, ".", part);
    const int64_t times = made_[name]++;
    return times == 0 ? name : cat(name, ".", times);
  }

  Flow begin() {
    block_ = "in";
    switch (below(4)) {
      case 0: {
        Flow x{"", vector, some_width(), 1};
        x.name = m_.input("x", DType::f32, {"batch", x.width});
        return x;
      }
      case 1: {
        Flow x{"", image, 1 + below(3), 6 + 2 * below(2)};
        x.name = m_.input("x", DType::f32, {"batch", x.width, x.length, x.length});
        return x;
      }
      case 2: {
        Flow x{"", sequence, some_width(), 3 + below(4)};
        x.name = m_.input("x", DType::f32, {"batch", x.length, x.width});
        return x;
      }
      default: {
        Flow x{"", sequence, some_width(), 3 + below(4)};
        const std::string ids = m_.input("ids", DType::i64, {"batch", x.length});
        vocab_ = 4 + below(9);
        table_ = weight("table", {vocab_, x.width}, 4);
        x.name = node("embedded", "Gather", {table_, ids});
        table_width_ = x.width;
        return x;
      }
    }
  }

  // Scores of at least 4 classes, for each sample or for each position of it.
  void finish(Flow x) {
    if (x.kind == image) x = flattened(x);
    const int64_t classes = 4 + below(6);
    std::vector<WriterDim> dims = {"batch"};
    if (x.kind == sequence) dims.emplace_back(x.length);
    if (!table_.empty() && x.kind == sequence && x.width == table_width_ && maybe()) {
      const std::string turned = node("turned", "Transpose", {table_}, {{"perm", Ints{1, 0}}});
      dims.emplace_back(vocab_);
      return m_.output(m_.node("scores", "MatMul", {x.name, turned}), DType::f32, dims);
    }
    dims.emplace_back(classes);
    m_.output(m_.node("scores", "Identity", {linear("out", x, classes)}), DType::f32, dims);
  }

  Flow flattened(const Flow& x) {
    const int64_t numbers = x.kind == image ? x.width * x.length * x.length : x.width * x.length;
    return {node("flat", "Flatten", {x.name}, {{"axis", int64_t{1}}}), vector, numbers, 1};
  }

  uint64_t key_, seed_, draws_ = 0;
  bool mixes_;
  ModelWriter m_{"random"};
  std::string block_, yes_, side_, table_;
  int64_t side_width_ = 0, vocab_ = 0, table_width_ = 0;
  std::vector<Flow> earlier_;
  std::map<std::string, int64_t> made_;
  friend struct Blocks;
};

struct Blocks {
  static Flow dense(RandomGraph& g, Flow x) {
    const int64_t out = g.some_width();
    x.name = g.active(g.linear("dense", x, out));
    x.width = out;
    return x;
  }

  static Flow residual(RandomGraph& g, Flow x) {
    Flow inner = x;
    if (g.maybe()) inner.name = g.normed(x);
    inner = dense(g, inner);
    x.name = g.node("sum", "Add", {x.name, g.linear("back", inner, x.width)});
    return x;
  }

  static Flow gated(RandomGraph& g, Flow x) {
    const int64_t out = g.some_width();
    const std::string gate = g.node("gate", "Sigmoid", {g.linear("gating", x, out)});
    x.name = g.node("gated", "Mul", {gate, g.linear("value", x, out)});
    x.width = out;
    return x;
  }

  static Flow norm(RandomGraph& g, Flow x) {
    x.name = g.normed(x);
    return x;
  }

  // A weight that is used twice, once as it is and once turned.
  static Flow tied(RandomGraph& g, Flow x) {
    const int64_t inner = g.some_width();
    const std::string w = g.weight("tied", {x.width, inner}, x.width);
    const std::string there = g.active(g.node("there", "MatMul", {x.name, w}));
    const std::string turned = g.node("turned", "Transpose", {w}, {{"perm", Ints{1, 0}}});
    x.name = g.node("sum", "Add", {x.name, g.node("back", "MatMul", {there, turned})});
    return x;
  }

  static Flow dropped(RandomGraph& g, Flow x) {
    x.name = g.node("dropped", "Dropout", {x.name, g.number(0.25), g.yes()});
    return x;
  }

  // Halves of the last dimension go apart and meet in the other order.
  static Flow halves(RandomGraph& g, Flow x) {
    if (x.width % 2 != 0) x = dense(g, x);
    const auto half = g.nodes("half", "Split", {x.name}, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}}, 2);
    x.name = g.node("joined", "Concat", {half[1], g.active(half[0])}, {{"axis", int64_t{-1}}});
    return x;
  }

  static Flow softmax(RandomGraph& g, Flow x) {
    const std::string share = g.node("share", "Softmax", {g.linear("score", x, x.width)}, {{"axis", int64_t{-1}}});
    x.name = g.node("weighed", "Mul", {share, x.name});
    return x;
  }

  static Flow centred(RandomGraph& g, Flow x) {
    const std::string op = g.maybe() ? "ReduceMean" : "ReduceMax";
    const std::string level = g.node("level", op, {x.name, g.ints({-1})}, {{"keepdims", int64_t{1}}});
    x.name = g.node("centred", "Sub", {x.name, level});
    return x;
  }

  // A value of long ago comes back.
  static Flow skip(RandomGraph& g, Flow x) {
    const Flow& other = g.earlier_like(x);
    Flow inner = dense(g, x);
    inner.name = g.linear("back", inner, x.width);
    x.name = g.node("sum", "Add", {other.name, inner.name});
    return x;
  }

  static Flow side(RandomGraph& g, Flow x) { return dense(g, g.with_side_input(x)); }

  // Products of each sample's numbers with one another.
  static Flow products(RandomGraph& g, Flow x) {
    if (x.width % 2 != 0 || x.width > 16) x = dense(g, x);
    const int64_t rows = 2, columns = x.width / 2;
    const std::string grid = g.node("grid", "Reshape", {x.name, g.ints({0, rows, columns})});
    const std::string turned = g.node("turned", "Transpose", {grid}, {{"perm", Ints{0, 2, 1}}});
    const std::string all = g.node("all", "MatMul", {turned, grid});
    const std::string flat = g.node("flat", "Flatten", {g.node("small", "Tanh", {all})}, {{"axis", int64_t{1}}});
    return {g.linear("mixed", flat, columns * columns, x.width, true), x.kind, x.width, 1};
  }

  static Flow batch_norm(RandomGraph& g, Flow x) {
    const auto out = g.nodes("batch_norm", "BatchNormalization",
                             {x.name, g.constant("scale", 1, x.width), g.constant("shift", 0, x.width),
                              g.constant("running_mean", 0, x.width), g.constant("running_var", 1, x.width)},
                             {{"training_mode", int64_t{1}}, {"momentum", 0.9}}, 3);
    x.name = out[0];
    return x;
  }

  static Flow attention(RandomGraph& g, Flow x) {
    const int64_t heads = x.width % 2 == 0 && g.maybe() ? 2 : 1, each = x.width / heads;
    const bool causal = g.maybe();
    std::string parts[3];
    static const char* const names[] = {"query", "key", "value"};
    for (int i = 0; i < 3; ++i) {
      const std::string made = g.linear(names[i], x, x.width);
      const std::string split = g.node("split", "Reshape", {made, g.ints({0, 0, heads, each})});
      parts[i] = g.node("heads", "Transpose", {split}, {{"perm", i == 1 ? Ints{0, 2, 3, 1} : Ints{0, 2, 1, 3}}});
    }
    std::string scores = g.node("scores", "MatMul", {parts[0], parts[1]});
    scores = g.node("scaled", "Mul", {scores, g.number(1 / std::sqrt(static_cast<double>(each)))});
    if (causal)
      scores =
          g.node("masked", "Where", {g.causal_mask(x.length), scores, g.number(std::numeric_limits<float>::lowest())});
    const std::string share = g.node("share", "Softmax", {scores}, {{"axis", int64_t{-1}}});
    std::string y =
        g.node("mixed", "Transpose", {g.node("read", "MatMul", {share, parts[2]})}, {{"perm", Ints{0, 2, 1, 3}}});
    y = g.node("joined", "Reshape", {y, g.ints({0, 0, x.width})});
    Flow read = x;
    read.name = y;
    x.name = g.node("sum", "Add", {x.name, g.linear("out", read, x.width)});
    return x;
  }

  static Flow positions(RandomGraph& g, Flow x) {
    x.name = g.node("placed", "Add", {x.name, g.weight("positions", {x.length, x.width}, 4)});
    return x;
  }

  static Flow along_time(RandomGraph& g, Flow x) {
    const std::string turned = g.node("turned", "Transpose", {x.name}, {{"perm", Ints{0, 2, 1}}});
    const std::string y = g.node("conv", "Conv", {turned, g.weight("conv.weight", {x.width, x.width, 3}, 3 * x.width)},
                                 {{"kernel_shape", Ints{3}}, {"pads", Ints{1, 1}}});
    x.name = g.active(g.node("returned", "Transpose", {y}, {{"perm", Ints{0, 2, 1}}}));
    return x;
  }

  static Flow pooled_time(RandomGraph& g, Flow x) {
    static const std::string ops[] = {"ReduceMean", "ReduceMax", "ReduceSum"};
    return {g.node("pooled", g.one_of(ops), {x.name, g.ints({1})}, {{"keepdims", int64_t{0}}}), vector, x.width, 1};
  }

  static Flow flat(RandomGraph& g, Flow x) { return g.flattened(x); }

  static Flow convolution(RandomGraph& g, Flow x) {
    const int64_t groups = x.width % 2 == 0 && g.maybe() ? 2 : 1, out = 2 + 2 * g.below(4), size = g.maybe() ? 3 : 1;
    const int64_t stride = x.length % 2 == 0 && x.length > 2 && size == 3 && g.maybe() ? 2 : 1;
    return {g.active(g.convolved(x, out, size, stride, groups)), image, out, x.length / stride};
  }

  static Flow image_residual(RandomGraph& g, Flow x) {
    Flow inner = x;
    inner.name = g.active(g.convolved(x, x.width, 3, 1, 1));
    x.name = g.node("sum", "Add", {g.earlier_like(x).name, g.convolved(inner, x.width, 1, 1, 1)});
    return x;
  }

  static Flow pooled(RandomGraph& g, Flow x) {
    if (x.length % 2 != 0 || x.length < 4) return convolution(g, x);
    x.name = g.node("pooled", g.maybe() ? "MaxPool" : "AveragePool", {x.name},
                    {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
    x.length /= 2;
    return x;
  }

  static Flow gathered(RandomGraph& g, Flow x) {
    const Flow whole{g.node("whole", "GlobalAveragePool", {x.name}), image, x.width, 1};
    return g.flattened(whole);
  }

  static Flow patches(RandomGraph& g, Flow x) {
    const int64_t length = x.length * x.length;
    const std::string rows = g.node("rows", "Reshape", {x.name, g.ints({0, x.width, length})});
    const Flow turned{g.node("patches", "Transpose", {rows}, {{"perm", Ints{0, 2, 1}}}), sequence, x.width, length};
    return dense(g, turned);
  }
};

const std::vector<RandomGraph::Row>& RandomGraph::rows() {
  constexpr unsigned lines = vector | sequence;
  static const std::vector<Row> all = {{lines, false, Blocks::dense},
                                       {lines, false, Blocks::residual},
                                       {lines, false, Blocks::gated},
                                       {lines, false, Blocks::norm},
                                       {lines, false, Blocks::tied},
                                       {lines | image, false, Blocks::dropped},
                                       {lines, false, Blocks::halves},
                                       {lines, false, Blocks::softmax},
                                       {lines, false, Blocks::centred},
                                       {lines, false, Blocks::skip},
                                       {vector, false, Blocks::side},
                                       {vector, false, Blocks::products},
                                       {vector | image, true, Blocks::batch_norm},
                                       {sequence, false, Blocks::attention},
                                       {sequence, false, Blocks::attention},
                                       {sequence, false, Blocks::positions},
                                       {sequence, false, Blocks::along_time},
                                       {sequence, false, Blocks::pooled_time},
                                       {sequence, false, Blocks::flat},
                                       {image, false, Blocks::convolution},
                                       {image, false, Blocks::convolution},
                                       {image, false, Blocks::image_residual},
                                       {image, false, Blocks::pooled},
                                       {image, false, Blocks::gathered},
                                       {image, false, Blocks::patches}};
  return all;
}

Status write_random(const Attributes& options, const std::string& path, const FileHook& hook) {
  const int64_t seed = options.integer("seed"), blocks = options.integer("blocks");
  constexpr int64_t max_blocks = 64;
  if (blocks < 0 || blocks > max_blocks)
    return invalid("option blocks is ", blocks, "; it is 0, which draws their number, to ", max_blocks);
  const std::string said = cat("random seed=", seed, " blocks=", blocks, " mixes=", options.flag("mixes"));
  return RandomGraph(static_cast<uint64_t>(seed), options.flag("mixes")).write(blocks, path, hook, said);
}

}  // namespace
}  // namespace epl::onnx

namespace epl {

EPL_TEMPLATE(random) {
  return {.doc =
              "A small graph drawn from its seed, to compare layouts, devices or engines on: vectors, sequences, token "
              "ids or images to scores of 4 classes or more. blocks: 0 draws their number. mixes: batch norm may be "
              "drawn, whose samples are not independent.",
          .options = {{"blocks", int64_t{0}}, {"mixes", true}, {"seed", int64_t{1}}},
          .write = onnx::write_random};
}

}  // namespace epl
