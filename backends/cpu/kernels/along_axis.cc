// Ops that go along an axis element by element: arg_max, arg_min and top_k, which compare and give positions, and
// cum_sum. Any element type. Equal elements keep the order of their positions, and a running sum of real numbers is one
// in float64 and one of integers wraps, so no result depends on threads or on how an algorithm goes.
#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

// Calls f with a function that reads element i of input 0 in a type that holds every value of `type`.
template <class F> void with_elements(const KernelCall& call, const F& f) {
  const DType type = call.query.in(0).dtype;
  if (type == DType::f32) return f([x = call.in<float>(0)](int64_t i) { return x[i]; });
  if (type == DType::i64) return f([x = call.in<int64_t>(0)](int64_t i) { return x[i]; });
  if (type == DType::u64) return f([x = call.in<uint64_t>(0)](int64_t i) { return x[i]; });
  f([type, x = call.inputs[0]](int64_t i) { return load_double(type, x, i); });
}

// Calls f(row, thread) for all rows, on all threads.
template <class F> void for_each_row_by_thread(ThreadPool& threads, const AxisRows& rows, const F& f) {
  const int64_t grain = row_grain(rows.n);
  threads.run((rows.rows + grain - 1) / grain, [&](int64_t task, int thread) {
    for (int64_t row = task * grain; row < std::min(rows.rows, (task + 1) * grain); ++row) f(row, thread);
  });
}

// A NaN that is not the first element is never better than another one.
template <bool largest> void arg(const KernelCall& call) {
  const AxisRows rows(call.query.in(0), call.query.axis("axis"));
  const bool last = call.attributes().flag("last");
  with_elements(call, [&](const auto& at) {
    for_each_row_by_thread(call.threads(), rows, [&](int64_t row, int) {
      const int64_t from = rows.offset(row);
      auto best = at(from);
      int64_t position = 0;
      for (int64_t i = 1; i < rows.n; ++i) {
        const auto value = at(from + i * rows.inner);
        if ((largest ? value > best : value < best) || (last && value == best)) best = value, position = i;
      }
      call.out<int64_t>(0)[row] = position;
    });
  });
}

// A NaN counts as larger than every number.
template <class T> bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(b) ? !std::isnan(a) : a < b;
  return a < b;
}

// Each thread sorts the positions of a row in room of its own.
void top_k(const KernelCall& call) {
  const AxisRows rows(call.query.in(0), call.query.axis("axis"));
  const int64_t k = call.attributes().integer("k");
  const bool largest = call.attributes().flag("largest");
  const auto bytes = static_cast<int64_t>(dtype_bytes(call.query.in(0).dtype));
  with_elements(call, [&](const auto& at) {
    for_each_row_by_thread(call.threads(), rows, [&](int64_t row, int thread) {
      const int64_t from = rows.offset(row), to = row / rows.inner * k * rows.inner + row % rows.inner;
      int64_t* order = static_cast<int64_t*>(call.workspace) + thread * rows.n;
      for (int64_t i = 0; i < rows.n; ++i) order[i] = i;
      std::partial_sort(order, order + k, order + rows.n, [&](int64_t a, int64_t b) {
        const auto x = at(from + a * rows.inner), y = at(from + b * rows.inner);
        if (less(x, y) || less(y, x)) return largest ? less(y, x) : less(x, y);
        return a < b;
      });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t target = to + i * rows.inner;
        const std::byte* source = call.in<std::byte>(0) + (from + order[i] * rows.inner) * bytes;
        if (call.outputs[0]) std::copy_n(source, bytes, call.out<std::byte>(0) + target * bytes);
        if (call.outputs[1]) call.out<int64_t>(1)[target] = order[i];
      }
    });
  });
}

Result<Prepared> prepare_top_k(const KernelQuery& q) {
  const int64_t size = q.in(0).shape[static_cast<size_t>(q.axis("axis"))];
  return Prepared{.workspace_bytes = q.threads * size * static_cast<int64_t>(sizeof(int64_t))};
}

// T has all digits of the numbers that load and store read and write: a double, or 64 bits that wrap as any fewer do.
template <class T, class U>
void running_sum(const KernelCall& call, U (*load)(DType, const void*, int64_t),
                 void (*store)(DType, void*, int64_t, U)) {
  const AxisRows rows(call.query.in(0), call.query.axis("axis"));
  const DType type = call.query.in(0).dtype;
  const bool exclusive = call.attributes().flag("exclusive"), reverse = call.attributes().flag("reverse");
  for_each_row_by_thread(call.threads(), rows, [&](int64_t row, int) {
    T sum = 0;
    for (int64_t k = 0; k < rows.n; ++k) {
      const int64_t at = rows.offset(row) + (reverse ? rows.n - 1 - k : k) * rows.inner;
      const T value = static_cast<T>(load(type, call.inputs[0], at));
      store(type, call.outputs[0], at, static_cast<U>(exclusive ? sum : sum + value));
      sum += value;
    }
  });
}
void cum_sum(const KernelCall& call) {
  is_float(call.query.in(0).dtype) ? running_sum<double>(call, load_double, store_double)
                                   : running_sum<uint64_t>(call, load_int, store_int);
}

}  // namespace

EPL_KERNELS(cpu, along_axis) {
  table.add({.op = "arg_max", .name = "arg_max", .launch = arg<true>});
  table.add({.op = "arg_min", .name = "arg_min", .launch = arg<false>});
  table.add({.op = "cum_sum", .name = "cum_sum", .launch = cum_sum});
  table.add({.op = "top_k", .name = "top_k", .prepare = prepare_top_k, .launch = top_k});
}

}  // namespace epl::cpu
