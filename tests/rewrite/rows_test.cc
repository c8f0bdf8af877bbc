// Norms, activations, linear layers and clean-ups: ways of writing them, and near misses.
#include <algorithm>
#include <numbers>

#include "tests/rewrite/checked.h"

namespace epl::rows_test {
namespace {

// --- norms ---

enum class Root { quotient, product, power };

Var over_deviation(Builder& b, const Var& x, const Var& mean_square, double epsilon, Root root) {
  Var sum = mean_square + epsilon;
  if (root == Root::quotient) return x / b.sqrt(sum);
  if (root == Root::product) return b.reciprocal(b.sqrt(sum)) * x;
  return x * b.pow(sum, b.like(sum, -0.5));
}

TEST(LayerNorm, HoweverItIsWritten) {
  for (Root root : {Root::quotient, Root::product, Root::power}) {
    for (int variant = 0; variant < 4; ++variant) {
      SCOPED_TRACE(static_cast<int>(root) * 10 + variant);
      Sketch s;
      Builder& b = s.b;
      Var x = s.input("x", {3, 4, 6});
      Var centred = x - b.mean(x, {-1});
      Var again = variant == 1 ? x - b.mean(x, {-1}) : centred;
      Var square = variant == 2 ? centred * centred : b.pow(again, b.like(x, 2));
      Var mean = variant == 3 ? b.sum(square, {-1}) / 6.0 : b.mean(square, {-1});
      Var y = over_deviation(b, centred, mean, 1e-5, root);
      y = s.parameter("scale", {6}) * y;
      y = y + s.parameter("bias", {6});
      const Graph graph = rewritten(s.finish(y));
      ASSERT_EQ(graph.node_count(), 1) << print_graph(graph);
      EXPECT_EQ(graph.node(NodeId{0}).op->name, "layer_norm");
      EXPECT_EQ(graph.node(NodeId{0}).inputs.size(), 3u);
    }
  }
}

TEST(LayerNorm, TakesWhatPartsThereAre) {
  for (int variant = 0; variant < 3; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    Var x = s.input("x", {3, 4, 6});
    Var centred = x - b.mean(x, {1, 2});
    Var y = centred / b.sqrt(b.mean(centred * centred, {1, 2}) + 1e-3);
    if (variant == 1) y = y + s.parameter("bias", {4, 6});
    if (variant == 2) y = y * s.parameter("channels", {4, 1});  // no scale of the whole normalised shape
    const Graph graph = rewritten(s.finish(y));
    ASSERT_EQ(count_op(graph, "layer_norm"), 1) << print_graph(graph);
    EXPECT_EQ(graph.node_count(), variant == 2 ? 2 : 1);
  }
}

TEST(LayerNorm, LeavesNearMissesAlone) {
  for (int variant = 0; variant < 6; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    Var x = s.input("x", {4, 6});
    Var centred = x - b.mean(x, {variant == 0 ? 0 : 1});
    Var power = b.pow(centred, b.like(x, variant == 1 ? 4 : 2));
    Var mean = variant == 2 ? b.sum(power, {1}) : b.mean(power, {1});
    Var y;
    if (variant == 3) {
      y = x / b.sqrt(mean + 1e-5);
    } else if (variant == 4) {
      y = centred / (b.sqrt(mean) + 1e-5);
    } else if (variant == 5) {
      y = centred /
          b.sqrt(mean + b.constant(Tensor::from<double>({DType::f64, {4, 1}}, std::vector<double>{1, 2, 3, 4})));
    } else {
      y = centred / b.sqrt(mean + 1e-5);
    }
    const Graph graph = rewritten(s.finish(y * s.parameter("scale", {6})));
    EXPECT_EQ(count_op(graph, "layer_norm"), 0) << print_graph(graph);
    // Centred over another dimension, the values are simply what an RMS norm is taken of.
    EXPECT_LE(count_op(graph, "rms_norm"), variant == 0);
  }
}

TEST(RmsNorm, HoweverItIsWritten) {
  for (Root root : {Root::quotient, Root::product, Root::power}) {
    SCOPED_TRACE(static_cast<int>(root));
    Sketch s;
    Var x = s.input("x", {3, 4, 6});
    Var y = over_deviation(s.b, x, s.b.mean(s.b.pow(x, s.b.like(x, 2)), {-1}), 1e-6, root);
    const Graph graph = rewritten(s.finish(s.parameter("scale", {6}) * y));
    ASSERT_EQ(graph.node_count(), 1) << print_graph(graph);
    EXPECT_EQ(graph.node(NodeId{0}).op->name, "rms_norm");
    EXPECT_EQ(graph.node(NodeId{0}).inputs.size(), 2u);
  }
}

// --- activations ---

Var product_of(const Var& x, const Var& f, int order) {
  switch (order) {
    case 0:
      return x * 0.5 * f;
    case 1:
      return 0.5 * f * x;
    case 2:
      return x * f * 0.5;
    case 3:
      return x / 2.0 * f;
    default:
      return f * (0.5 * x);
  }
}

TEST(Gelu, ByErfInAnyOrder) {
  for (int order = 0; order < 5; ++order) {
    for (bool quotient : {false, true}) {
      SCOPED_TRACE(order);
      Sketch s;
      Var x = s.input("x", {4, 6});
      Var inner = quotient ? x / std::numbers::sqrt2 : x * (1 / std::numbers::sqrt2);
      const Graph graph = rewritten(s.finish(product_of(x, s.b.erf(inner) + 1.0, order) * s.input("gate", {4, 6})));
      EXPECT_EQ(count_op(graph, "gelu"), 1) << print_graph(graph);
      EXPECT_EQ(graph.node_count(), 2);
    }
  }
}

TEST(Gelu, ByTanhInAnyOrder) {
  const double root = std::sqrt(2 / std::numbers::pi), a = 0.044715;
  for (int order = 0; order < 5; ++order) {
    for (int form = 0; form < 4; ++form) {
      SCOPED_TRACE(order * 10 + form);
      Sketch s;
      Builder& b = s.b;
      Var x = s.input("x", {4, 6});
      Var inner;
      if (form == 0) inner = root * (x + a * b.pow(x, b.like(x, 3)));
      if (form == 1) inner = (x + x * (x * x) * a) * root;
      if (form == 2) inner = x * (x * x * (a * root) + root);
      if (form == 3) inner = x * root * (1.0 + a * b.pow(x, b.like(x, 2)));
      const Graph graph = rewritten(s.finish(product_of(x, 1.0 + b.tanh(inner), order)));
      ASSERT_EQ(graph.node_count(), 1) << print_graph(graph);
      EXPECT_EQ(graph.node(NodeId{0}).attributes.text("approximate"), "tanh");
    }
  }
}

TEST(Gelu, LeavesNearMissesAlone) {
  for (int variant = 0; variant < 7; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    Var x = s.input("x", {4, 6}), z = s.input("z", {4, 6});
    Var f = b.erf(x / (variant == 0 ? 1.5 : std::numbers::sqrt2)) + (variant == 1 ? 2.0 : 1.0);
    if (variant == 4) f = b.tanh(0.8 * (x + 0.05 * b.pow(x, b.like(x, 3)))) + 1.0;
    if (variant == 5) f = b.tanh(0.7978845608 * (x + 0.044715 * b.pow(x, b.like(x, 2)))) + 1.0;
    Var y = (variant == 2 ? z : x) * f * (variant == 3 ? 0.25 : 0.5);
    if (variant == 6) s.graph.outputs.push_back({"f", f.value()});
    EXPECT_EQ(count_op(rewritten(s.finish(y)), "gelu"), 0);
  }
}

TEST(Silu, InBothOrders) {
  for (bool first : {false, true}) {
    Sketch s;
    Var x = s.input("x", {4, 6}), gate = s.b.sigmoid(x);
    EXPECT_EQ(rewritten(s.finish(first ? gate * x : x * gate)).node(NodeId{0}).op->name, "silu");
  }
  Sketch s;
  Var x = s.input("x", {4, 6}), z = s.input("z", {4, 6});
  EXPECT_EQ(count_op(rewritten(s.finish(z * s.b.sigmoid(x))), "silu"), 0);
}

TEST(Mish, InBothOrders) {
  for (bool first : {false, true}) {
    Sketch s;
    Var x = s.input("x", {4, 6}), gate = s.b.tanh(s.b.emit("softplus", {x}));
    const Graph graph = rewritten(s.finish(first ? gate * x : x * gate));
    ASSERT_EQ(graph.node_count(), 1) << print_graph(graph);
    EXPECT_EQ(graph.node(NodeId{0}).op->name, "mish");
  }
}

// What the rewrite is for: a sigmoid that rounds to zero has no logarithm, and no gradient.
TEST(LogSigmoid, StaysFinite) {
  Sketch s;
  Var x = s.input("x", {4, 6});
  const Graph graph = with_gradients(rewritten(s.finish(s.b.log(s.b.sigmoid(x)))));
  Tensor far(TensorType{DType::f64, {4, 6}});
  for (int64_t i = 0; i < far.elements(); ++i) far.set(i, -800.0 - static_cast<double>(i));
  auto values = evaluate_graph(graph, {{graph.find("x"), far}});
  ASSERT_TRUE(values.ok()) << values.status().to_string();
  ASSERT_EQ(graph.outputs.size(), 2u);
  const Tensor &y = (*values)[graph.outputs[0].value.index], &dx = (*values)[graph.outputs[1].value.index];
  for (int64_t i = 0; i < y.elements(); ++i) {
    EXPECT_EQ(y.get(i), far.get(i));
    EXPECT_TRUE(std::isfinite(dx.get(i)) && dx.get(i) != 0) << dx.get(i);
  }
}

TEST(Softmax, WrittenOut) {
  for (int axis : {0, 1, 2}) {
    for (bool other : {false, true}) {
      Sketch s;
      Var x = s.input("x", {3, 4, 5});
      Var e = s.b.exp(x - s.b.max_along(x, {axis}));
      const Graph graph = rewritten(s.finish(e / s.b.sum(e, {other ? (axis + 1) % 3 : axis})));
      EXPECT_EQ(count_op(graph, "softmax"), other ? 0 : 1);
    }
  }
}

// --- linear layers ---

TEST(Linear, InBothOrdersAndWithEitherMatrix) {
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    Var x = s.input("x", {2, 4, 6}), bias = s.parameter("bias", {5});
    Var w = variant & 1 ? b.transpose(s.parameter("w", {5, 6}), {1, 0}) : s.parameter("w", {6, 5});
    Var m = b.matmul(x, w);
    const Graph graph = rewritten(s.finish(variant & 2 ? bias + m : m + bias));
    ASSERT_EQ(graph.node_count(), 1) << print_graph(graph);
    EXPECT_EQ(graph.node(NodeId{0}).op->name, "linear");
    EXPECT_EQ(graph.node(NodeId{0}).attributes.flag("transpose_w"), (variant & 1) != 0);
    EXPECT_EQ(graph.node(NodeId{0}).name, s.graph.nodes().back().name);
  }
}

TEST(Linear, OutOfFlattenedRows) {
  Sketch s;
  Builder& b = s.b;
  Var x = s.input("x", {2, 4, 6});
  Var y = b.matmul(b.reshape(x, {8, 6}), s.parameter("w", {6, 5})) + s.parameter("bias", {5});
  const Graph graph = rewritten(s.finish(b.reshape(y, {2, 4, 5})));
  ASSERT_EQ(graph.node_count(), 1) << print_graph(graph);
  // Other leading dimensions than those of x stay a reshape.
  Sketch t;
  Var z = t.b.matmul(t.b.reshape(t.input("x", {2, 4, 6}), {8, 6}), t.parameter("w", {6, 5})) + t.parameter("bias", {5});
  EXPECT_EQ(rewritten(t.finish(t.b.reshape(z, {4, 2, 5}))).node_count(), 3);
}

TEST(Linear, DrawsTransposesIntoBareProducts) {
  Sketch s;
  Var x = s.input("x", {2, 4, 6}), w = s.parameter("w", {5, 6});
  const Graph graph = rewritten(s.finish(s.b.matmul(x, s.b.transpose(w, {1, 0}))));
  ASSERT_EQ(graph.node_count(), 1);
  EXPECT_TRUE(graph.node(NodeId{0}).attributes.flag("transpose_b"));
}

TEST(Linear, LeavesNearMissesAlone) {
  for (int variant = 0; variant < 5; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    Var x = s.input("x", {2, 4, 6});
    Var m = b.matmul(x, variant == 0 ? s.parameter("w", {2, 6, 5}) : s.parameter("w", {6, 5}));
    Shape bias = variant == 1 ? Shape{4, 5} : variant == 2 ? Shape{4, 1} : Shape{5};
    Var y = m + s.parameter("bias", bias);
    if (variant == 3) y = y * m;
    if (variant == 4) s.graph.outputs.push_back({"product", m.value()});
    EXPECT_EQ(count_op(rewritten(s.finish(y)), "linear"), 0);
  }
}

// --- mixtures of experts ---

// Vectors beside the matrices that they gather: columns on the right or rows on the left, matrices either way round.
TEST(PickedLinear, OfVectorsOnEitherSide) {
  for (int variant = 0; variant < 8; ++variant) {
    SCOPED_TRACE(variant);
    const bool left = variant & 1, turned = variant & 2, crossed = variant & 4;
    Sketch s;
    Builder& b = s.b;
    const Var picks = s.input("picks", {8}, DType::i64);
    // The product wants [n, k] on the left of a column, [k, n] on the right of a row.
    const Var w = s.parameter("w", left != turned ? Shape{4, 6, 5} : Shape{4, 5, 6});
    const Var matrices = b.emit("gather", {w, picks}, {{"axis", int64_t{0}}});
    const Var x = s.input("x", left != crossed ? Shape{8, 1, 6} : Shape{8, 6, 1});
    const Var y = left ? b.matmul(x, matrices, crossed, turned) : b.matmul(matrices, x, turned, crossed);
    const Graph graph = rewritten(s.finish(y));
    ASSERT_EQ(count_op(graph, "picked_linear"), 1) << print_graph(graph);
    EXPECT_EQ(count_op(graph, "gather"), 0);
  }
}

TEST(PickedLinear, LeavesNearMissesAlone) {
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    const Var picks = s.input("picks", {8}, DType::i64);
    const Var w = s.parameter("w", variant == 0 ? Shape{5, 4, 6} : Shape{4, 5, 6});
    const Var taken = b.emit("gather", {w, picks}, {{"axis", int64_t{variant == 0}}});
    const Var matrices = variant == 0 ? b.transpose(taken, {1, 0, 2}) : taken;  // picked along another dimension
    if (variant == 1) s.graph.outputs.push_back({"matrices", matrices.value()});
    // Several vectors for each matrix; one vector for all matrices.
    const Var x = s.input("x", {variant == 3 ? 1 : 8, 6, variant == 2 ? 2 : 1});
    EXPECT_EQ(count_op(rewritten(s.finish(b.matmul(matrices, x))), "picked_linear"), 0);
  }
}

