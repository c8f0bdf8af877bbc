// Layer norm and RMS norm over the dimensions from `axis` on, and their gradients.
//
// The gradients of scale and bias are sums over rows in the canonical order (reduce_order.h): a task takes the rows of
// one lane of one segment of one unit, so that its sums stay in the first-level cache while dx is written; a second
// pass joins lanes, segments and units.
#include "backends/cpu/kernels/norm.h"

#include "backends/cpu/kernels/reduce_order.h"
#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

struct NormShape {
  int64_t rows = 1, width = 1;
};
NormShape norm_shape(const KernelQuery& q, const TensorType& x) {
  int64_t axis = q.attributes.integer("axis");
  if (axis < 0) axis += x.ndim();
  NormShape s;
  for (int d = 0; d < x.ndim(); ++d) (d < axis ? s.rows : s.width) *= x.shape[d];
  return s;
}

Status accepts(const KernelQuery& q) {
  EPL_TRY(require(norm_shape(q, q.in(0)).width > 0, "empty rows"));
  return require_vectors();
}
Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(accepts(q));
  return Prepared{.aliases = {{.input = 0, .output = 0}}};
}

// Optional operands and outputs: null where there are none.
const float* operand(const KernelCall& call, int i) { return i < call.query.inputs() ? call.in<float>(i) : nullptr; }
float* result(const KernelCall& call, int i) { return i < call.query.outputs() ? call.out<float>(i) : nullptr; }

template <bool centred> void forward(const KernelCall& call) {
  auto [rows, width] = norm_shape(call.query, call.query.in(0));
  auto* loop = EPL_CPU_CHOOSE(norm_loops)().forward;
  const float *x = operand(call, 0), *scale = operand(call, 1), *bias = centred ? operand(call, 2) : nullptr;
  float *y = result(call, 0), *mean = centred ? result(call, 1) : nullptr, *rstd = result(call, centred ? 2 : 1);
  float epsilon = static_cast<float>(call.attributes().number("epsilon"));
  for_each_row(call.threads(), rows, width, [&, n = width](int64_t r) {
    loop(x + r * n, scale, bias, epsilon, centred, y ? y + r * n : nullptr, mean ? mean + r : nullptr,
         rstd ? rstd + r : nullptr, n);
  });
}

// Sums over rows: into how many partial sums they are divided.
struct RowSums {
  int64_t run, segments, lanes, parts;
  RowSums(int64_t rows, int64_t units)
      : run(rows / units),
        segments(segment_count(run)),
        lanes(std::min<int64_t>(run, reduce_lanes)),
        parts(units * segments * lanes) {}
};

template <bool centred> Result<Prepared> prepare_backward(const KernelQuery& q) {
  auto [rows, width] = norm_shape(q, q.in(1));
  EPL_TRY(require(q.units.divide(rows), "units that do not divide the rows"));
  EPL_TRY(accepts(q));
  return Prepared{.workspace_bytes = RowSums(rows, q.units.count).parts * width * (centred ? 2 : 1) * 4,
                  .aliases = {{.input = 0, .output = 0}, {.input = 1, .output = 0}}};
}

