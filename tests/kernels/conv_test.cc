// The rows of convolution and its gradients against loops in double that follow the definition.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::conv_test {
namespace {

struct Conv {
  Shape x, w;  // [batch, channels, spatial...], [out, channels/groups, kernel...]
  Ints strides, pads, dilations;
  int64_t groups = 1;

  int64_t stride(size_t d) const { return strides.empty() ? 1 : strides[d]; }
  int64_t dilation(size_t d) const { return dilations.empty() ? 1 : dilations[d]; }
  int64_t pad(size_t d) const { return pads.empty() ? 0 : pads[d]; }
  Shape y() const {
    Shape shape = {x[0], w[0]};
    for (size_t d = 0; d + 2 < x.size(); ++d) {
      const int64_t all = pads.empty() ? 0 : pads[d] + pads[d + x.size() - 2];
      shape.push_back((x[d + 2] + all - dilation(d) * (w[d + 2] - 1) - 1) / stride(d) + 1);
    }
    return shape;
  }
  Attributes attributes(const Shape* shape = nullptr) const {
    Attributes a = {{"strides", strides}, {"pads", pads}, {"dilations", dilations}, {"groups", groups}};
    if (shape) a.set("shape", *shape);
    return a;
  }
};

// Calls f(x index, w index, y index) for every multiplication of a convolution.
void for_each_product(const Conv& c, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  const Shape y = c.y();
  const size_t dims = c.x.size() - 2;
  const int64_t positions = element_count(Shape(y.begin() + 2, y.end())),
                taps = element_count(Shape(c.w.begin() + 2, c.w.end()));
  const int64_t pixels = element_count(Shape(c.x.begin() + 2, c.x.end())), in = c.w[1], out = c.w[0] / c.groups;
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t t = 0; t < taps; ++t) {
      int64_t pixel = 0, rest_p = p, rest_t = t, step = 1;
      bool inside = true;
      for (size_t d = dims; d-- > 0;) {
        const int64_t at = rest_p % y[d + 2] * c.stride(d) - c.pad(d) + rest_t % c.w[d + 2] * c.dilation(d);
        rest_p /= y[d + 2];
        rest_t /= c.w[d + 2];
        inside = inside && at >= 0 && at < c.x[d + 2];
        pixel += at * step;
        step *= c.x[d + 2];
      }
      if (!inside) continue;
      for (int64_t n = 0; n < c.x[0]; ++n)
        for (int64_t o = 0; o < c.w[0]; ++o)
          for (int64_t i = 0; i < in; ++i)
            f((n * c.x[1] + o / out * in + i) * pixels + pixel, (o * in + i) * taps + t,
              (n * c.w[0] + o) * positions + p);
    }
}

std::vector<Conv> cases() {
  return {{.x = {2, 3, 9, 11}, .w = {8, 3, 3, 3}, .pads = {1, 1, 1, 1}},
          {.x = {3, 4, 7, 7}, .w = {20, 4, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}},
          {.x = {2, 5, 20, 33}, .w = {7, 5, 5, 2}, .strides = {3, 1}, .pads = {2, 0, 0, 1}},
          {.x = {2, 6, 12, 10}, .w = {9, 2, 3, 3}, .pads = {2, 2, 2, 2}, .dilations = {2, 2}, .groups = 3},
          {.x = {2, 5, 8, 40}, .w = {5, 1, 3, 3}, .strides = {1, 2}, .pads = {1, 1, 1, 1}, .groups = 5},
          {.x = {4, 70, 5, 5}, .w = {33, 70, 1, 1}},
          {.x = {2, 8, 6, 6}, .w = {12, 8, 1, 1}, .strides = {2, 2}},
          {.x = {3, 4, 50}, .w = {6, 2, 5}, .strides = {2}, .pads = {4, 0}, .groups = 2},
          {.x = {2, 2, 6, 5, 7}, .w = {4, 2, 2, 3, 3}, .strides = {1, 2, 1}, .pads = {0, 1, 1, 1, 1, 1}},
          {.x = {1, 1, 3, 3}, .w = {1, 1, 3, 3}, .pads = {3, 3, 3, 3}},
          {.x = {2, 9, 7, 7}, .w = {12, 9, 3, 3}, .pads = {1, 1, 1, 1}},
          {.x = {2, 6, 30, 38}, .w = {10, 6, 3, 3}, .strides = {2, 2}, .pads = {1, 1, 1, 1}},
          {.x = {2, 3, 1, 9}, .w = {4, 3, 1, 3}, .strides = {2, 2}, .pads = {0, 1, 0, 1}},
          {.x = {3, 5, 6, 1}, .w = {4, 5, 3, 1}, .strides = {2, 3}, .pads = {1, 0, 1, 0}},
          {.x = {3, 17, 14, 15}, .w = {40, 17, 3, 3}, .pads = {1, 1, 1, 1}},
          {.x = {1, 20, 9, 30}, .w = {16, 20, 3, 3}, .pads = {0, 2, 1, 3}},
          {.x = {5, 33, 7, 7}, .w = {16, 33, 3, 3}, .pads = {1, 1, 1, 1}},
          {.x = {4, 5, 33, 34}, .w = {37, 5, 3, 3}, .pads = {1, 2, 0, 1}},
          {.x = {1, 300, 8, 5}, .w = {70, 300, 3, 3}, .pads = {1, 1, 1, 1}}};
}

