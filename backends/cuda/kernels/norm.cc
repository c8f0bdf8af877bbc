// Layer norm and RMS norm over the dimensions from `axis` on, and their gradients. A row has 16 threads. The
// gradients of scale and bias are sums over rows in the canonical order: first the segments of every column, with their
// 16 lanes, then the tree over segments and units.
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};

struct NormShape {
  int64_t rows = 1, width = 1;
};
NormShape norm_shape(const Query& q, const TensorType& x) {
  int64_t axis = q.integer("axis");
  if (axis < 0) axis += x.ndim();
  NormShape s;
  for (int d = 0; d < x.ndim(); ++d) (d < axis ? s.rows : s.width) *= x.shape[static_cast<size_t>(d)];
  return s;
}

// The bits of a float32 as an argument.
Argument number_bits(double value) {
  uint32_t bits = 0;
  store_double(DType::f32, &bits, 0, value);
  return number(bits);
}
constexpr std::string_view read_epsilon = "const float e = __builtin_bit_cast(float, (int)epsilon);\n";

Argument operand(const Query& q, int i) { return q.has(i) ? input(i) : Argument{}; }
Argument result(const Query& q, int i) { return q.has_output(i) ? output(i) : Argument{}; }

Result<Kernel> forward(const Query& q, bool centred) {
  const auto [rows, width] = norm_shape(q, q.in(0));
  EPL_TRY(require(width > 0, "empty rows"));
  const std::string body = cat(constant("n", width),
                               "extern \"C\" __global__ void norm_rows(const float* x, const float* scale, const "
                               "float* bias, float* y, float* mean,\n"
                               "                                float* rstd, long long epsilon) {\n",
                               row_head(rows), "  ", read_epsilon,
                               "  epl::cpu::gpu::forward(x + row * n, scale, bias, e, ", centred ? "true" : "false",
                               ", y ? y + row * n : nullptr, mean && lane == 0 ? mean + row : nullptr,\n               "
                               "          rstd && lane == 0 ? "
                               "rstd + row : nullptr, n);\n}\n");
  Kernel kernel;
  kernel.aliases = {{0, 0}};
  kernel.launches.push_back(launch_threads(
      program({rows_file}, body), "norm_rows", rows * row_threads,
      {input(0), operand(q, 1), centred ? operand(q, 2) : Argument{}, result(q, 0), centred ? result(q, 1) : Argument{},
       result(q, centred ? 2 : 1), number_bits(q.number("epsilon"))}));
  return kernel;
}

// Of one column and one segment of a unit: 16 lanes, joined where there are rows for them.
constexpr std::string_view column_sums = R"text(
extern "C" __global__ void column_sums(const float* dy, const float* x, const float* mean, const float* rstd,
                                       float* scales, float* biases) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= parts * width) return;
  const long long part = t / width, column = t % width, unit = part / segments, segment = part % segments;
  const long long last = fewer(run, (segment + 1) * reduce_segment);
  float scale_sums[16], bias_sums[16];
#pragma unroll
  for (int lane = 0; lane < 16; ++lane) scale_sums[lane] = bias_sums[lane] = 0.0f;
  for (long long i = segment * reduce_segment; i < last; i += 16) {
#pragma unroll
    for (int lane = 0; lane < 16; ++lane) {
      if (i + lane >= last) continue;
      const long long r = position(unit * run + i + lane);
      const float g = dy[r * width + column], m = mean ? mean[r] : 0.0f;
      const float normal = (x[r * width + column] - m) * rstd[r];
      scale_sums[lane] = ::fmaf(g, normal, scale_sums[lane]);
      bias_sums[lane] = bias_sums[lane] + g;
    }
  }
#pragma unroll
  for (int half = 8; half > 0; half /= 2) {
#pragma unroll
    for (int lane = 0; lane < half; ++lane) {
      if (lane + half >= lanes_used) continue;
      scale_sums[lane] = scale_sums[lane] + scale_sums[lane + half];
      bias_sums[lane] = bias_sums[lane] + bias_sums[lane + half];
    }
  }
  if (scales) scales[t] = scale_sums[0];
  if (biases) biases[t] = bias_sums[0];
}
extern "C" __global__ void join_columns(float* sums, float* to) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= width) return;
  float* own = sums + t;
  for (long long u = 0; u < units; ++u) join_strided<Sum>(own + u * segments * width, segments, width);
  join_strided<Sum>(own, units, segments * width);
  to[t] = *own;
}
)text";