// partials[unit][segment][lane] to the sum over all, a block of columns at a time.
void join_rows(const NormLoops& loops, float* partials, const RowSums& sums, int64_t units, int64_t width, float* to,
               ThreadPool& threads) {
  constexpr int64_t block = 256;
  auto join = [&](int64_t first, int64_t count, int64_t stride, int64_t column, int64_t n) {
    for (int64_t step = 1; step < count; step *= 2) {
      for (int64_t i = 0; i + step < count; i += 2 * step) {
        loops.add(partials + (first + i * stride) * width + column,
                  partials + (first + (i + step) * stride) * width + column, n);
      }
    }
  };
  threads.run_ranges((width + block - 1) / block, std::max<int64_t>(1, task_values / (sums.parts * block)),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t b = begin; b < end; ++b) {
                         int64_t column = b * block, n = std::min(block, width - column);
                         for (int64_t s = 0; s < units * sums.segments; ++s) {
                           for (int64_t half = reduce_lanes / 2; half > 0; half /= 2) {
                             for (int64_t l = 0; l + half < std::min(sums.lanes, 2 * half); ++l) {
                               float* lane = partials + (s * sums.lanes + l) * width + column;
                               loops.add(lane, lane + half * width, n);
                             }
                           }
                         }
                         for (int64_t u = 0; u < units; ++u)
                           join(u * sums.segments * sums.lanes, sums.segments, sums.lanes, column, n);
                         join(0, units, sums.segments * sums.lanes, column, n);
                         std::copy_n(partials + column, n, to + column);
                       }
                     });
}

template <bool centred> void backward(const KernelCall& call) {
  const KernelQuery& q = call.query;
  auto [rows, width] = norm_shape(q, q.in(1));
  const NormLoops& loops = EPL_CPU_CHOOSE(norm_loops)();
  const float *dy = operand(call, 0), *x = operand(call, 1), *mean = centred ? operand(call, 2) : nullptr;
  const float *rstd = operand(call, centred ? 3 : 2), *scale = operand(call, centred ? 4 : 3);
  float *dx = result(call, 0), *dscale = result(call, 1), *dbias = centred ? result(call, 2) : nullptr;
  if (rows == 0) {
    if (dscale) std::fill_n(dscale, width, 0.0f);
    if (dbias) std::fill_n(dbias, width, 0.0f);
    return;
  }
  RowSums sums(rows, q.units.count);
  float* scales = static_cast<float*>(call.workspace);
  float* biases = scales + sums.parts * width;
  int64_t grain = std::max<int64_t>(1, task_values / (width * std::max<int64_t>(1, rows / sums.parts)));
  call.threads().run_ranges(sums.parts, grain, [&, n = width](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t lane = part % sums.lanes, segment = part / sums.lanes % sums.segments,
              unit = part / sums.lanes / sums.segments;
      float* scale_sum = dscale ? scales + part * n : nullptr;
      float* bias_sum = dbias ? biases + part * n : nullptr;
      if (scale_sum) std::fill_n(scale_sum, n, 0.0f);
      if (bias_sum) std::fill_n(bias_sum, n, 0.0f);
      int64_t last = std::min(sums.run, (segment + 1) * reduce_segment);
      for (int64_t i = segment * reduce_segment + lane; i < last; i += reduce_lanes) {
        int64_t r = q.units.position(unit * sums.run + i, rows);
        loops.backward(dy + r * n, x + r * n, scale, mean ? mean[r] : 0.0f, rstd[r], centred, dx ? dx + r * n : nullptr,
                       scale_sum, bias_sum, n);
      }
    }
  });
  if (dscale) join_rows(loops, scales, sums, q.units.count, width, dscale, call.threads());
  if (dbias) join_rows(loops, biases, sums, q.units.count, width, dbias, call.threads());
}

}  // namespace

EPL_KERNELS(cpu, norm) {
  const std::vector<DType> f32 = {DType::f32};
  table.add(
      {.op = "layer_norm", .name = "layer_norm_rows", .dtypes = f32, .prepare = prepare, .launch = forward<true>});
  table.add({.op = "rms_norm", .name = "rms_norm_rows", .dtypes = f32, .prepare = prepare, .launch = forward<false>});
  table.add({.op = "layer_norm_grad",
             .name = "layer_norm_grad_lanes",
             .dtypes = f32,
             .prepare = prepare_backward<true>,
             .launch = backward<true>});
  table.add({.op = "rms_norm_grad",
             .name = "rms_norm_grad_lanes",
             .dtypes = f32,
             .prepare = prepare_backward<false>,
             .launch = backward<false>});
}

}  // namespace epl::cpu
