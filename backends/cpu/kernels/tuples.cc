// gather_nd: slices of x at tuples of indices; its gradient; scatter_nd: slices put, or combined, where tuples say.
//
// The order of sums is that of the ops' meanings. For every slice of the gradient and every unit, the slices of dy that
// belong to it are added in float64 in the order of their positions; units are rounded and joined by the binary tree.
// What scatter_nd combines is rounded after each position. Positions are sorted by the slice that they name, so threads
// share full slices, or columns of them, and a slice that nobody names is only copied.
#include <cstring>
#include <limits>

#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/sorted_positions.h"
#include "backends/cpu/kernels/strided_copy.h"
#include "core/ir/combine.h"

namespace epl::cpu {
namespace {

constexpr int64_t columns = 512;  // of a slice, that a task does at once

enum class Combine : uint8_t { none, add, mul, max, min };

// indices [b..., i..., t] name slices of x [b..., (t coordinates), r...].
struct Tuples {
  Shape sizes;                                          // of the t coordinates
  int64_t batches = 1, count = 1, span = 1, inner = 1;  // of b, of i, of the coordinates, of r
  Combine combine = Combine::none;

  Tuples(const Shape& x, const Shape& indices, size_t batch) {
    const size_t tuple = static_cast<size_t>(indices.back());
    for (size_t d = 0; d < x.size(); ++d) (d < batch ? batches : d < batch + tuple ? span : inner) *= x[d];
    for (size_t d = batch; d + 1 < indices.size(); ++d) count *= indices[d];
    sizes.assign(x.begin() + static_cast<int64_t>(batch), x.begin() + static_cast<int64_t>(batch + tuple));
  }
  int64_t positions() const { return batches * count; }
  int64_t slices() const { return batches * span; }
  // The slice of x that a position names; -1 where there is none. Negative indices count from the end.
  int64_t slice(const KernelCall& call, int64_t position) const {
    const DType type = call.query.in(1).dtype;
    const int64_t n = static_cast<int64_t>(sizes.size());
    int64_t tuple = 0;
    for (int64_t t = 0; t < n; ++t) {
      const int64_t size = sizes[static_cast<size_t>(t)];
      int64_t index = load_int(type, call.inputs[1], position * n + t);
      if (index < 0) index += size;
      if (index < 0 || index >= size) return -1;
      tuple = tuple * size + index;
    }
    return position / count * span + tuple;
  }
  SortedPositions sorted(const KernelCall& call) const {
    return sort_positions(call.workspace, positions(), slices(), [&](int64_t i) { return slice(call, i); });
  }
  int64_t sorted_bytes() const { return sorted_positions_bytes(positions(), slices()); }
  // Calls f(slice, column, width, thread) for all slices, in chunks, on all threads: many small tasks, because slices
  // that many positions name lie together.
  template <class F> void each_chunk(ThreadPool& threads, const F& f) const {
    const int64_t blocks = (inner + columns - 1) / columns, chunks = slices() * blocks;
    const int64_t grain = std::clamp<int64_t>(chunks / (int64_t{64} * threads.size()), 1, 64);
    threads.run((chunks + grain - 1) / grain, [&](int64_t task, int thread) {
      for (int64_t p = task * grain; p < std::min(chunks, (task + 1) * grain); ++p) {
        const int64_t column = p % blocks * columns;
        f(p / blocks, column, std::min(columns, inner - column), thread);
      }
    });
  }
};

size_t batch_dims(const KernelQuery& q) { return static_cast<size_t>(q.attributes.integer("batch_dims")); }

Result<Prepared> prepare_gather(const KernelQuery& q) {
  return Prepared{.state = std::make_shared<Tuples>(q.in(0).shape, q.in(1).shape, batch_dims(q))};
}

void gather(const KernelCall& call) {
  const Tuples& t = *static_cast<const Tuples*>(call.state);
  const DType type = call.query.in(0).dtype;
  const int64_t bytes = t.inner * static_cast<int64_t>(dtype_bytes(type));
  const double missing = is_float(type) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  for_each_row(call.threads(), t.positions(), t.inner, [&](int64_t position) {
    const int64_t slice = t.slice(call, position);
    std::byte* to = call.out<std::byte>(0) + position * bytes;
    if (slice >= 0) {
      std::memcpy(to, call.in<std::byte>(0) + slice * bytes, static_cast<size_t>(bytes));
    } else {
      for (int64_t i = 0; i < t.inner; ++i) store_double(type, to, i, missing);
    }
  });
}

Result<Prepared> prepare_grad(const KernelQuery& q) {
  const auto tuples = std::make_shared<Tuples>(q.out(0).shape, q.in(1).shape, batch_dims(q));
  EPL_TRY(require(q.units.divide(tuples->count), "units that do not divide the indices"));
  return Prepared{.state = tuples,
                  .workspace_bytes = tuples->sorted_bytes() +
                                     q.threads * q.units.count * columns * static_cast<int64_t>(sizeof(double))};
}

void gather_grad(const KernelCall& call) {
  const Tuples& t = *static_cast<const Tuples*>(call.state);
  const Units units = call.query.units;
  const SortedPositions sorted = t.sorted(call);
  auto* room = reinterpret_cast<double*>(static_cast<std::byte*>(call.workspace) + t.sorted_bytes());
  t.each_chunk(call.threads(), [&](int64_t slice, int64_t column, int64_t width, int thread) {
    float* to = call.out<float>(0) + slice * t.inner + column;
    const int64_t first = sorted.first[slice], last = sorted.first[slice + 1];
    if (first == last) return static_cast<void>(std::fill_n(to, width, 0.0f));
    double* sums = room + thread * units.count * columns;
    std::fill_n(sums, units.count * columns, 0.0);
    for (int64_t i = first; i < last; ++i) {
      const int64_t position = sorted.order[i];
      const float* from = call.in<float>(0) + position * t.inner + column;
      double* sum = sums + units.of(position % t.count, t.count) * columns;
      for (int64_t j = 0; j < width; ++j) sum[j] += from[j];
    }
    for (int64_t j = 0; j < width && units.count > 1; ++j) {
      for (int64_t u = 0; u < units.count; ++u) sums[u * columns + j] = static_cast<float>(sums[u * columns + j]);
      for (int64_t step = 1; step < units.count; step *= 2) {
        for (int64_t u = 0; u + step < units.count; u += 2 * step) {
          double& sum = sums[u * columns + j];
          sum = static_cast<float>(sum + sums[(u + step) * columns + j]);
        }
      }
    }
    for (int64_t j = 0; j < width; ++j) to[j] = static_cast<float>(sums[j]);
  });
}

Result<Prepared> prepare_scatter(const KernelQuery& q) {
  constexpr const char* words[] = {"none", "add", "mul", "max", "min"};
  const auto word = std::find(std::begin(words), std::end(words), q.attributes.text("reduction"));
  EPL_TRY(require(word != std::end(words), "a reduction that it does not know"));
  const auto tuples = std::make_shared<Tuples>(q.in(0).shape, q.in(1).shape, 0);
  tuples->combine = static_cast<Combine>(word - std::begin(words));
  return Prepared{.state = tuples, .workspace_bytes = tuples->sorted_bytes(), .aliases = {{.input = 0, .output = 0}}};
}

void scatter(const KernelCall& call) {
  const Tuples& t = *static_cast<const Tuples*>(call.state);
  const DType type = call.query.in(0).dtype;
  const int64_t bytes = static_cast<int64_t>(dtype_bytes(type));
  const bool adds_floats = t.combine == Combine::add && type == DType::f32,
             in_place = call.outputs[0] == call.inputs[0];
  const ScalarOp by = t.combine == Combine::add   ? ScalarOp::add
                      : t.combine == Combine::mul ? ScalarOp::mul
                      : t.combine == Combine::max ? ScalarOp::max
                                                  : ScalarOp::min;
  const SortedPositions sorted = t.sorted(call);
  t.each_chunk(call.threads(), [&](int64_t slice, int64_t column, int64_t width, int) {
    const int64_t at = slice * t.inner + column, first = sorted.first[slice], last = sorted.first[slice + 1];
    std::byte* to = call.out<std::byte>(0) + at * bytes;
    const auto update = [&](int64_t i) { return call.in<std::byte>(2) + (sorted.order[i] * t.inner + column) * bytes; };
    const bool replaced = t.combine == Combine::none && first < last;  // by the last of them
    if (replaced || !in_place) {
      std::memcpy(to, replaced ? update(last - 1) : call.in<std::byte>(0) + at * bytes,
                  static_cast<size_t>(width * bytes));
    }
    for (int64_t i = first; i < last && t.combine != Combine::none; ++i) {
      if (adds_floats) {
        auto* sums = reinterpret_cast<float*>(to);
        const auto* from = reinterpret_cast<const float*>(update(i));
        for (int64_t j = 0; j < width; ++j) sums[j] += from[j];
      } else {
        for (int64_t j = 0; j < width; ++j) combine_element(by, type, to, j, update(i), j);
      }
    }
  });
}

}  // namespace

EPL_KERNELS(cpu, tuples) {
  table.add({.op = "gather_nd", .name = "gather_nd_copies", .prepare = prepare_gather, .launch = gather});
  table.add({.op = "gather_nd_grad",
             .name = "gather_nd_grad_sorted",
             .dtypes = {DType::f32},
             .prepare = prepare_grad,
             .launch = gather_grad});
  table.add({.op = "scatter_nd", .name = "scatter_nd_sorted", .prepare = prepare_scatter, .launch = scatter});
}

}  // namespace epl::cpu