Result<Kernel> backward(const Query& q, bool centred) {
  const auto [rows, width] = norm_shape(q, q.in(1));
  EPL_TRY(require(width > 0, "empty rows"));
  EPL_TRY(require(q.units.divide(rows), "units that do not divide the rows"));
  Kernel kernel;
  kernel.aliases = {};
  const Argument dscale = result(q, 1), dbias = centred ? result(q, 2) : Argument{};
  if (rows == 0) {
    for (const Argument& to : {dscale, dbias})
      if (to.kind == Argument::Kind::output) add_fill(kernel, DType::f32, to, width);
    return kernel;
  }
  const Argument mean = centred ? input(2) : Argument{}, rstd = input(centred ? 3 : 2),
                 scale = operand(q, centred ? 4 : 3);
  const Reduction sums({rows}, {0}, q.units);
  const int64_t parts = sums.parts(), bytes = line_aligned(parts * width * 4);
  const std::string body =
      cat(constant("width", width), constant("units", q.units.count), constant("run", sums.run()),
          constant("segments", sums.segments()), constant("parts", parts),
          constant("lanes_used", std::min<int64_t>(sums.run(), 16)), position_function(q.units, rows), column_sums);
  const std::string text = program({reduce_file}, body);
  if (dscale.kind == Argument::Kind::output || dbias.kind == Argument::Kind::output) {
    const Argument scales = dscale.kind == Argument::Kind::output ? workspace(0) : Argument{},
                   biases = dbias.kind == Argument::Kind::output ? workspace(bytes) : Argument{};
    kernel.workspace_bytes = 2 * bytes;
    kernel.launches.push_back(
        launch_threads(text, "column_sums", parts * width, {input(0), input(1), mean, rstd, scales, biases}));
    if (scales.kind == Argument::Kind::workspace)
      kernel.launches.push_back(launch_threads(text, "join_columns", width, {scales, dscale}));
    if (biases.kind == Argument::Kind::workspace)
      kernel.launches.push_back(launch_threads(text, "join_columns", width, {biases, dbias}));
  }
  if (q.has_output(0)) {
    // Last, so that dx may lie over dy or x.
    const std::string of_rows =
        cat(constant("n", width),
            "extern \"C\" __global__ void gradient(const float* dy, const float* x, const float* scale, const float* "
            "mean,\n"
            "                                    const float* rstd, float* dx) {\n",
            row_head(rows),
            "  epl::cpu::gpu::backward(dy + row * n, x + row * n, scale, mean ? mean[row] : 0.0f, rstd[row], ",
            centred ? "true" : "false", ", dx + row * n, nullptr, nullptr, n);\n}\n");
    kernel.launches.push_back(launch_threads(program({rows_file}, of_rows), "gradient", rows * row_threads,
                                             {input(0), input(1), scale, mean, rstd, output(0)}));
    kernel.aliases = {{0, 0}, {1, 0}};
  }
  return kernel;
}

Result<Kernel> layer_norm(const Query& q) { return forward(q, true); }
Result<Kernel> rms_norm(const Query& q) { return forward(q, false); }
Result<Kernel> layer_norm_grad(const Query& q) { return backward(q, true); }
Result<Kernel> rms_norm_grad(const Query& q) { return backward(q, false); }

}  // namespace

Rows norm_rows() {
  return {{"layer_norm", "layer_norm_rows", f32, layer_norm},
          {"rms_norm", "rms_norm_rows", f32, rms_norm},
          {"layer_norm_grad", "layer_norm_grad_columns", f32, layer_norm_grad},
          {"rms_norm_grad", "rms_norm_grad_columns", f32, rms_norm_grad}};
}

}  // namespace epl::cuda