// --- slots ---

// Zeros of which the rows at indices[s] are those of x[s,6].
Var scattered(Sketch& s, const Var& x, const Var& indices, int64_t rows, bool by_tuples) {
  const Var zeros = s.b.constant(Tensor(TensorType{DType::f64, {rows, 6}}));
  const int64_t count = indices.dim(0);
  const Var column = s.b.reshape(indices, {count, 1});
  if (by_tuples) return s.b.emit("scatter_nd", {zeros, column, x});
  const Var each = s.b.emit("broadcast_to", {column}, {{"shape", Ints{count, 6}}});
  return s.b.emit("scatter_elements", {zeros, each, x});
}
Var first_rows(Builder& b, const Var& x, int64_t from, int64_t to) {
  return b.emit("slice", {x}, {{"axes", Ints{0}}, {"starts", Ints{from}}, {"ends", Ints{to}}, {"steps", Ints{1}}});
}
Var with_row(Builder& b, const Var& x, double value, bool pads) {
  if (!pads) {
    Tensor row(TensorType{DType::f64, {1, 6}});
    for (int64_t i = 0; i < 6; ++i) row.set(i, value);
    return b.emit("concat", {x, b.constant(row)}, {{"axis", int64_t{0}}});
  }
  return b.emit("pad", {x, b.like(x, value)}, {{"begin", Ints{0, 0}}, {"end", Ints{1, 0}}});
}

