// Attention and its gradient against float64, and the same bits however they are cut.
#include <cmath>
#include <functional>
#include <limits>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::attention_test {
namespace {

struct Case {
  int64_t b, h, hk, s, t, d, e;
  bool causal = false;
  double cap = 0;
  Shape bias = {};  // empty: none
  double scale = 0.3;
};

struct Operands {
  Tensor q, k, v, bias, dy;
};
Operands operands_of(const Case& c) {
  Operands x{random_f32({c.b, c.h, c.s, c.d}, 1), random_f32({c.b, c.hk, c.t, c.d}, 2),
             random_f32({c.b, c.hk, c.t, c.e}, 3), Tensor(), random_f32({c.b, c.h, c.s, c.e}, 5)};
  if (!c.bias.empty()) x.bias = random_f32(c.bias, 4);
  return x;
}

Attributes attributes_of(const Case& c) { return {{"scale", c.scale}, {"causal", c.causal}, {"softcap", c.cap}}; }

struct Expected {
  std::vector<double> y, lse, dq, dk, dv;
};

// The definition, row by row in double.
Expected reference(const Case& c, const Operands& x) {
  Expected out;
  out.y.resize(c.b * c.h * c.s * c.e);
  out.lse.resize(c.b * c.h * c.s);
  out.dq.resize(c.b * c.h * c.s * c.d);
  out.dk.resize(c.b * c.hk * c.t * c.d);
  out.dv.resize(c.b * c.hk * c.t * c.e);
  const auto bias_at = [&](int64_t b, int64_t h, int64_t i, int64_t j) {
    const Shape& n = c.bias;
    return x.bias.get((((n[0] == 1 ? 0 : b) * n[1] + (n[1] == 1 ? 0 : h)) * n[2] + (n[2] == 1 ? 0 : i)) * n[3] +
                      (n[3] == 1 ? 0 : j));
  };
  for (int64_t b = 0; b < c.b; ++b) {
    for (int64_t h = 0; h < c.h; ++h) {
      const int64_t kh = b * c.hk + h / (c.h / c.hk);
      for (int64_t i = 0; i < c.s; ++i) {
        const int64_t row = (b * c.h + h) * c.s + i, seen = c.causal ? std::min(c.t, i + 1) : c.t;
        std::vector<double> score(seen), p(seen), capped(seen);
        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double dot = 0;
          for (int64_t k = 0; k < c.d; ++k) dot += x.q.get(row * c.d + k) * x.k.get((kh * c.t + j) * c.d + k);
          capped[j] = c.cap ? c.cap * std::tanh(dot * c.scale / c.cap) : dot * c.scale;
          score[j] = capped[j] + (c.bias.empty() ? 0 : bias_at(b, h, i, j));
          largest = std::max(largest, score[j]);
        }
        for (int64_t j = 0; j < seen; ++j) sum += p[j] = std::exp(score[j] - largest);
        out.lse[row] = largest + std::log(sum);
        double total = 0;
        for (int64_t j = 0; j < seen; ++j) p[j] /= sum;
        for (int64_t k = 0; k < c.e; ++k) {
          double y = 0;
          for (int64_t j = 0; j < seen; ++j) y += p[j] * x.v.get((kh * c.t + j) * c.e + k);
          out.y[row * c.e + k] = y;
          total += y * x.dy.get(row * c.e + k);
        }
        for (int64_t j = 0; j < seen; ++j) {
          double through = 0;
          for (int64_t k = 0; k < c.e; ++k) {
            through += x.dy.get(row * c.e + k) * x.v.get((kh * c.t + j) * c.e + k);
            out.dv[(kh * c.t + j) * c.e + k] += p[j] * x.dy.get(row * c.e + k);
          }
          double ds = p[j] * (through - total) * c.scale;
          if (c.cap) ds *= 1 - capped[j] * capped[j] / (c.cap * c.cap);
          for (int64_t k = 0; k < c.d; ++k) {
            out.dq[row * c.d + k] += ds * x.k.get((kh * c.t + j) * c.d + k);
            out.dk[(kh * c.t + j) * c.d + k] += ds * x.q.get(row * c.d + k);
          }
        }
      }
    }
  }
  return out;
}

void expect_near(const Tensor& got, const std::vector<double>& expected, const char* what) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(expected.size())) << what;
  double largest = 1;
  for (double v : expected) largest = std::max(largest, std::fabs(v));
  for (int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(got.get(i), expected[i], 4e-6 * largest) << what << " element " << i;
}

