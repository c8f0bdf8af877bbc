// Max and average pools over up to three spatial dimensions of x [batch, channels, spatial...], and their gradients.
// Planes are independent. A window's elements are visited in row-major order, and so are the windows in a gradient:
// every sum is one chain in that order.
#include "backends/cpu/kernels/pool.h"

#include <array>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

constexpr int max_spatial = 3;
using Three = std::array<int64_t, max_spatial>;

// The geometry, with leading spatial dimensions of size one put in front of what is missing.
struct Pool {
  Three in, out, kernel, strides, dilations, begin, end;
  int64_t planes, in_size, out_size;
  bool include_pad;
};

Three filled(const KernelQuery& q, const char* name, int spatial, int64_t missing, int from = 0) {
  Three values;
  values.fill(missing);
  if (!q.attributes.has(name)) return values;
  const Ints& given = q.attributes.ints(name);
  if (given.empty()) return values;
  for (int d = 0; d < spatial; ++d) values[max_spatial - spatial + d] = given[from + d];
  return values;
}
Three spatial_of(const Shape& shape) {
  Three values = {1, 1, 1};
  for (size_t d = 2; d < shape.size(); ++d) values[max_spatial - (shape.size() - d)] = shape[d];
  return values;
}

Pool pool_of(const KernelQuery& q, const Shape& x, const Shape& y) {
  int n = static_cast<int>(x.size()) - 2;
  Pool p{.in = spatial_of(x),
         .out = spatial_of(y),
         .kernel = filled(q, "kernel", n, 1),
         .strides = filled(q, "strides", n, 1),
         .dilations = filled(q, "dilations", n, 1),
         .begin = filled(q, "pads", n, 0),
         .end = filled(q, "pads", n, 0, n)};
  p.planes = x[0] * x[1];
  p.in_size = p.in[0] * p.in[1] * p.in[2];
  p.out_size = p.out[0] * p.out[1] * p.out[2];
  p.include_pad = q.attributes.has("count_include_pad") && q.attributes.flag("count_include_pad");
  return p;
}

// The taps of one window along one dimension that lie in [low, high): first position and how many.
struct Taps {
  int64_t first, count;
};
Taps taps(const Pool& p, int d, int64_t position, int64_t low, int64_t high) {
  int64_t start = position * p.strides[d] - p.begin[d], step = p.dilations[d];
  // Division is slow, and a step of one usual.
  int64_t skipped = start >= low ? 0 : step == 1 ? low - start : (low - start + step - 1) / step;
  int64_t first = start + skipped * step;
  int64_t fit = first >= high ? 0 : step == 1 ? high - first : (high - 1 - first) / step + 1;
  return {first, std::max<int64_t>(0, std::min(p.kernel[d] - skipped, fit))};
}

// Calls f(offset within the plane) for every element of the window at (a, b, c).
template <class F> void for_each_tap(const Pool& p, int64_t a, int64_t b, int64_t c, F&& f) {
  Taps x = taps(p, 0, a, 0, p.in[0]), y = taps(p, 1, b, 0, p.in[1]), z = taps(p, 2, c, 0, p.in[2]);
  for (int64_t i = 0; i < x.count; ++i) {
    for (int64_t j = 0; j < y.count; ++j) {
      int64_t row = ((x.first + i * p.dilations[0]) * p.in[1] + y.first + j * p.dilations[1]) * p.in[2] + z.first;
      for (int64_t k = 0; k < z.count; ++k) f(row + k * p.dilations[2]);
    }
  }
}

// Calls f(position of the window, a, b, c) for every window.
template <class F> void for_each_window(const Pool& p, F&& f) {
  int64_t at = 0;
  for (int64_t a = 0; a < p.out[0]; ++a) {
    for (int64_t b = 0; b < p.out[1]; ++b) {
      for (int64_t c = 0; c < p.out[2]; ++c) f(at++, a, b, c);
    }
  }
}

// What an average divides by: the elements inside x, or also the padding asked for, but never what hangs over.
float divisor(const Pool& p, int64_t a, int64_t b, int64_t c) {
  int64_t n = 1;
  const int64_t at[] = {a, b, c};
  for (int d = 0; d < max_spatial; ++d) {
    n *= p.include_pad ? taps(p, d, at[d], -p.begin[d], p.in[d] + p.end[d]).count : taps(p, d, at[d], 0, p.in[d]).count;
  }
  return static_cast<float>(n);
}

