// Max and average pools over up to three spatial dimensions of x [batch, channels, spatial...], and their gradients.
// Planes are independent. A window's elements are visited in row-major order, and so are the windows in a gradient:
// every sum is one chain in that order.
#include <array>
#include <cmath>
#include <limits>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

constexpr int most_spatial = 3;
using Three = std::array<int64_t, most_spatial>;

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
  for (int d = 0; d < spatial; ++d) values[most_spatial - spatial + d] = given[from + d];
  return values;
}
Three spatial_of(const Shape& shape) {
  Three values = {1, 1, 1};
  for (size_t d = 2; d < shape.size(); ++d) values[most_spatial - (shape.size() - d)] = shape[d];
  return values;
}

Pool pool_of(const KernelQuery& q, const Shape& x, const Shape& y) {
  int n = static_cast<int>(x.size()) - 2;
  Pool p{.in = spatial_of(x), .out = spatial_of(y), .kernel = filled(q, "kernel", n, 1), .strides = filled(q, "strides", n, 1),
         .dilations = filled(q, "dilations", n, 1), .begin = filled(q, "pads", n, 0), .end = filled(q, "pads", n, 0, n)};
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
  int64_t skipped = start < low ? (low - start + step - 1) / step : 0;
  int64_t first = start + skipped * step;
  int64_t fit = first < high ? (high - 1 - first) / step + 1 : 0;
  return {first, std::max<int64_t>(0, std::min(p.kernel[d] - skipped, fit))};
}

// Calls f(offset within the plane) for every element of the window at (a, b, c).
template <class F>
void for_each_tap(const Pool& p, int64_t a, int64_t b, int64_t c, F&& f) {
  Taps x = taps(p, 0, a, 0, p.in[0]), y = taps(p, 1, b, 0, p.in[1]), z = taps(p, 2, c, 0, p.in[2]);
  for (int64_t i = 0; i < x.count; ++i) {
    for (int64_t j = 0; j < y.count; ++j) {
      int64_t row = ((x.first + i * p.dilations[0]) * p.in[1] + y.first + j * p.dilations[1]) * p.in[2] + z.first;
      for (int64_t k = 0; k < z.count; ++k) f(row + k * p.dilations[2]);
    }
  }
}

// Calls f(position of the window, a, b, c) for every window.
template <class F>
void for_each_window(const Pool& p, F&& f) {
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
  for (int d = 0; d < most_spatial; ++d) {
    n *= p.include_pad ? taps(p, d, at[d], -p.begin[d], p.in[d] + p.end[d]).count : taps(p, d, at[d], 0, p.in[d]).count;
  }
  return static_cast<float>(n);
}

void max_pool(const KernelCall& call) {
  Pool p = pool_of(call.query, call.query.in(0).shape, call.query.out(0).shape);
  int32_t* indices = call.query.outputs() > 1 ? call.out<int32_t>(1) : nullptr;
  for_each_row(call.threads, p.planes, p.in_size, [&](int64_t plane) {
    const float* x = call.in<float>(0) + plane * p.in_size;
    float* y = call.outputs[0] ? call.out<float>(0) + plane * p.out_size : nullptr;
    for_each_window(p, [&](int64_t at, int64_t a, int64_t b, int64_t c) {
      int64_t best = -1;
      float largest = -std::numeric_limits<float>::infinity();
      for_each_tap(p, a, b, c, [&](int64_t i) {
        if (x[i] > largest || best < 0 || (std::isnan(x[i]) && !std::isnan(largest))) best = i, largest = x[i];
      });
      if (y) y[at] = largest;
      if (indices) indices[plane * p.out_size + at] = static_cast<int32_t>(std::max<int64_t>(best, 0));
    });
  });
}

void max_pool_grad(const KernelCall& call) {
  const Shape &x = call.query.out(0).shape, &y = call.query.in(0).shape;
  int64_t planes = x[0] * x[1], in_size = 1, out_size = 1;
  for (size_t d = 2; d < x.size(); ++d) in_size *= x[d], out_size *= y[d];
  for_each_row(call.threads, planes, in_size, [&](int64_t plane) {
    const float* dy = call.in<float>(0) + plane * out_size;
    const int32_t* indices = call.in<int32_t>(1) + plane * out_size;
    float* dx = call.out<float>(0) + plane * in_size;
    std::fill_n(dx, in_size, 0.0f);
    for (int64_t i = 0; i < out_size; ++i) dx[indices[i]] += dy[i];
  });
}

void avg_pool(const KernelCall& call) {
  Pool p = pool_of(call.query, call.query.in(0).shape, call.query.out(0).shape);
  for_each_row(call.threads, p.planes, p.in_size, [&](int64_t plane) {
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
  for_each_row(call.threads, p.planes, p.in_size, [&](int64_t plane) {
    const float* dy = call.in<float>(0) + plane * p.out_size;
    float* dx = call.out<float>(0) + plane * p.in_size;
    std::fill_n(dx, p.in_size, 0.0f);
    for_each_window(p, [&](int64_t at, int64_t a, int64_t b, int64_t c) {
      float share = dy[at] / divisor(p, a, b, c);
      for_each_tap(p, a, b, c, [&](int64_t i) { dx[i] += share; });
    });
  });
}

bool accepts(const KernelQuery& q) { return q.require(q.in(0).ndim() <= 2 + most_spatial, "more than three spatial dimensions"); }

}  // namespace

EPL_KERNELS(cpu, pool) {
  const std::vector<DType> f32 = {DType::f32};
  table.add({.op = "max_pool", .name = "max_pool_planes", .dtypes = f32, .accepts = accepts, .launch = max_pool});
  table.add({.op = "max_pool_grad", .name = "max_pool_grad_planes", .dtypes = f32, .launch = max_pool_grad});
  table.add({.op = "avg_pool", .name = "avg_pool_planes", .dtypes = f32, .accepts = accepts, .launch = avg_pool});
  table.add({.op = "avg_pool_grad", .name = "avg_pool_grad_planes", .dtypes = f32, .accepts = accepts, .launch = avg_pool_grad});
}

}  // namespace epl::cpu