void expect_near(const Tensor& got, const std::vector<double>& want, const char* what, size_t number) {
  ASSERT_EQ(got.elements(), static_cast<int64_t>(want.size()));
  double largest = 0;
  for (double value : want) largest = std::max(largest, std::abs(value));
  for (int64_t e = 0; e < got.elements(); ++e)
    ASSERT_TRUE(near(got.get(e), want[e], 2e-5, 1e-5 + 4e-6 * largest))
        << what << " " << number << " element " << e << ": " << got.get(e) << ", not " << want[e];
}

TEST(Conv, ForwardWithAndWithoutBias) {
  for (size_t i = 0; i < cases().size(); ++i) {
    const Conv c = cases()[i];
    const Tensor x = random_f32(c.x, 1), w = random_f32(c.w, 2), bias = random_f32({c.w[0]}, 3);
    const int64_t positions = element_count(c.y()) / c.x[0] / c.w[0];
    for (bool biased : {false, true}) {
      std::vector<double> want(element_count(c.y()), 0.0);
      for_each_product(c, [&](int64_t a, int64_t b, int64_t y) { want[y] += x.get(a) * w.get(b); });
      if (biased)
        for (size_t e = 0; e < want.size(); ++e) want[e] += bias.get(e / positions % c.w[0]);
      const Launch launch = {.op = "conv",
                             .attributes = c.attributes(),
                             .inputs = biased ? std::vector<Tensor>{x, w, bias} : std::vector<Tensor>{x, w},
                             .outputs = {f32_type(c.y())}};
      expect_near(launch_everywhere(launch)[0], want, "forward", i);
    }
  }
}

TEST(Conv, GradientByTheInput) {
  for (size_t i = 0; i < cases().size(); ++i) {
    const Conv c = cases()[i];
    const Tensor dy = random_f32(c.y(), 1), w = random_f32(c.w, 2);
    std::vector<double> want(element_count(c.x), 0.0);
    for_each_product(c, [&](int64_t x, int64_t b, int64_t y) { want[x] += dy.get(y) * w.get(b); });
    const Launch launch = {
        .op = "conv_grad_input", .attributes = c.attributes(&c.x), .inputs = {dy, w}, .outputs = {f32_type(c.x)}};
    expect_near(launch_everywhere(launch)[0], want, "gradient by the input", i);
  }
}

TEST(Conv, GradientByTheWeight) {
  for (size_t i = 0; i < cases().size(); ++i) {
    const Conv c = cases()[i];
    const Tensor x = random_f32(c.x, 1), dy = random_f32(c.y(), 2);
    std::vector<double> want(element_count(c.w), 0.0);
    for_each_product(c, [&](int64_t a, int64_t b, int64_t y) { want[b] += x.get(a) * dy.get(y); });
    const Launch launch = {.op = "conv_grad_weight",
                           .attributes = c.attributes(&c.w),
                           .inputs = {x, dy},
                           .outputs = {f32_type(c.w)},
                           .units = c.x[0] % 2 ? 1 : 2};
    expect_near(launch_everywhere(launch)[0], want, "gradient by the weight", i);
  }
}

Tensor images(const Tensor& t, int64_t first, int64_t count) {
  Shape shape = t.shape();
  const int64_t size = t.elements() / shape[0];
  shape[0] = count;
  Tensor run(f32_type(shape));
  std::memcpy(run.data(), t.as<float>().data() + first * size, run.bytes());
  return run;
}

// Cutting the batch leaves the bits: of every image in the outputs, and of the sum over units in the gradient by the
// weight.
void cut_the_batch(const Conv& c) {
  const Tensor x = random_f32(c.x, 1), w = random_f32(c.w, 2), dy = random_f32(c.y(), 3);
  const auto weight = [&](int64_t first, int64_t count) {
    return launch_everywhere({.op = "conv_grad_weight",
                              .attributes = c.attributes(&c.w),
                              .inputs = {images(x, first, count), images(dy, first, count)},
                              .outputs = {f32_type(c.w)},
                              .units = count})[0];
  };
  const auto other = [&](const char* op, const Tensor& operand, const Shape& shape, int64_t first, int64_t count) {
    Shape local = shape;
    local[0] = count;
    return launch_everywhere({.op = op,
                              .attributes = c.attributes(&local),
                              .inputs = {images(operand, first, count), w},
                              .outputs = {f32_type(local)}})[0];
  };
  const Tensor dw = weight(0, 8), low = weight(0, 4), high = weight(4, 4);
  for (int64_t e = 0; e < dw.elements(); ++e) ASSERT_EQ(dw.as<float>()[e], low.as<float>()[e] + high.as<float>()[e]);
  const Tensor y = other("conv", x, c.y(), 0, 8), dx = other("conv_grad_input", dy, c.x, 0, 8);
  EXPECT_TRUE(identical(images(y, 3, 2), other("conv", x, c.y(), 3, 2)));
  EXPECT_TRUE(identical(images(dx, 3, 2), other("conv_grad_input", dy, c.x, 3, 2)));
}