void max_pool(const KernelCall& call) {
  Pool p = pool_of(call.query, call.query.in(0).shape, call.query.out(0).shape);
  int32_t* indices = call.query.outputs() > 1 ? call.out<int32_t>(1) : nullptr;
  MaxPoolRow loop = cpu_level() >= CpuLevel::v4 ? v4::max_pool_row : v3::max_pool_row;
  for_each_row(call.threads(), p.planes, p.in_size, [&](int64_t plane) {
    int32_t rows[max_pool_rows];
    PoolRow row{.plane = call.in<float>(0) + plane * p.in_size,
                .rows = rows,
                .width = static_cast<int32_t>(p.in[2]),
                .kernel = static_cast<int32_t>(p.kernel[2]),
                .stride = static_cast<int32_t>(p.strides[2]),
                .dilation = static_cast<int32_t>(p.dilations[2]),
                .begin = static_cast<int32_t>(p.begin[2])};
    for (int64_t line = 0; line < p.out[0] * p.out[1]; ++line) {
      Taps x = taps(p, 0, line / p.out[1], 0, p.in[0]), y = taps(p, 1, line % p.out[1], 0, p.in[1]);
      row.row_count = 0;
      for (int64_t i = 0; i < x.count; ++i) {
        for (int64_t j = 0; j < y.count; ++j) {
          int64_t at = (x.first + i * p.dilations[0]) * p.in[1] + y.first + j * p.dilations[1];
          rows[row.row_count++] = static_cast<int32_t>(at * p.in[2]);
        }
      }
      int64_t to = plane * p.out_size + line * p.out[2];
      loop(row, call.outputs[0] ? call.out<float>(0) + to : nullptr, indices ? indices + to : nullptr, p.out[2]);
    }
  });
}

void max_pool_grad(const KernelCall& call) {
  const Shape &x = call.query.out(0).shape, &y = call.query.in(0).shape;
  int64_t planes = x[0] * x[1], in_size = 1, out_size = 1;
  for (size_t d = 2; d < x.size(); ++d) in_size *= x[d], out_size *= y[d];
  for_each_row(call.threads(), planes, in_size, [&](int64_t plane) {
    const float* dy = call.in<float>(0) + plane * out_size;
    const int32_t* indices = call.in<int32_t>(1) + plane * out_size;
    float* dx = call.out<float>(0) + plane * in_size;
    std::fill_n(dx, in_size, 0.0f);
    for (int64_t i = 0; i < out_size; ++i) {
      if (indices[i] >= 0 && indices[i] < in_size) dx[indices[i]] += dy[i];
    }
  });
}

void avg_pool(const KernelCall& call) {
  Pool p = pool_of(call.query, call.query.in(0).shape, call.query.out(0).shape);
  for_each_row(call.threads(), p.planes, p.in_size, [&](int64_t plane) {
    const float* x = call.in<float>(0) + plane * p.in_size;
    float* y = call.out<float>(0) + plane * p.out_size;
    for_each_window(p, [&](int64_t at, int64_t a, int64_t b, int64_t c) {
      float sum = 0;
      for_each_tap(p, a, b, c, [&](int64_t i) { sum += x[i]; });
      y[at] = sum / divisor(p, a, b, c);
    });
  });
}

void avg_pool_grad(const KernelCall& call) {
  Pool p = pool_of(call.query, call.query.out(0).shape, call.query.in(0).shape);
  for_each_row(call.threads(), p.planes, p.in_size, [&](int64_t plane) {
    const float* dy = call.in<float>(0) + plane * p.out_size;
    float* dx = call.out<float>(0) + plane * p.in_size;
    std::fill_n(dx, p.in_size, 0.0f);
    for_each_window(p, [&](int64_t at, int64_t a, int64_t b, int64_t c) {
      float share = dy[at] / divisor(p, a, b, c);
      for_each_tap(p, a, b, c, [&](int64_t i) { dx[i] += share; });
    });
  });
}

Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(require(q.in(0).ndim() <= 2 + max_spatial, "more than three spatial dimensions"));
  return Prepared{};
}
Result<Prepared> prepare_max(const KernelQuery& q) {
  EPL_TRY(prepare(q).status());
  Three kernel = filled(q, "kernel", q.in(0).ndim() - 2, 1);
  EPL_TRY(require(kernel[0] * kernel[1] <= max_pool_rows, "a window of too many rows"));
  EPL_TRY(require(q.in(0).elements() < (int64_t{1} << 31), "2^31 elements or more"));
  EPL_TRY(require_vectors());
  return Prepared{};
}

}  // namespace

EPL_KERNELS(cpu, pool) {
  const std::vector<DType> f32 = {DType::f32};
  table.add({.op = "max_pool", .name = "max_pool_planes", .dtypes = f32, .prepare = prepare_max, .launch = max_pool});
  table.add({.op = "max_pool_grad", .name = "max_pool_grad_planes", .dtypes = f32, .launch = max_pool_grad});
  table.add({.op = "avg_pool", .name = "avg_pool_planes", .dtypes = f32, .prepare = prepare, .launch = avg_pool});
  table.add({.op = "avg_pool_grad",
             .name = "avg_pool_grad_planes",
             .dtypes = f32,
             .prepare = prepare,
             .launch = avg_pool_grad});
}

}  // namespace epl::cpu
