// Layer norm, RMS norm and their gradients against double, and the order of their sums over rows.
#include <cmath>

#include "tests/kernels/canonical.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::norm_test {
namespace {

struct Case {
  int64_t rows, width;
  bool centred, scale, bias;
};

struct Exact {
  std::vector<double> y, mean, rstd;
};
Exact exact_forward(const Case& c, const Tensor& x, const Tensor& scale, const Tensor& bias, double epsilon) {
  Exact e;
  for (int64_t r = 0; r < c.rows; ++r) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < c.width && c.centred; ++i) mean += x.get(r * c.width + i) / static_cast<double>(c.width);
    for (int64_t i = 0; i < c.width; ++i)
      square += std::pow(x.get(r * c.width + i) - mean, 2) / static_cast<double>(c.width);
    double rstd = 1 / std::sqrt(square + epsilon);
    e.mean.push_back(mean);
    e.rstd.push_back(rstd);
    for (int64_t i = 0; i < c.width; ++i) {
      double v = (x.get(r * c.width + i) - mean) * rstd;
      e.y.push_back(v * (c.scale ? scale.get(i) : 1) + (c.bias ? bias.get(i) : 0));
    }
  }
  return e;
}

void check(const Case& c) {
  Tensor x = random_f32({c.rows, c.width}, 1, -1, 3), dy = random_f32({c.rows, c.width}, 2);
  Tensor scale = c.scale ? random_f32({c.width}, 3, 0.5, 1.5) : Tensor(),
         bias = c.bias ? random_f32({c.width}, 4) : Tensor();
  TensorType statistics = f32_type({c.rows, 1});
  Launch forward = {.op = c.centred ? "layer_norm" : "rms_norm",
                    .attributes = {{"axis", int64_t{-1}}, {"epsilon", 1e-5}},
                    .inputs = {x, scale},
                    .outputs = {x.type(), statistics}};
  if (c.centred) forward.inputs.push_back(bias), forward.outputs.push_back(statistics);
  std::vector<Tensor> got = launch_everywhere(forward);
  Exact want = exact_forward(c, x, scale, bias, 1e-5);
  for (int64_t i = 0; i < x.elements(); ++i) ASSERT_TRUE(near(got[0].get(i), want.y[i], 1e-5, 1e-5)) << i;
  for (int64_t r = 0; r < c.rows; ++r) {
    if (c.centred) {
      ASSERT_TRUE(near(got[1].get(r), want.mean[r], 1e-6, 1e-6));
    }
    ASSERT_TRUE(near(got[c.centred ? 2 : 1].get(r), want.rstd[r], 3e-6));
  }
  forward.aliases = {{0, 0}};
  EXPECT_TRUE(identical(got[0], launch_kernel(forward)[0]));

  Launch backward = {.op = c.centred ? "layer_norm_grad" : "rms_norm_grad",
                     .attributes = {{"axis", int64_t{-1}}},
                     .inputs = {dy, x},
                     .outputs = {x.type(), f32_type({c.width})}};
  for (size_t i = 1; i < got.size(); ++i) backward.inputs.push_back(got[i]);
  backward.inputs.push_back(scale);
  if (c.centred) backward.outputs.push_back(f32_type({c.width}));
  std::vector<double> dscale(c.width, 0.0), dbias(c.width, 0.0);
  std::vector<Tensor> grads = launch_everywhere(backward);
  for (int64_t r = 0; r < c.rows; ++r) {
    double sum = 0, product = 0, n = static_cast<double>(c.width);
    auto normal = [&](int64_t i) { return (x.get(r * c.width + i) - want.mean[r]) * want.rstd[r]; };
    auto scaled = [&](int64_t i) { return dy.get(r * c.width + i) * (c.scale ? scale.get(i) : 1.0); };
    for (int64_t i = 0; i < c.width; ++i) {
      sum += scaled(i);
      product += scaled(i) * normal(i);
      dscale[i] += dy.get(r * c.width + i) * normal(i);
      dbias[i] += dy.get(r * c.width + i);
    }
    for (int64_t i = 0; i < c.width; ++i) {
      double dx = (scaled(i) - (c.centred ? sum / n : 0) - normal(i) * product / n) * want.rstd[r];
      ASSERT_TRUE(near(grads[0].get(r * c.width + i), dx, 1e-4, 1e-4))
          << r << " " << i << " " << grads[0].get(r * c.width + i) << " " << dx;
    }
  }
  for (int64_t i = 0; i < c.width; ++i) {
    ASSERT_TRUE(near(grads[1].get(i), dscale[i], 1e-5, 1e-3));
    if (c.centred) {
      ASSERT_TRUE(near(grads[2].get(i), dbias[i], 1e-5, 1e-3));
    }
  }
  for (int over : {0, 1}) {
    backward.aliases = {{over, 0}};
    EXPECT_TRUE(identical(grads[0], launch_kernel(backward)[0]));
    EXPECT_TRUE(identical(grads[1], launch_kernel(backward)[1]));
  }
}

