// gather: slices of x along an axis; gather_elements: one element for every index; gather_grad: the gradient of gather,
// dense, where slices of equal index are added.
//
// The order of gather_grad: for every slice of the result and every unit (equal runs of the indices), the slices of dy
// that belong to it are added in the order of their positions, starting from +0; units are joined by the binary tree.
// A counting sort by index finds them; its order is that of the positions, so threads share only full slices.
#include <cstring>
#include <limits>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/sorted_positions.h"

namespace epl::cpu {
namespace {

struct Span {
  int64_t outer = 1, size = 1, inner = 1;
};
Span span_of(const Shape& shape, int64_t axis) {
  Span s{1, shape[axis], 1};
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (d < axis) s.outer *= shape[d];
    if (d > axis) s.inner *= shape[d];
  }
  return s;
}

// Negative indices count from the end; -1 where there is no such slice.
int64_t index_at(const KernelCall& call, int input, int64_t i, int64_t size) {
  DType type = call.query.in(input).dtype;
  int64_t index = type == DType::i64   ? call.in<int64_t>(input)[i]
                  : type == DType::i32 ? call.in<int32_t>(input)[i]
                                       : load_int(type, call.inputs[input], i);
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

void gather(const KernelCall& call) {
  const KernelQuery& q = call.query;
  Span s = span_of(q.in(0).shape, q.axis("axis"));
  int64_t count = q.in(1).elements(), element = static_cast<int64_t>(dtype_bytes(q.in(0).dtype)),
          bytes = s.inner * element;
  for_each_row(call.threads(), s.outer * count, s.inner, [&](int64_t row) {
    int64_t index = index_at(call, 1, row % count, s.size);
    std::byte* to = call.out<std::byte>(0) + row * bytes;
    if (index >= 0) {
      std::memcpy(to, call.in<std::byte>(0) + (row / count * s.size + index) * bytes, bytes);
    } else {  // NaN, or zero: the same as the reference
      double missing = is_float(q.out(0).dtype) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
      for (int64_t i = 0; i < s.inner; ++i) store_double(q.out(0).dtype, to, i, missing);
    }
  });
}

// One index for every element. A row is a run of the result along its last dimension.
void gather_elements(const KernelCall& call) {
  const KernelQuery& q = call.query;
  const Shape &x = q.in(0).shape, &y = q.out(0).shape, strides = row_major_strides(x);
  const size_t axis = static_cast<size_t>(q.axis("axis")), last = y.size() - 1;
  const int64_t element = static_cast<int64_t>(dtype_bytes(q.in(0).dtype)), step = axis == last ? 0 : 1;
  const double missing = is_float(q.out(0).dtype) ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  for_each_row(call.threads(), y[last] > 0 ? q.out(0).elements() / y[last] : 0, y[last], [&](int64_t row) {
    int64_t from = 0, rest = row;
    for (size_t d = last; d-- > 0;) {
      if (d != axis) from += rest % y[d] * strides[d];
      rest /= y[d];
    }
    for (int64_t j = 0, to = row * y[last]; j < y[last]; ++j, ++to) {
      const int64_t index = index_at(call, 1, to, x[axis]);
      if (index < 0) {
        store_double(q.out(0).dtype, call.outputs[0], to, missing);
      } else {
        std::memcpy(call.out<std::byte>(0) + to * element,
                    call.in<std::byte>(0) + (from + j * step + index * strides[axis]) * element,
                    static_cast<size_t>(element));
      }
    }
  });
}

constexpr int64_t block = 512;  // columns that a task adds at once
// Adds the slices dy + order[i] * inner of one index into `to`, unit by unit; sums[u] are `block` columns of scratch.
void add_slices(const NormLoops& loops, const float* dy, const int64_t* order, int64_t many, int64_t count, Units units,
                int64_t inner, int64_t width, float* to, float* sums) {
  std::fill_n(to, width, 0.0f);
  const int64_t run = std::max<int64_t>(1, units.run(count));
  bool one_unit = many == 0 || units.count == 1 || (units.outer == 1 && order[0] / run == order[many - 1] / run);
  if (one_unit) {
    for (int64_t i = 0; i < many; ++i) loops.add(to, dy + order[i] * inner, width);
    return;
  }
  for (int64_t u = 0; u < units.count; ++u) std::fill_n(sums + u * block, width, 0.0f);
  for (int64_t i = 0; i < many; ++i)
    loops.add(sums + order[i] / run % units.count * block, dy + order[i] * inner, width);
  for (int64_t step = 1; step < units.count; step *= 2) {
    for (int64_t u = 0; u + step < units.count; u += 2 * step)
      loops.add(sums + u * block, sums + (u + step) * block, width);
  }
  std::copy_n(sums, width, to);
}

int64_t sorted_bytes(const KernelQuery& q) {
  return sorted_positions_bytes(q.in(1).elements(), q.attributes.integer("size"));
}

void gather_grad(const KernelCall& call) {
  const KernelQuery& q = call.query;
  Span s = span_of(q.out(0).shape, q.attributes.integer("axis"));
  int64_t count = q.in(1).elements(), blocks = (s.inner + block - 1) / block;
  const SortedPositions sorted =
      sort_positions(call.workspace, count, s.size, [&](int64_t k) { return index_at(call, 1, k, s.size); });
  const NormLoops& loops = EPL_CPU_CHOOSE(norm_loops)();
  auto* scratch = static_cast<std::byte*>(call.workspace) + sorted_bytes(q);
  int64_t slices = s.outer * s.size * blocks;
  // Frequent indices lie together, so tasks are many and small.
  int64_t per_task = std::clamp<int64_t>(slices / (int64_t{64} * call.threads().size()), 1, 64);
  call.threads().run((slices + per_task - 1) / per_task, [&](int64_t task, int thread) {
    float* sums = reinterpret_cast<float*>(scratch) + thread * q.units.count * block;
    for (int64_t t = task * per_task; t < std::min(slices, (task + 1) * per_task); ++t) {
      int64_t row = t / blocks, column = t % blocks * block, index = row % s.size;
      const float* dy = call.in<float>(0) + row / s.size * count * s.inner + column;
      add_slices(loops, dy, sorted.order + sorted.first[index], sorted.first[index + 1] - sorted.first[index], count,
                 q.units, s.inner, std::min(block, s.inner - column), call.out<float>(0) + row * s.inner + column,
                 sums);
    }
  });
}

Result<Prepared> prepare_grad(const KernelQuery& q) {
  EPL_TRY(require(q.units.divide(q.in(1).elements()), "units that do not divide the indices"));
  EPL_TRY(require_vectors());
  return Prepared{.workspace_bytes = sorted_bytes(q) + q.threads * q.units.count * block * 4};
}

}  // namespace

EPL_KERNELS(cpu, gather) {
  table.add({.op = "gather", .name = "gather_copies", .launch = gather});
  table.add({.op = "gather_elements", .name = "gather_elements_copy", .launch = gather_elements});
  table.add({.op = "gather_grad",
             .name = "gather_grad_sorted",
             .dtypes = {DType::f32},
             .prepare = prepare_grad,
             .launch = gather_grad});
}

}  // namespace epl::cpu
