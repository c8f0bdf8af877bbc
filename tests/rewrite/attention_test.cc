// Every way in which exporters write attention, against the original's numbers; and near misses.
#include <limits>

#include "tests/rewrite/checked.h"

namespace epl::attention_test {
namespace {

constexpr int64_t batch = 2, heads = 4, queries = 5, depth = 3, values = 6;
constexpr double infinity = std::numeric_limits<double>::infinity();

enum class Scale { scores, quotient, queries, both, none };
enum class Keys { swapped, merged, matrices, flag };
enum class Heads { own, expanded, tiled };
enum class Masking { none, kept, filled, added, lowest, shifted, given, chosen, rows, both };

struct Form {
  Scale scale = Scale::scores;
  Keys keys = Keys::swapped;
  Heads heads = Heads::own;
  Masking masking = Masking::none;
  bool guard = false;
  bool capped = false;
};

Tensor causal(DType type, double shown, double hidden, int64_t shift = 0, Shape leading = {}) {
  leading.push_back(queries);
  leading.push_back(queries);
  Tensor mask({type, leading});
  for (int64_t at = 0; at < mask.elements(); ++at) {
    mask.set(at, at % queries <= at / queries % queries + shift ? shown : hidden);
  }
  return mask;
}

// x[b, hk, t, n] with each head repeated to make `heads` of them.
Var with_repeats(Builder& b, const Var& x, Heads how) {
  if (how == Heads::own) return x;
  const int64_t times = heads / x.dim(1);
  Var one = b.reshape(x, {x.dim(0), x.dim(1), 1, x.dim(2), x.dim(3)});
  Var many = how == Heads::expanded ? b.broadcast_to(one, {x.dim(0), x.dim(1), times, x.dim(2), x.dim(3)})
                                    : b.emit("tile", {one}, {{"repeats", Ints{1, 1, times, 1, 1}}});
  return b.reshape(many, {x.dim(0), heads, x.dim(2), x.dim(3)});
}

Var masked(Sketch& s, Var scores, Masking how) {
  Builder& b = s.b;
  Var hidden = b.like(scores, -infinity);
  switch (how) {
    case Masking::none:
      return scores;
    case Masking::kept:
      return b.select(b.constant(causal(DType::boolean, 1, 0)), scores, hidden);
    case Masking::filled:
      return b.select(b.constant(causal(DType::boolean, 0, 1, 0, {1, 1})), hidden, scores);
    case Masking::added:
      return scores + b.constant(causal(DType::f64, 0, -infinity));
    case Masking::lowest:
      return b.constant(causal(DType::f64, 0, -3.4028234663852886e38, 0, {batch, 1})) + scores;
    case Masking::shifted:
      return scores + b.constant(causal(DType::f64, 0, -infinity, 1));
    case Masking::given:
      return scores + s.input("bias", {batch, 1, 1, queries});
    case Masking::chosen:
      return b.select(s.input("shown", {batch, 1, 1, queries}, DType::boolean), scores, b.like(scores, -1e30));
    case Masking::rows:
      return b.select(s.input("shown", {batch, 1, queries, 1}, DType::boolean), scores, b.like(scores, -infinity));
    case Masking::both:
      return masked(s, masked(s, scores, Masking::kept), Masking::given);
  }
  return {};
}

Graph written(const Form& form) {
  Sketch s;
  Builder& b = s.b;
  const int64_t own = form.heads == Heads::own ? heads : heads / 2;
  Var q = s.input("q", {batch, heads, queries, depth}), v = s.input("v", {batch, own, queries, values});
  Var k = form.keys == Keys::merged ? s.input("k", {batch, queries, own, depth})
                                    : s.input("k", {batch, own, queries, depth});
  const double scale = 0.5;
  Var keys;
  if (form.keys == Keys::merged) {
    EXPECT_EQ(form.heads, Heads::own);
    keys = b.transpose(k, {0, 2, 3, 1});
  } else {
    keys = with_repeats(b, k, form.heads);
    if (form.keys == Keys::swapped) keys = b.transpose(keys, {0, 1, 3, 2});
    if (form.keys == Keys::matrices) {
      keys = b.transpose(b.reshape(keys, {batch * heads, queries, depth}), {0, 2, 1});
      keys = b.reshape(keys, {batch, heads, depth, queries});
    }
  }
  if (form.scale == Scale::queries) q = q * scale;
  if (form.scale == Scale::both) {
    q = q * std::sqrt(scale);
    keys = keys * b.constant(Tensor::from<double>({DType::f64, {1}}, std::vector<double>{std::sqrt(scale)}));
  }
  Var scores = b.matmul(q, keys, false, form.keys == Keys::flag);
  if (form.scale == Scale::scores) scores = scale * scores;
  if (form.scale == Scale::quotient) scores = scores / (1 / scale);
  if (form.capped) scores = b.tanh(scores / 2.0) * 2.0;
  scores = masked(s, scores, form.masking);
  Var p = b.emit("softmax", {scores});
  if (form.guard) p = b.select(b.emit("is_nan", {p}), b.like(p, 0), p);
  Var y = b.matmul(p, with_repeats(b, v, form.heads));
  return s.finish(b.reshape(b.transpose(y, {0, 2, 1, 3}), {batch, queries, heads * values}));
}

const Node& attention_of(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    if (node.op->name == "attention") return node;
  }
  ADD_FAILURE() << "no attention in\n" << print_graph(graph);
  return graph.node(NodeId{0});
}

void expect_attention(const Form& form, bool is_causal, bool has_bias, double scale) {
  const Graph graph = rewritten(written(form));
  ASSERT_EQ(count_op(graph, "attention"), 1) << print_graph(graph);
  EXPECT_EQ(count_op(graph, "softmax"), 0);
  EXPECT_EQ(count_op(graph, "matmul"), 0);
  const Node& node = attention_of(graph);
  EXPECT_EQ(node.attributes.flag("causal"), is_causal);
  EXPECT_EQ(node.inputs.size() > 3 && node.inputs[3], has_bias);
  EXPECT_NEAR(node.attributes.number("scale"), scale, 1e-12);
  if (form.heads != Heads::own) {
    EXPECT_EQ(graph.type(node.inputs[1]).dim(1), heads / 2);
    EXPECT_EQ(graph.type(node.inputs[2]).dim(1), heads / 2);
    EXPECT_EQ(count_op(graph, "broadcast_to") + count_op(graph, "tile"), 0);
  }
  EXPECT_EQ(count_op(graph, "transpose"), form.keys == Keys::merged ? 2 : 1) << print_graph(graph);
}

TEST(Attention, WhereverTheScaleIs) {
  for (Scale scale : {Scale::scores, Scale::quotient, Scale::queries, Scale::both, Scale::none}) {
    SCOPED_TRACE(static_cast<int>(scale));
    expect_attention({.scale = scale}, false, false, scale == Scale::none ? 1 : 0.5);
  }
}

TEST(Attention, HoweverTheKeysAreTransposed) {
  for (Keys keys : {Keys::swapped, Keys::merged, Keys::matrices, Keys::flag}) {
    for (Scale scale : {Scale::scores, Scale::both}) {
      SCOPED_TRACE(static_cast<int>(keys));
      expect_attention({.scale = scale, .keys = keys}, false, false, 0.5);
    }
  }
}

TEST(Attention, WithSharedHeads) {
  for (Heads how : {Heads::expanded, Heads::tiled}) {
    for (Keys keys : {Keys::swapped, Keys::matrices, Keys::flag}) {
      SCOPED_TRACE(static_cast<int>(how) * 10 + static_cast<int>(keys));
      expect_attention({.scale = Scale::both, .keys = keys, .heads = how, .masking = Masking::kept}, true, false, 0.5);
    }
  }
}

TEST(Attention, UnderEveryMask) {
  const std::map<Masking, std::pair<bool, bool>> causal_and_bias = {
      {Masking::kept, {true, false}},   {Masking::filled, {true, false}},  {Masking::added, {true, false}},
      {Masking::lowest, {true, false}}, {Masking::shifted, {false, true}}, {Masking::given, {false, true}},
      {Masking::chosen, {false, true}}, {Masking::both, {true, true}}};
  for (const auto& [masking, expected] : causal_and_bias) {
    SCOPED_TRACE(static_cast<int>(masking));
    expect_attention({.masking = masking}, expected.first, expected.second, 0.5);
  }
}

TEST(Attention, WithTheScoresCapped) {
  expect_attention({.masking = Masking::kept, .capped = true}, true, false, 0.5);
  EXPECT_EQ(attention_of(rewritten(written({.capped = true}))).attributes.number("softcap"), 2);
}

TEST(Attention, WithAGuardWhereNoRowIsHidden) {
  expect_attention({.masking = Masking::kept, .guard = true}, true, false, 0.5);
  expect_attention({.masking = Masking::chosen, .guard = true}, false, true, 0.5);
}

// Any number may be in an input: rows of minus infinities alone stay zero with the guard, and NaN without.
TEST(Attention, WithAGuardWhereRowsMayBeHidden) {
  expect_attention({.masking = Masking::given, .guard = true}, false, true, 0.5);
  expect_attention({.masking = Masking::rows, .guard = true}, false, true, 0.5);
  expect_attention({.masking = Masking::rows}, false, true, 0.5);
  EXPECT_EQ(count_op(rewritten(written({.masking = Masking::rows, .guard = true})), "max_reduce"), 1);
  EXPECT_EQ(count_op(rewritten(written({.masking = Masking::rows})), "max_reduce"), 0);
}

// A causal mask leaves the first row its first key only; a mask that hides this key hides the row.
TEST(Attention, WithAGuardWhereTwoMasksHideARow) {
  Sketch s;
  Builder& b = s.b;
  Shape shape{batch, heads, queries, depth};
  Var q = s.input("q", shape), k = s.input("k", shape), v = s.input("v", shape);
  Tensor padding({DType::f64, {1, queries}});
  for (int64_t j = 0; j < queries; ++j) padding.set(j, j == 0 ? -infinity : 0);
  Var scores = b.matmul(q, k, false, true) + b.constant(causal(DType::f64, 0, -infinity)) + b.constant(padding);
  Var p = b.emit("softmax", {scores});
  p = b.select(b.emit("is_nan", {p}), b.like(p, 0), p);
  EXPECT_EQ(count_op(rewritten(s.finish(b.matmul(p, v))), "attention"), 1);
}

TEST(Attention, OfMatricesIsOfOneHead) {
  Sketch s;
  Var q = s.input("q", {6, queries, depth}), k = s.input("k", {6, queries, depth}),
      v = s.input("v", {6, queries, depth});
  Var scores = s.b.matmul(q, s.b.transpose(k, {0, 2, 1})) * 0.25 + s.input("bias", {6, queries, queries});
  const Graph graph = rewritten(s.finish(s.b.matmul(s.b.emit("softmax", {scores}), v)));
  EXPECT_EQ(graph.type(attention_of(graph).inputs[0]).shape, (Shape{6, 1, queries, depth}));
}

TEST(Attention, KeepsTheMatrixOfAConstantMaskOnce) {
  Sketch s;
  Shape shape{batch, heads, queries, depth};
  Var q = s.input("q", shape), k = s.input("k", shape), v = s.input("v", shape);
  Var scores = s.b.matmul(q, k, false, true) + s.b.constant(causal(DType::f64, 0, -infinity, 2, {batch, 1}));
  const Graph graph = rewritten(s.finish(s.b.matmul(s.b.emit("softmax", {scores}), v)));
  EXPECT_EQ(graph.type(attention_of(graph).inputs[3]).shape, (Shape{1, 1, queries, queries}));
}

// --- rows of which masks hide everything: the file's numbers, and its gradients ---

constexpr double lowest = -3.4028234663852886e38;
enum class How { where, add };

// Sample 0 sees everything, sample 1 some keys; of sample 2 the first two queries (or all) see nothing.
std::map<std::string, Tensor> shown_rows(How how, double fill, bool per_query, bool hide_rows) {
  Tensor shown({how == How::where ? DType::boolean : DType::f64, {3, 1, per_query ? queries : 1, queries}});
  for (int64_t at = 0; at < shown.elements(); ++at) {
    const int64_t key = at % queries, row = per_query ? at / queries % queries : 0,
                  sample = at / queries / (per_query ? queries : 1);
    const bool hidden = sample == 1 ? key == 0 || key == 3 : sample == 2 && (hide_rows ? row < 2 : key > 1);
    shown.set(at, how == How::where ? !hidden : hidden ? fill : 0);
  }
  return {{"shown", shown}};
}
Var hidden_by(Sketch& s, const Var& scores, How how, double fill, bool per_query) {
  const Var shown =
      s.input("shown", {3, 1, per_query ? queries : 1, queries}, how == How::where ? DType::boolean : DType::f64);
  return how == How::where ? s.b.select(shown, scores, s.b.like(scores, fill)) : scores + shown;
}
Var plain_scores(Sketch& s) {
  const Shape shape{3, heads, queries, depth};
  return s.b.matmul(s.input("q", shape), s.b.transpose(s.input("k", shape), {0, 1, 3, 2})) * 0.5;
}
Graph plain_rest(Sketch& s, const Var& scores, bool guard = false) {
  Var p = s.b.emit("softmax", {scores});
  if (guard) p = s.b.select(s.b.emit("is_nan", {p}), s.b.like(p, 0), p);
  return s.finish(s.b.matmul(p, s.input("v", {3, heads, queries, values})));
}
struct Outcome {
  int attentions;
  bool causal = false;
};
// Both the result and the gradients of the rewritten graph are those of the original.
void expect_same(const Graph& graph, const std::map<std::string, Tensor>& given, const Outcome& expected,
                 bool gradients = true) {
  const Graph now = rewritten(graph);
  ASSERT_EQ(count_op(now, "attention"), expected.attentions) << print_graph(now);
  if (expected.attentions > 0) {
    EXPECT_EQ(attention_of(now).attributes.flag("causal"), expected.causal);
  }
  expect_equal(graph, now, 1e-10, given);
  if (gradients) expect_equal(with_gradients(graph), with_gradients(now), 1e-10, given);
}

TEST(HiddenRows, KeepTheFilesNumbersUnderEveryFill) {
  for (How how : {How::where, How::add}) {
    for (double fill : {-infinity, lowest, -1e9, -1e4}) {
      for (bool per_query : {false, true}) {
        for (bool hide_rows : {false, true}) {
          SCOPED_TRACE(cat(how == How::where ? "where " : "add ", fill, per_query ? " per query" : "",
                           hide_rows ? " rows" : ""));
          Sketch s;
          const Graph graph = plain_rest(s, hidden_by(s, plain_scores(s), how, fill, per_query));
          // A row of minus infinities is NaN, and so is what is trained on it.
          const bool has_gradients = !(hide_rows && std::isinf(fill));
          const int found = how == How::where && fill == -1e4 ? 0 : 1;
          expect_same(graph, shown_rows(how, fill, per_query, hide_rows), {found}, has_gradients);
        }
      }
    }
  }
}

Var causal_by(Sketch& s, const Var& scores, How how, double fill) {
  if (how == How::add) return scores + s.b.constant(causal(DType::f64, 0, fill));
  return s.b.select(s.b.constant(causal(DType::boolean, 1, 0)), scores, s.b.like(scores, fill));
}

TEST(HiddenRows, CausalMasksAloneAreAFlagUnlessAScoreMayReachTheFill) {
  for (How how : {How::where, How::add}) {
    for (double fill : {-infinity, lowest, -1e9, -1e4}) {
      SCOPED_TRACE(cat(how == How::where ? "where " : "add ", fill));
      Sketch s;
      const int found = how == How::where && fill == -1e4 ? 0 : 1;
      expect_same(plain_rest(s, causal_by(s, plain_scores(s), how, fill)), {}, {found, fill != -1e4});
    }
  }
}

// Where the second mask hides all that a row sees, what the first hides counts as well, unless it is minus infinity.
TEST(HiddenRows, CausalMasksBesideOthers) {
  struct Pair {
    How causal_how, other_how;
    double causal_fill, other_fill;
    Outcome expected;
  };
  const std::vector<Pair> pairs = {
      {How::add, How::add, lowest, lowest, {1, false}},     {How::add, How::add, -infinity, lowest, {1, true}},
      {How::where, How::add, -infinity, lowest, {1, true}}, {How::where, How::add, lowest, lowest, {0}},
      {How::add, How::where, lowest, lowest, {0}},          {How::add, How::where, -infinity, lowest, {0}},
      {How::where, How::where, lowest, lowest, {1, false}}, {How::where, How::where, -1e9, -1e9, {1, false}},
      {How::where, How::where, lowest, -1e9, {0}},          {How::where, How::where, -infinity, lowest, {0}},
  };
  for (const Pair& pair : pairs) {
    for (bool causal_first : {true, false}) {
      for (bool hide_rows : {false, true}) {
        SCOPED_TRACE(cat(&pair - pairs.data(), causal_first ? " causal first" : "", hide_rows ? " rows" : ""));
        Sketch s;
        Var scores = plain_scores(s);
        if (causal_first) scores = causal_by(s, scores, pair.causal_how, pair.causal_fill);
        scores = hidden_by(s, scores, pair.other_how, pair.other_fill, false);
        if (!causal_first) scores = causal_by(s, scores, pair.causal_how, pair.causal_fill);
        std::map<std::string, Tensor> given = shown_rows(pair.other_how, pair.other_fill, false, hide_rows);
        expect_same(plain_rest(s, scores), given, pair.expected);
      }
    }
  }
}

TEST(HiddenRows, ACausalMaskBesideAConstantThatHidesNoRowIsAFlag) {
  for (double first : {-3.0, lowest}) {
    SCOPED_TRACE(first);
    Sketch s;
    Tensor slopes({DType::f64, {queries, queries}});
    for (int64_t at = 0; at < slopes.elements(); ++at)
      slopes.set(at, at == 0 ? first : 0.1 * static_cast<double>(at % queries));
    const Var scores = causal_by(s, plain_scores(s) + s.b.constant(slopes), How::where, lowest);
    expect_same(plain_rest(s, scores), {}, {first == lowest ? 0 : 1, true});
  }
}

// With the guard, rows of minus infinities are zero; rows of lowest numbers weigh the keys that are not minus infinity.
TEST(HiddenRows, UnderTheGuard) {
  for (double fill : {lowest, -infinity}) {
    for (bool hide_rows : {false, true}) {
      SCOPED_TRACE(cat(fill, hide_rows ? " rows" : ""));
      Sketch s;
      const Var scores = hidden_by(s, causal_by(s, plain_scores(s), How::add, -infinity), How::add, fill, false);
      std::map<std::string, Tensor> given = shown_rows(How::add, fill, false, hide_rows);
      // The file's own gradients are NaN where the guard takes NaN away; sample 1 hides the first key.
      expect_same(plain_rest(s, scores, true), given, {1}, std::isfinite(fill));
    }
  }
}
TEST(HiddenRows, LowestTwiceIsMinusInfinityUnderTheGuard) {
  Sketch s;
  // In float64 the sum of two is still a number, so the type's own lowest is added.
  const double low = std::numeric_limits<double>::lowest();
  Var scores = plain_scores(s) + s.b.constant(causal(DType::f64, low, low));
  const Graph graph = plain_rest(s, hidden_by(s, scores, How::add, low, false), true);
  expect_same(graph, shown_rows(How::add, low, false, true), {1}, false);
}

// What stands between the parts, by number.
Graph near_miss(int which) {
  Sketch s;
  Builder& b = s.b;
  Shape shape{batch, heads, queries, depth};
  Var q = s.input("q", shape), k = s.input("k", shape), v = s.input("v", shape);
  Var scores = b.matmul(q, b.transpose(k, {0, 1, 3, 2}));
  if (which == 0) scores = b.emit("relu", {scores});
  if (which == 1) scores = scores * b.constant(causal(DType::f64, 1, 2));
  if (which == 2) scores = b.select(b.constant(causal(DType::boolean, 1, 0)), scores, b.like(scores, -1));
  Var p = b.emit("softmax", {scores}, {{"axis", int64_t{which == 3 ? -2 : -1}}});
  if (which == 4) s.graph.outputs.push_back({"p", p.value()});
  if (which == 5) p = p * s.input("gate", {queries});
  if (which == 6) s.graph.outputs.push_back({"scores", scores.value()});
  return s.finish(b.matmul(p, v));
}

TEST(Attention, LeavesNearMissesAlone) {
  for (int which = 0; which < 7; ++which) {
    SCOPED_TRACE(which);
    EXPECT_EQ(count_op(rewritten(near_miss(which)), "attention"), 0);
  }
  EXPECT_EQ(count_op(rewritten(near_miss(7)), "attention"), 1);
}

}  // namespace
}  // namespace epl::attention_test