// Indices count from both ends, and the last row, which is cut off, is among them.
TEST(Slots, HoweverTheyAreWritten) {
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    const Var x = s.input("x", {8, 6}), indices = s.input("indices", {8}, DType::i64) * 3.0 - 5.0;
    const Var put = scattered(s, x, indices, variant == 3 ? 4 : 5, variant % 2 == 1);
    const Var slots = variant == 3 ? put : first_rows(b, put, 0, 4);
    const Var taken =
        b.emit("gather", {with_row(b, b.sigmoid(slots), 0, variant != 2), indices}, {{"axis", int64_t{0}}});
    const Graph graph = rewritten(s.finish(taken));
    EXPECT_EQ(count_op(graph, "put_rows"), 1) << print_graph(graph);
    EXPECT_EQ(count_op(graph, "take_rows"), 1) << print_graph(graph);
    for (const char* op : {"scatter_nd", "scatter_elements", "slice", "pad", "concat", "gather"})
      EXPECT_EQ(count_op(graph, op), 0) << op;
    EXPECT_EQ(count_op(graph, "where"), variant == 3 ? 2 : 4);  // indices into what is left
  }
}

TEST(Slots, LeavesNearMissesAlone) {
  for (int variant = 0; variant < 7; ++variant) {
    SCOPED_TRACE(variant);
    Sketch s;
    Builder& b = s.b;
    const Var x = s.input("x", {4, 6}), indices = s.input("indices", {4}, DType::i64);
    Var y;
    if (variant == 0) y = b.emit("gather", {with_row(b, x, 1, true), indices}, {{"axis", int64_t{0}}});
    if (variant == 1) y = b.emit("gather", {with_row(b, x, 1, false), indices}, {{"axis", int64_t{0}}});
    if (variant == 2) y = b.emit("gather", {with_row(b, x, 0, true), indices}, {{"axis", int64_t{1}}});
    if (variant == 3) y = first_rows(b, scattered(s, x, indices, 5, false), 1, 5);
    if (variant >= 4) {
      const Var base = variant == 4 ? s.input("base", {4, 6}) : b.constant(Tensor(TensorType{DType::f64, {4, 6}}));
      const Var each = b.emit("broadcast_to", {b.reshape(indices, {variant == 5 ? 1 : 4, variant == 5 ? 4 : 1})},
                              {{"shape", variant == 5 ? Ints{4, 4} : Ints{4, 6}}});
      const Var part = variant == 5 ? first_rows(b, b.transpose(x, {1, 0}), 0, 4) : x;
      y = b.emit("scatter_elements", {base, each, part}, {{"reduction", variant == 6 ? "add" : "none"}});
    }
    const Graph graph = rewritten(s.finish(y));
    EXPECT_EQ(count_op(graph, "put_rows"), variant == 3) << print_graph(graph);
    EXPECT_EQ(count_op(graph, "slice"), variant == 3 || variant == 5);
    EXPECT_EQ(count_op(graph, "take_rows"), 0) << print_graph(graph);
  }
}