Launch forward_launch(const Case& c, const Operands& x) {
  Launch launch{.op = "attention", .attributes = attributes_of(c), .inputs = {x.q, x.k, x.v}};
  if (!x.bias.empty()) launch.inputs.push_back(x.bias);
  launch.outputs = {f32_type({c.b, c.h, c.s, c.e}), f32_type({c.b, c.h, c.s})};
  return launch;
}
Launch grad_launch(const Case& c, const Operands& x, const Tensor& y, const Tensor& lse) {
  Launch launch{.op = "attention_grad", .attributes = attributes_of(c), .inputs = {x.dy, x.q, x.k, x.v, y, lse}};
  if (!x.bias.empty()) launch.inputs.push_back(x.bias);
  launch.outputs = {x.q.type(), x.k.type(), x.v.type()};
  return launch;
}

class Attention : public testing::TestWithParam<Case> {};

void expect_definition_and_same_bits(const Case& c) {
  const Operands x = operands_of(c);
  const Expected expected = reference(c, x);
  const std::vector<Tensor> results = launch_everywhere(forward_launch(c, x), "attention_tiled");
  ASSERT_EQ(results.size(), 2u);
  expect_near(results[0], expected.y, "y");
  expect_near(results[1], expected.lse, "lse");
  const std::vector<Tensor> gradients =
      launch_everywhere(grad_launch(c, x, results[0], results[1]), "attention_grad_tiled");
  ASSERT_EQ(gradients.size(), 3u);
  expect_near(gradients[0], expected.dq, "dq");
  expect_near(gradients[1], expected.dk, "dk");
  expect_near(gradients[2], expected.dv, "dv");
}

TEST_P(Attention, equals_the_definition_with_the_same_bits_everywhere) { expect_definition_and_same_bits(GetParam()); }

INSTANTIATE_TEST_SUITE_P(, Attention,
                         testing::Values(Case{1, 1, 1, 1, 1, 1, 1}, Case{1, 2, 2, 5, 7, 3, 2},
                                         Case{2, 2, 2, 96, 64, 16, 16}, Case{1, 1, 1, 97, 65, 16, 32},
                                         Case{1, 1, 1, 200, 150, 20, 9}, Case{1, 2, 2, 64, 64, 64, 64, true},
                                         Case{1, 1, 1, 130, 130, 8, 24, true}, Case{2, 1, 1, 203, 203, 33, 17, true},
                                         Case{1, 1, 1, 150, 40, 16, 16, true}, Case{1, 1, 1, 30, 170, 16, 16, true},
                                         Case{2, 6, 2, 40, 70, 12, 16}, Case{1, 4, 1, 110, 110, 16, 16, true},
                                         Case{1, 2, 2, 20, 30, 16, 16, false, 1.5},
                                         Case{1, 2, 1, 100, 100, 16, 16, true, 2.0},
                                         Case{1, 1, 1, 10, 70, 600, 16, false, 0, {}, 0.03},
                                         Case{2, 2, 2, 20, 70, 16, 16, false, 0, {2, 1, 1, 70}},
                                         Case{2, 2, 2, 20, 70, 16, 16, false, 0, {1, 2, 20, 70}},
                                         Case{2, 2, 2, 100, 100, 16, 16, true, 0, {2, 2, 100, 1}},
                                         Case{1, 4, 2, 30, 67, 16, 16, false, 3.0, {1, 1, 30, 67}}),
                         [](const auto& info) { return cat("case_", info.index); });

// A strip of rows is code of its own for each height, up to 12 with AVX-512 and 6 with AVX2, for each width of one or
// two vectors. Queries are rows of the scores, keys are rows of the gradients (of a single key, which has all the
// weight, they are zero, and what is left of the sums that cancel measures nothing).
TEST(AttentionStrips, of_every_height) {
  for (int64_t rows = 1; rows <= 14; ++rows) {
    SCOPED_TRACE(rows);
    expect_definition_and_same_bits({1, 1, 1, rows, 48, 48, 48});
    if (rows > 1) expect_definition_and_same_bits({1, 1, 1, 48, rows, 48, 48});
    if (testing::Test::HasFailure()) return;
  }
}

// Rows [begin, begin + count) of dimension `d`.
Tensor cut(const Tensor& x, int d, int64_t begin, int64_t count) {
  Shape shape = x.shape();
  const int64_t before = shape[d];
  int64_t outer = 1, inner = 4;
  for (int i = 0; i < d; ++i) outer *= shape[i];
  for (size_t i = d + 1; i < shape.size(); ++i) inner *= shape[i];
  shape[d] = count;
  Tensor y({x.dtype(), shape});
  for (int64_t o = 0; o < outer; ++o) {
    std::memcpy(static_cast<char*>(y.data()) + o * count * inner,
                static_cast<const char*>(x.data()) + (o * before + begin) * inner, static_cast<size_t>(count * inner));
  }
  return y;
}

