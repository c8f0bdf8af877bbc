// Ops that put elements where an index says: scatter_elements, the gradient of gather_elements, and one_hot. What one
// line of the indices names lies in one line of the result, and lines are shared among threads; within one, elements
// come in the order of their positions, as in the ops' meanings.
#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/strided_copy.h"
#include "core/ir/combine.h"

namespace epl::cpu {
namespace {

// The lines along an axis of the indices, and where they begin there and in the data, which may be larger.
struct Lines {
  int64_t count = 1, length = 1, step = 1;            // of the indices
  int64_t data_length = 1, data_step = 1;             // of the data
  std::vector<int64_t> sizes, strides, data_strides;  // of the other dimensions

  Lines(const Shape& indices, const Shape& data, size_t axis) {
    const Shape of_indices = row_major_strides(indices), of_data = row_major_strides(data);
    for (size_t d = 0; d < indices.size(); ++d) {
      if (d == axis) {
        length = indices[d], step = of_indices[d];
        data_length = data[d], data_step = of_data[d];
      } else {
        count *= indices[d];
        sizes.push_back(indices[d]);
        strides.push_back(of_indices[d]);
        data_strides.push_back(of_data[d]);
      }
    }
  }

  // Calls f(from, to, thread) with the beginnings of each line, on all threads.
  template <class F> void each(ThreadPool& threads, const F& f) const {
    const int64_t grain = row_grain(length);
    threads.run((count + grain - 1) / grain, [&](int64_t task, int thread) {
      for (int64_t line = task * grain; line < std::min(count, (task + 1) * grain); ++line) {
        int64_t from = 0, to = 0, rest = line;
        for (size_t d = sizes.size(); d-- > 0; rest /= sizes[d]) {
          from += rest % sizes[d] * strides[d];
          to += rest % sizes[d] * data_strides[d];
        }
        f(from, to, thread);
      }
    });
  }
};

// Negative indices count from the end; -1 where there is no such element.
int64_t wrapped(int64_t index, int64_t size) {
  if (index < 0) index += size;
  return index >= 0 && index < size ? index : -1;
}

enum class Reduction : uint8_t { none, add, mul, max, min };
struct PreparedScatter {
  Lines lines;
  Reduction reduction = Reduction::none;
};

ScalarOp combined_by(Reduction reduction) {
  if (reduction == Reduction::add) return ScalarOp::add;
  if (reduction == Reduction::mul) return ScalarOp::mul;
  return reduction == Reduction::max ? ScalarOp::max : ScalarOp::min;
}

Result<Prepared> prepare_scatter(const KernelQuery& q) {
  constexpr const char* words[] = {"none", "add", "mul", "max", "min"};
  const auto word = std::find(std::begin(words), std::end(words), q.attributes.text("reduction"));
  EPL_TRY(require(word != std::end(words), "a reduction that it does not know"));
  return Prepared{.state = std::make_shared<PreparedScatter>(
                      PreparedScatter{.lines = Lines(q.in(1).shape, q.in(0).shape, static_cast<size_t>(q.axis("axis"))),
                                      .reduction = static_cast<Reduction>(word - std::begin(words))}),
                  .aliases = {{.input = 0, .output = 0}}};
}

void scatter_elements(const KernelCall& call) {
  const auto& [lines, reduction] = *static_cast<const PreparedScatter*>(call.state);
  const DType type = call.query.in(0).dtype, index_type = call.query.in(1).dtype;
  const auto bytes = static_cast<int64_t>(dtype_bytes(type));
  if (call.outputs[0] != call.inputs[0])
    copy_bytes(call.inputs[0], call.outputs[0], call.query.out(0).bytes(), call.threads());
  lines.each(call.threads(), [&](int64_t from, int64_t to, int) {
    for (int64_t i = 0; i < lines.length; ++i, from += lines.step) {
      const int64_t index = wrapped(load_int(index_type, call.inputs[1], from), lines.data_length);
      if (index < 0) continue;
      const int64_t target = to + index * lines.data_step;
      if (reduction == Reduction::none) {
        std::memcpy(call.out<std::byte>(0) + target * bytes, call.in<std::byte>(2) + from * bytes,
                    static_cast<size_t>(bytes));
      } else {
        combine_element(combined_by(reduction), type, call.outputs[0], target, call.inputs[2], from);
      }
    }
  });
}

Result<Prepared> prepare_elements_grad(const KernelQuery& q) {
  const Shape& x = q.out(0).shape;
  const int64_t axis = q.attributes.integer("axis");
  const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(x.size()) : axis);
  return Prepared{.state = std::make_shared<Lines>(q.in(1).shape, x, at),
                  .workspace_bytes = q.threads * x[at] * static_cast<int64_t>(sizeof(double))};
}

// Each thread adds up a line in room of its own.
void gather_elements_grad(const KernelCall& call) {
  const Lines& lines = *static_cast<const Lines*>(call.state);
  const DType type = call.query.out(0).dtype, index_type = call.query.in(1).dtype;
  fill_bytes(call.outputs[0], call.query.out(0).bytes(), 0, call.threads());
  lines.each(call.threads(), [&](int64_t from, int64_t to, int thread) {
    double* sums = static_cast<double*>(call.workspace) + thread * lines.data_length;
    std::fill_n(sums, lines.data_length, 0.0);
    for (int64_t i = 0; i < lines.length; ++i, from += lines.step) {
      const int64_t index = wrapped(load_int(index_type, call.inputs[1], from), lines.data_length);
      if (index >= 0) sums[index] += load_double(type, call.inputs[0], from);
    }
    for (int64_t i = 0; i < lines.data_length; ++i)
      store_double(type, call.outputs[0], to + i * lines.data_step, sums[i]);
  });
}

// A row of the result is one of the new dimension's values for the indices that follow it.
void one_hot(const KernelCall& call) {
  const Shape& y = call.query.out(0).shape;
  const int64_t axis = call.attributes().integer("axis");
  const AxisRows rows(call.query.out(0), static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(y.size()) : axis));
  const DType index_type = call.query.in(0).dtype;
  const auto bytes = static_cast<int64_t>(dtype_bytes(call.query.out(0).dtype));
  for_each_row(call.threads(), rows.rows, rows.n, [&](int64_t row) {
    const int64_t index = wrapped(load_int(index_type, call.inputs[0], row), rows.n);
    for (int64_t k = 0; k < rows.n; ++k) {
      std::memcpy(call.out<std::byte>(0) + (rows.offset(row) + k * rows.inner) * bytes,
                  call.in<std::byte>(1) + (index == k ? bytes : 0), static_cast<size_t>(bytes));
    }
  });
}

}  // namespace

EPL_KERNELS(cpu, scatter) {
  table.add(
      {.op = "scatter_elements", .name = "scatter_elements", .prepare = prepare_scatter, .launch = scatter_elements});
  table.add({.op = "gather_elements_grad",
             .name = "gather_elements_grad_by_lines",
             .prepare = prepare_elements_grad,
             .launch = gather_elements_grad});
  table.add({.op = "one_hot", .name = "one_hot", .launch = one_hot});
}

}  // namespace epl::cpu