// --- clean-ups ---

TEST(Layout, ChainsBecomeOne) {
  Sketch s;
  Builder& b = s.b;
  Var x = s.input("x", {2, 3, 4});
  Var y = b.transpose(b.transpose(x, {2, 0, 1}), {1, 2, 0});  // moves nothing
  y = b.reshape(b.reshape(b.emit("identity", {y}), {6, 4}), {4, 6});
  const Graph graph = rewritten(s.finish(b.transpose(b.transpose(y, {1, 0}), {1, 0}) * 2.0));
  EXPECT_EQ(graph.node_count(), 2) << print_graph(graph);
}

TEST(Layout, AGatherOfAllInOrderIsAReshape) {
  const auto taken = [](const std::vector<int64_t>& picks, const Shape& shape, int axis) {
    Sketch s;
    const Var x = s.input("x", {4, 6});
    Tensor indices({DType::i64, shape});
    for (int64_t i = 0; i < indices.elements(); ++i) indices.set_int(i, picks[static_cast<size_t>(i)]);
    return rewritten(s.finish(s.b.emit("gather", {x, s.b.constant(indices)}, {{"axis", int64_t{axis}}})));
  };
  EXPECT_EQ(count_op(taken({0, 1, 2, 3}, {2, 1, 2}, 0), "gather"), 0);
  EXPECT_EQ(count_op(taken({0, 1, 2, 3, 4, 5}, {2, 3}, 1), "gather"), 0);
  EXPECT_EQ(count_op(taken({0, 1, 2, 3}, {4}, 1), "gather"), 1);  // not all
  EXPECT_EQ(count_op(taken({0, 2, 1, 3}, {4}, 0), "gather"), 1);
}

TEST(Rewrite, KeepsOutputsPhasesAndNames) {
  Sketch s;
  Builder& b = s.b;
  b.set_scope("block/gate");
  Var x = s.input("x", {4, 6});
  Var y = x * b.sigmoid(x);
  s.graph.outputs.push_back({"both", y.value()});
  const std::string name = s.graph.nodes().back().name, value = s.graph.value(y.value()).name;
  std::vector<RewriteCount> counts;
  auto made = rewrite_graph(s.finish(y), &counts);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->nodes().back().name, name);
  EXPECT_EQ(made->value(made->outputs[0].value).name, value);
  EXPECT_EQ(made->outputs.size(), 2u);
  for (const RewriteCount& count : counts) EXPECT_EQ(count.count, count.row == "silu") << count.row;
}

TEST(Rewrites, RunAfterThoseTheyName) {
  std::vector<std::string> before;
  for (const RewriteRow* row : rewrites_in_order()) {
    for (const std::string& name : row->after)
      EXPECT_NE(std::ranges::find(before, name), before.end()) << row->name << " after " << name;
    before.push_back(row->name);
  }
  EXPECT_EQ(before.size(), rewrite_table().rows.size());
}

}  // namespace
}  // namespace epl::rows_test