TEST(AttentionBits, do_not_depend_on_how_batch_heads_and_queries_are_cut) {
  const Case c{4, 4, 2, 150, 100, 16, 24};
  const Operands x = operands_of(c);
  const std::vector<Tensor> full = launch_kernel(forward_launch(c, x));
  const std::vector<Tensor> grads = launch_kernel(grad_launch(c, x, full[0], full[1]));
  {
    Case half = c;
    half.b = 2;
    const Operands y{cut(x.q, 0, 2, 2), cut(x.k, 0, 2, 2), cut(x.v, 0, 2, 2), Tensor(), cut(x.dy, 0, 2, 2)};
    const std::vector<Tensor> part = launch_kernel(forward_launch(half, y));
    EXPECT_TRUE(identical(part[0], cut(full[0], 0, 2, 2)));
    EXPECT_TRUE(identical(part[1], cut(full[1], 0, 2, 2)));
    const std::vector<Tensor> part_grads = launch_kernel(grad_launch(half, y, part[0], part[1]));
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(identical(part_grads[i], cut(grads[i], 0, 2, 2))) << i;
  }
  {
    Case half = c;
    half.h = 2, half.hk = 1;
    const Operands y{cut(x.q, 1, 2, 2), cut(x.k, 1, 1, 1), cut(x.v, 1, 1, 1), Tensor(), cut(x.dy, 1, 2, 2)};
    const std::vector<Tensor> part = launch_kernel(forward_launch(half, y));
    EXPECT_TRUE(identical(part[0], cut(full[0], 1, 2, 2)));
    const std::vector<Tensor> part_grads = launch_kernel(grad_launch(half, y, part[0], part[1]));
    EXPECT_TRUE(identical(part_grads[0], cut(grads[0], 1, 2, 2)));
    for (int i = 1; i < 3; ++i) EXPECT_TRUE(identical(part_grads[i], cut(grads[i], 1, 1, 1))) << i;
  }
  {
    Case some = c;
    some.s = 70;
    const Operands y{cut(x.q, 2, 53, 70), x.k, x.v, Tensor(), cut(x.dy, 2, 53, 70)};
    const std::vector<Tensor> part = launch_kernel(forward_launch(some, y));
    EXPECT_TRUE(identical(part[0], cut(full[0], 2, 53, 70)));
    EXPECT_TRUE(identical(part[1], cut(full[1], 2, 53, 70)));
    const std::vector<Tensor> part_grads = launch_kernel(grad_launch(some, y, part[0], part[1]));
    EXPECT_TRUE(identical(part_grads[0], cut(grads[0], 2, 53, 70)));
  }
}

TEST(AttentionBits, by_tiles_and_by_heads_are_the_same) {
  const Case c{1, 3, 1, 210, 210, 20, 16, true};  // one key head: several threads go by tiles
  const Operands x = operands_of(c);
  const std::vector<Tensor> y = launch_kernel(forward_launch(c, x));
  Launch launch = grad_launch(c, x, y[0], y[1]);
  const std::vector<Tensor> one = launch_kernel(launch);
  launch.threads = 4;
  const std::vector<Tensor> four = launch_kernel(launch);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(identical(one[i], four[i])) << i;
}

TEST(AttentionValues, masked_keys_do_not_count) {
  const float none = -std::numeric_limits<float>::infinity(), hardly = std::numeric_limits<float>::lowest();
  for (float mask : {none, hardly}) {
    for (bool front : {false, true}) {
      Case c{1, 2, 2, 10, 140, 16, 16, false, 0, {1, 1, 1, 140}};
      Operands x = operands_of(c);
      for (int64_t j = 0; j < 140; ++j) x.bias.set(j, (front ? j < 70 : j >= 70) ? mask : 0);
      const std::vector<Tensor> y = launch_kernel(forward_launch(c, x));
      Case less{1, 2, 2, 10, 70, 16, 16};
      const int64_t at = front ? 70 : 0;
      const Operands kept{x.q, cut(x.k, 2, at, 70), cut(x.v, 2, at, 70), Tensor(), x.dy};
      const Expected expected = reference(less, kept);
      expect_near(y[0], expected.y, "y");
      expect_near(y[1], expected.lse, "lse");
      const std::vector<Tensor> grads = launch_kernel(grad_launch(c, x, y[0], y[1]));
      expect_near(grads[0], expected.dq, "dq");
      expect_near(cut(grads[1], 2, at, 70), expected.dk, "dk");
      const Tensor masked = cut(grads[1], 2, 70 - at, 70);
      for (int64_t i = 0; i < masked.elements(); ++i) ASSERT_EQ(masked.get(i), 0);
    }
  }
}