TEST(Conv, CutsOfTheBatchLeaveTheBits) {
  for (const Conv& c : {Conv{.x = {8, 6, 9, 7}, .w = {10, 6, 3, 3}, .strides = {2, 1}, .pads = {1, 1, 1, 1}},
                        Conv{.x = {8, 16, 9, 7}, .w = {24, 16, 3, 3}, .pads = {1, 1, 1, 1}},
                        Conv{.x = {8, 18, 15, 17}, .w = {35, 18, 3, 3}, .pads = {1, 1, 1, 1}}})
    cut_the_batch(c);
}

TEST(Conv, WinogradServesWhatItPaysFor) {
  const auto row_of = [](const Conv& c, bool splits_keep_bits) {
    KernelQuery q = query_of({.op = "conv",
                              .attributes = c.attributes(),
                              .inputs = {random_f32(c.x, 1), random_f32(c.w, 2)},
                              .outputs = {f32_type(c.y())}});
    q.splits_keep_bits = splits_keep_bits;
    return choose_kernel(q, {}, kernel_table()).row->name;
  };
  const Conv good{.x = {1, 16, 8, 8}, .w = {16, 16, 3, 3}, .pads = {1, 1, 1, 1}};
  EXPECT_EQ(row_of(good, false), "conv_winograd");
  EXPECT_EQ(row_of(good, true), "conv_ordered");
  Conv other = good;
  other.strides = {1, 2};
  EXPECT_EQ(row_of(other, false), "conv_ordered");
  other = good;
  other.x = {1, 16, 3, 2};  // a tile of 6 outputs
  EXPECT_EQ(row_of(other, false), "conv_winograd");
  other.pads = {0, 1, 1, 1};  // of 4
  EXPECT_EQ(row_of(other, false), "conv_ordered");
  other = good;
  other.w = {15, 16, 3, 3};
  EXPECT_EQ(row_of(other, false), "conv_ordered");
}

// Every unit gives the taps of its own sum, so that any part of the channels has the bits of the full.
TEST(Conv, WinogradServesGradientsByTheWeightOfAnyChannels) {
  const auto row_of = [](int64_t channels, int64_t units, int64_t size, bool splits_keep_bits) {
    const Conv c{.x = {4, channels, size, size}, .w = {channels, channels, 3, 3}, .pads = {1, 1, 1, 1}};
    KernelQuery q = query_of({.op = "conv_grad_weight",
                              .attributes = c.attributes(&c.w),
                              .inputs = {random_f32(c.x, 1), random_f32(c.y(), 2)},
                              .outputs = {f32_type(c.w)},
                              .units = units});
    q.splits_keep_bits = splits_keep_bits;
    return choose_kernel(q, {}, kernel_table()).row->name;
  };
  EXPECT_EQ(row_of(16, 4, 16, false), "conv_grad_weight_winograd");
  EXPECT_EQ(row_of(1, 4, 16, false), "conv_grad_weight_winograd");
  EXPECT_EQ(row_of(16, 4, 16, true), "conv_grad_weight_ordered");
  EXPECT_EQ(row_of(16, 4, 12, false), "conv_grad_weight_ordered");  // 9 tiles in a unit
  EXPECT_EQ(row_of(16, 2, 12, false), "conv_grad_weight_winograd");
}

TEST(Conv, FourSpatialDimensionsAreRefused) {
  const Conv c{.x = {1, 1, 2, 2, 2, 2}, .w = {1, 1, 1, 1, 1, 1}};
  const KernelQuery q = query_of({.op = "conv",
                                  .attributes = c.attributes(),
                                  .inputs = {random_f32(c.x, 1), random_f32(c.w, 2)},
                                  .outputs = {f32_type(c.y())}});
  std::string why;
  for (const auto& row : kernel_table().rows("conv")) {
    const Status refused = prepare(row, q).status();
    EXPECT_FALSE(refused.ok());
    why += cat(refused.to_string(), "\n");
  }
  EXPECT_NE(why.find("spatial"), std::string::npos) << why;
}

}  // namespace
}  // namespace epl::cpu::conv_test
