// Convolutions of types that the CPU has no kernel for, and their gradients: in the order of the ops' meanings, in
// float64. An element is a thread's. They are slow.
#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/conv_geometry.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

Status one_type(const Query& q) {
  EPL_TRY(require(q.in(0).dtype == q.in(1).dtype && q.in(0).dtype == q.out(0).dtype,
                  "operands or a result of another type"));
  EPL_TRY(has_conv_geometry(q));
  return require((q.units.count & (q.units.count - 1)) == 0, "units that are no power of two");
}

// struct P of text/convolution.cuh, and sizes.
std::string geometry_text(const ConvGeometry& g) {
  std::string text = "struct P {\n";
  const std::pair<std::string_view, const int64_t(&)[conv_dims]> lists[] = {
      {"in", g.x},     {"out", g.y}, {"kernel", g.kernel}, {"strides", g.strides}, {"dilations", g.dilations},
      {"pads", g.pads}};
  for (const auto& [name, values] : lists)
    text += cat("  static constexpr long long ", name, "(int d) { return d == 0 ? ", values[0], " : d == 1 ? ",
                values[1], " : ", values[2], "; }\n");
  return cat(text, "};\n", constant("groups", g.groups), constant("in", g.in), constant("out", g.out),
             constant("x_pixels", g.x_pixels), constant("y_pixels", g.y_pixels), constant("taps", g.taps));
}

Kernel launched(const Query& q, const ConvGeometry& g, std::string_view functions, std::string_view parameters,
                std::string_view value, std::vector<Argument> arguments) {
  Kernel kernel;
  const int64_t threads = q.out(0).elements();
  if (threads == 0) return kernel;
  const std::string body =
      cat(element_functions(q.out(0).dtype), geometry_text(g), functions, "extern \"C\" __global__ void convolve(",
          parameters, ") {\n", thread_head(threads), value, "}\n");
  kernel.launches.push_back(launch_threads(program({"backends/cuda/text/convolution.cuh", half_file}, body), "convolve",
                                           threads, std::move(arguments)));
  return kernel;
}

// The bias comes first.
constexpr std::string_view convolved = R"text(
  const long long at = t % y_pixels, o = t / y_pixels % (groups * out), n = t / y_pixels / (groups * out);
  Wide sum = bias ? loaded(bias[o]) : 0;
  for (long long tap = 0; tap < taps; ++tap) {
    const long long pixel = pixel_of_tap<P>(at, tap);
    if (pixel < 0) continue;
    for (long long c = 0; c < in; ++c)
      sum += loaded(x[((n * groups + o / out) * in + c) * x_pixels + pixel]) * loaded(w[(o * in + c) * taps + tap]);
  }
  y[t] = rounded(sum);
)text";

Result<Kernel> forward(const Query& q) {
  EPL_TRY(one_type(q));
  const ConvGeometry g = conv_geometry(q, q.in(0).shape, q.in(1).shape, q.out(0).shape);
  return launched(q, g, "", "const Memory* x, const Memory* w, const Memory* bias, Memory* y", convolved,
                  {input(0), input(1), q.has(2) ? input(2) : Argument{}, output(0)});
}

constexpr std::string_view of_input = R"text(
  const long long pixel = t % x_pixels, c = t / x_pixels % in, g = t / x_pixels / in % groups,
                  n = t / x_pixels / in / groups;
  Wide sum = 0;
  for (long long o = g * out; o < (g + 1) * out; ++o)
    each_window_at<P>(pixel, [&](int64_t at, int64_t tap) {
      sum += loaded(dy[(n * groups * out + o) * y_pixels + at]) * loaded(w[(o * in + c) * taps + tap]);
    });
  dx[t] = rounded(sum);
)text";

Result<Kernel> grad_input(const Query& q) {
  EPL_TRY(one_type(q));
  const ConvGeometry g = conv_geometry(q, q.out(0).shape, q.in(1).shape, q.in(0).shape);
  return launched(q, g, "", "const Memory* dy, const Memory* w, Memory* dx", of_input, {input(0), input(1), output(0)});
}

// Images are added unit by unit.
constexpr std::string_view of_weight = R"text(
  const long long tap = t % taps, c = t / taps % in, o = t / taps / in;
  Wide tree[40];
  for (long long unit = 0;; ++unit) {
    Wide sum = 0;
    for (long long i = unit * run; i < (unit + 1) * run; ++i) {
      const long long n = position(i);
      for (long long at = 0; at < y_pixels; ++at) {
        const long long pixel = pixel_of_tap<P>(at, tap);
        if (pixel < 0) continue;
        sum += loaded(dy[(n * groups * out + o) * y_pixels + at]) *
               loaded(x[((n * groups + o / out) * in + c) * x_pixels + pixel]);
      }
    }
    if (!joined(tree, unit, units, &sum)) continue;
    dw[t] = rounded(sum);
    return;
  }
)text";

Result<Kernel> grad_weight(const Query& q) {
  EPL_TRY(one_type(q));
  const ConvGeometry g = conv_geometry(q, q.in(0).shape, q.out(0).shape, q.in(1).shape);
  const std::string functions = cat(constant("units", q.units.count), constant("run", g.batch / q.units.count),
                                    position_function(q.units, g.batch), join_rounded_function);
  return launched(q, g, functions, "const Memory* x, const Memory* dy, Memory* dw", of_weight,
                  {input(0), input(1), output(0)});
}

}  // namespace

Rows conv_rows_by_meaning() {
  return {{"conv", "conv_by_meaning", other_floats, forward},
          {"conv_grad_input", "conv_grad_input_by_meaning", other_floats, grad_input},
          {"conv_grad_weight", "conv_grad_weight_by_meaning", other_floats, grad_weight}};
}

}  // namespace epl::cuda