TEST(Norm, AgreesWithDouble) {
  for (bool centred : {true, false}) {
    for (bool scale : {true, false}) {
      check({5, 7, centred, scale, centred && scale});
      check({40, 768, centred, scale, centred});
      check({3, 1100, centred, scale, false});
      check({2100, 9, centred, scale, centred});
      check({1, 1, centred, scale, centred});
    }
  }
}

// Bias gradients are plain sums of rows: bit for bit those of the definition, unit by unit.
TEST(Norm, SumsOverRowsInTheCanonicalOrder) {
  for (int64_t rows : {8, 48, 2048, 8800}) {
    Tensor x = random_f32({rows, 33}, 1), dy = random_f32({rows, 33}, 2), mean = random_f32({rows, 1}, 3),
           rstd = random_f32({rows, 1}, 4, 0.5, 1);
    for (int64_t units : {1, 2, 8}) {
      Launch launch = {.op = "layer_norm_grad",
                       .attributes = {{"axis", int64_t{1}}},
                       .inputs = {dy, x, mean, rstd},
                       .outputs = {x.type(), f32_type({33}), f32_type({33})},
                       .units = units};
      Tensor dbias = launch_everywhere(launch)[2];
      for (int64_t i = 0; i < 33; ++i) {
        std::vector<float> column;
        for (int64_t r = 0; r < rows; ++r) column.push_back(dy.as<float>()[r * 33 + i]);
        ASSERT_EQ(dbias.as<float>()[i], canonical(column, units, canonical_sum))
            << rows << " rows, " << units << " units, column " << i;
      }
      launch.wanted = {false, false, true};
      EXPECT_TRUE(identical(dbias, launch_kernel(launch)[2]));
    }
  }
}

TEST(Norm, SeveralNormalisedDimensions) {
  Tensor x = random_f32({4, 3, 5}, 1), scale = random_f32({3, 5}, 2), flat = x.reshaped({4, 15}),
         flat_scale = scale.reshaped({15});
  Launch nested = {.op = "layer_norm",
                   .attributes = {{"axis", int64_t{1}}, {"epsilon", 1e-5}},
                   .inputs = {x, scale},
                   .outputs = {x.type(), f32_type({4, 1, 1}), f32_type({4, 1, 1})}};
  Launch rows = {.op = "layer_norm",
                 .attributes = {{"axis", int64_t{-1}}, {"epsilon", 1e-5}},
                 .inputs = {flat, flat_scale},
                 .outputs = {flat.type(), f32_type({4, 1}), f32_type({4, 1})}};
  EXPECT_TRUE(identical(launch_kernel(nested)[0].reshaped({4, 15}), launch_kernel(rows)[0]));
}

}  // namespace
}  // namespace epl::cpu::norm_test