TEST(AttentionValues, a_row_without_keys_is_not_a_number) {
  Case c{1, 1, 1, 3, 70, 16, 16, false, 0, {1, 1, 3, 70}};
  Operands x = operands_of(c);
  for (int64_t j = 0; j < 70; ++j) x.bias.set(70 + j, -std::numeric_limits<double>::infinity());
  const std::vector<Tensor> y = launch_kernel(forward_launch(c, x));
  for (int64_t i = 0; i < 3 * 16; ++i) EXPECT_EQ(std::isnan(y[0].get(i)), i / 16 == 1);
}

TEST(AttentionValues, a_nan_spreads_to_its_row) {
  Case c{1, 1, 1, 20, 70, 16, 16};
  Operands x = operands_of(c);
  x.q.set(5 * 16 + 3, std::nan(""));
  const std::vector<Tensor> y = launch_kernel(forward_launch(c, x));
  for (int64_t i = 0; i < 20 * 16; ++i) EXPECT_EQ(std::isnan(y[0].get(i)), i / 16 == 5) << i;
}

// Far in the future of a causal row there may be anything.
TEST(AttentionValues, the_future_is_not_read) {
  Case c{1, 1, 1, 200, 200, 16, 16, true};
  Operands x = operands_of(c);
  const std::vector<Tensor> before = launch_kernel(forward_launch(c, x));
  for (int64_t i = 120 * 16; i < 200 * 16; ++i) x.v.set(i, std::nan(""));
  const std::vector<Tensor> after = launch_kernel(forward_launch(c, x));
  EXPECT_TRUE(identical(cut(before[0], 2, 0, 108), cut(after[0], 2, 0, 108)));
}

// Masks of exporters make hidden scores the lowest float. A row of such scores weighs all keys equally, and its log-sum
// has lost the log of their number.
TEST(AttentionHidden, rows_of_lowest_scores_have_the_gradients_of_equal_weights) {
  constexpr float lowest = std::numeric_limits<float>::lowest();
  for (const bool causal : {false, true}) {
    Case c{3, 4, 2, 110, 150, 20, 16, causal, 0, {3, 1, 110, 150}};
    Operands x = operands_of(c);
    for (int64_t at = 0; at < x.bias.elements(); ++at) {
      const int64_t key = at % 150, row = at / 150 % 110, sample = at / 150 / 110;
      const bool hidden = sample == 1 ? row % 3 == 0 : sample == 2 && (row > 50 || key < 60);
      x.bias.set(at, hidden ? lowest : 0);
    }
    const Expected expected = reference(c, x);
    const std::vector<Tensor> results = launch_everywhere(forward_launch(c, x), "attention_tiled");
    expect_near(results[0], expected.y, "y");
    const std::vector<Tensor> gradients =
        launch_everywhere(grad_launch(c, x, results[0], results[1]), "attention_grad_tiled");
    expect_near(gradients[0], expected.dq, "dq");
    expect_near(gradients[1], expected.dk, "dk");
    expect_near(gradients[2], expected.dv, "dv");
  }
}

TEST(AttentionMemory, grows_with_the_length_not_with_its_square) {
  const auto workspace = [](const std::string& op, int64_t length) {
    const Case c{1, 2, 2, length, length, 64, 64};
    Launch launch;
    const TensorType wide = f32_type({1, 2, length, 64}), rows = f32_type({1, 2, length});
    KernelQuery q{.op = op, .attributes = attributes_of(c)};
    q.input_types = op == "attention" ? std::vector<TensorType>{wide, wide, wide}
                                      : std::vector<TensorType>{wide, wide, wide, wide, wide, rows};
    q.input_present.assign(q.input_types.size(), true);
    return kernel_table().choose(q).prepared.workspace_bytes;
  };
  EXPECT_EQ(workspace("attention", 1 << 20), workspace("attention", 1 << 10));
  EXPECT_LE(workspace("attention_grad", 1 << 20) - workspace("attention_grad", 1 << 10), (1 << 20) * 2 * 2 * 4);
}

}  // namespace
}  // namespace epl::cpu::attention_test
