// Convolution and its two gradients as order-invariant products, whose patches are found as they are read; see
// backends/cpu/kernels/conv.cc. Operands are float32, or of 16 bits with a result of float32 (`wide`).
#include <numeric>

#include "backends/cuda/generate/product.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/conv_dnn.h"
#include "backends/cuda/kernels/conv_geometry.h"
#include "backends/cuda/kernels/conv_winograd.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType conv_operands[] = {DType::f32, DType::bf16, DType::f16};
// Patches of a batch of images as a matrix: a row per (channel, tap), a column per (image, position). Along dimension d
// the element lies at position * step + start + tap * tap_step, and is 0 where that is outside.
struct Patches {
  int64_t image = 0, group = 0, channel = 0;  // strides in elements
  int64_t positions[conv_dims], sizes[conv_dims], kernel[conv_dims];
  int64_t step[conv_dims], start[conv_dims], tap_step[conv_dims];
  int64_t columns() const { return positions[0] * positions[1] * positions[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }

  // `float patch(Operand data, long long group, long long row, long long column)`
  std::string function() const {
    std::string text =
        cat("inline float patch(Operand data, long long group, long long row, long long column) {\n"
            "  const long long image = column / ",
            columns(), ", channel = row / ", taps(), ";\n  long long position = column % ", columns(), ", tap = row % ",
            taps(), ", at = 0, plane = 1, i;\n");
    for (int d = conv_dims - 1; d >= 0; --d) {
      text += cat("  i = position % ", positions[d], " * ", step[d], " + ", start[d], " + tap % ", kernel[d], " * ",
                  tap_step[d], ";\n  if (i < 0 || i >= ", sizes[d],
                  ") return 0.0f;\n  at += i * plane;\n  plane *= ", sizes[d], ";\n  position /= ", positions[d],
                  ";\n  tap /= ", kernel[d], ";\n");
    }
    return text + cat("  return data[image * ", image, " + group * ", group, " + channel * ", channel, " + at];\n}\n");
  }
};

Patches patches_of_x(const ConvGeometry& g) {
  Patches p{};
  p.channel = g.x_pixels;
  p.group = g.in * g.x_pixels;
  p.image = g.groups * p.group;
  for (int d = 0; d < conv_dims; ++d) {
    p.positions[d] = g.y[d], p.sizes[d] = g.x[d], p.kernel[d] = g.kernel[d];
    p.step[d] = g.strides[d], p.start[d] = -g.pads[d], p.tap_step[d] = g.dilations[d];
  }
  return p;
}

Status accepts(const Query& q) {
  EPL_TRY(sums_are_wide(q));
  return has_conv_geometry(q);
}

Result<Kernel> forward(const Query& q) {
  EPL_TRY(accepts(q));
  const ConvGeometry g = conv_geometry(q, q.in(0).shape, q.in(1).shape, q.out(0).shape);
  Product p;
  p.m = g.out;
  p.k = g.in * g.taps;
  p.n = g.batch * g.y_pixels;
  p.batch = g.groups;
  p.type = q.in(0).dtype;
  p.functions = patches_of_x(g).function();
  p.a = cat("a_data[(batch * ", p.m, " + row) * ", p.k, " + k]");
  p.b = "patch(b_data, batch, k, column)";
  p.c = cat("(column / ", g.y_pixels, " * ", g.groups * g.out, " + batch * ", g.out, " + row) * ", g.y_pixels,
            " + column % ", g.y_pixels);
  if (q.has(2)) p.bias = cat("bias_data[batch * ", g.out, " + row]");
  Kernel kernel;
  add_product(kernel, p, input(1), input(0), q.has(2) ? input(2) : Argument{}, output(0));
  return kernel;
}

// The pixels at `phase` modulo the strides: pixel position * stride + phase meets tap t in output
// (position * stride + phase + pad - t * dilation) / stride.
void add_phase(Kernel& kernel, const ConvGeometry& g, DType type, const int64_t (&phase)[conv_dims]) {
  Patches patches{};
  patches.channel = g.y_pixels;
  patches.group = g.out * g.y_pixels;
  patches.image = g.groups * patches.group;
  std::string tap = "0", pixel = "0";
  for (int d = 0; d < conv_dims; ++d) {
    const int64_t stride = g.strides[d], shift = phase[d] + g.pads[d], skip = stride / std::gcd(stride, g.dilations[d]);
    int64_t first = 0;
    while (first < g.kernel[d] && (shift - first * g.dilations[d]) % stride != 0) ++first;
    const int64_t used = first < g.kernel[d] ? (g.kernel[d] - first - 1) / skip + 1 : 0;
    patches.positions[d] = g.x[d] > phase[d] ? (g.x[d] - phase[d] - 1) / stride + 1 : 0;
    patches.sizes[d] = g.y[d];
    patches.kernel[d] = used;
    patches.step[d] = 1;
    patches.start[d] = used ? (shift - first * g.dilations[d]) / stride : 0;
    patches.tap_step[d] = -(g.dilations[d] * skip / stride);
    tap = cat("(", tap, ") * ", g.kernel[d], " + ", first, " + used", d, " * ", skip);
    pixel = cat("(", pixel, ") * ", g.x[d], " + ", phase[d], " + at", d, " * ", stride);
  }
  Product p;
  p.m = g.in;
  p.k = g.out * patches.taps();
  p.n = g.batch * patches.columns();
  p.batch = g.groups;
  p.type = type;
  if (p.k == 0 || p.n == 0) return;
  const auto split = [](std::string_view name, const int64_t(&sizes)[conv_dims], std::string_view from) {
    return cat("  const long long ", name, "2 = ", from, " % ", sizes[2], ", ", name, "1 = ", from, " / ", sizes[2],
               " % ", sizes[1], ", ", name, "0 = ", from, " / ", sizes[2] * sizes[1], ";\n");
  };
  p.functions =
      cat(patches.function(), "inline long long tap_of(long long used) {\n", split("used", patches.kernel, "used"),
          "  return ", tap, ";\n}\ninline long long pixel_of(long long at) {\n", split("at", patches.positions, "at"),
          "  return ", pixel, ";\n}\n");
  p.a = cat("a_data[((batch * ", g.out, " + k / ", patches.taps(), ") * ", g.in, " + row) * ", g.taps, " + tap_of(k % ",
            patches.taps(), ")]");
  p.b = "patch(b_data, batch, k, column)";
  p.c = cat("(column / ", patches.columns(), " * ", g.groups * g.in, " + batch * ", g.in, " + row) * ", g.x_pixels,
            " + pixel_of(column % ", patches.columns(), ")");
  add_product(kernel, p, input(1), input(0), Argument{}, output(0));
}

Result<Kernel> grad_input(const Query& q) {
  EPL_TRY(accepts(q));
  const ConvGeometry g = conv_geometry(q, q.out(0).shape, q.in(1).shape, q.in(0).shape);
  Kernel kernel;
  // What no tap meets.
  add_fill(kernel, DType::f32, output(0), q.out(0).elements());
  int64_t phase[conv_dims];
  for (phase[0] = 0; phase[0] < g.strides[0]; ++phase[0])
    for (phase[1] = 0; phase[1] < g.strides[1]; ++phase[1])
      for (phase[2] = 0; phase[2] < g.strides[2]; ++phase[2]) add_phase(kernel, g, q.in(0).dtype, phase);
  return kernel;
}

Result<Kernel> grad_weight(const Query& q) {
  EPL_TRY(accepts(q));
  const ConvGeometry g = conv_geometry(q, q.in(0).shape, q.out(0).shape, q.in(1).shape);
  Product p;
  p.m = g.out;
  p.n = g.in * g.taps;
  p.k = g.batch * g.y_pixels;
  p.units = q.units.count;
  p.batch = g.groups;
  p.type = q.in(0).dtype;
  p.functions = position_function(q.units, p.k) + patches_of_x(g).function();
  p.functions += cat("inline long long pixel_at(long long k) { return k / ", std::max<int64_t>(g.y_pixels, 1), " * ",
                     g.groups * g.out * g.y_pixels, " + k % ", std::max<int64_t>(g.y_pixels, 1), "; }\n");
  p.a = cat("a_data[(batch * ", g.out, " + row) * ", g.y_pixels, " + pixel_at(position(k))]");
  p.b = "patch(b_data, batch, column, position(k))";
  p.b_columns_follow = false;
  p.c = cat("(batch * ", p.m, " + row) * ", p.n, " + column");
  Kernel kernel;
  if (p.k == 0) {
    add_fill(kernel, DType::f32, output(0), q.out(0).elements());
    return kernel;
  }
  add_product(kernel, p, input(1), input(0), Argument{}, output(0));
  return kernel;
}

}  // namespace

Rows conv_rows() {
  return {{"conv", "conv_dnn", conv_operands, dnn_forward},
          {"conv", "conv_winograd", conv_operands, winograd_forward},
          {"conv", "conv_ordered", conv_operands, forward},
          {"conv_grad_input", "conv_grad_input_dnn", conv_operands, dnn_grad_input},
          {"conv_grad_input", "conv_grad_input_winograd", conv_operands, winograd_grad_input},
          {"conv_grad_input", "conv_grad_input_ordered", conv_operands, grad_input},
          {"conv_grad_weight", "conv_grad_weight_dnn", conv_operands, dnn_grad_weight},
          {"conv_grad_weight", "conv_grad_weight_winograd", conv_operands, winograd_grad_weight},
          {"conv_grad_weight", "conv_grad_weight_ordered", conv_operands, grad_weight}};
}

}  // namespace epl::cuda
