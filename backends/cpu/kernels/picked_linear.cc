// picked_linear and the gradient of its weight: rows are brought together by the matrix that they gather, and each
// matrix meets its rows in ordinary products.
//
// An element of the result depends on its row and its matrix alone, as gemm promises, so it does not matter who stands
// beside it. A gradient sums, for each unit of the rows, those that picked its matrix, in their order; units are joined
// by the binary tree. Where nobody of a unit gathers it, that sum is +0.
#include <algorithm>
#include <cstring>
#include <limits>

#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/norm.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/unit_order.h"

namespace epl::cpu {
namespace {

// Rows of a product at a time, so that few sizes are met. In the gradient rows are what is summed: runs of a block are
// added as gemm adds its blocks.
constexpr int64_t most_rows = gemm_k_block;
constexpr int64_t gradient_values = 512 << 10;  // of the sums of all units that wait, at a time
constexpr int64_t line = 16;                    // floats
constexpr int64_t bytes_per_float = sizeof(float);

int64_t line_aligned(int64_t values) { return (values + line - 1) / line * line; }

struct Picked {
  int64_t rows = 0, k = 0, n = 0, matrices = 0;
  bool transposed = false;
  Units units;
  int64_t block = 0;  // rows of a matrix's gradient at a time
  int64_t runs() const { return matrices * units.count; }
  // Elements of a matrix [k, n], or [n, k] if transposed, from one of k, or of n, to the next.
  int64_t along_k() const { return transposed ? 1 : n; }
  int64_t along_n() const { return transposed ? k : 1; }
  int64_t sorted_values() const { return line_aligned(2 * (runs() + 2 + rows)); }  // of 8 bytes
};

// first[r] to first[r + 1] in `order` are the rows of run r: those of a matrix, or of a matrix and a unit. Rows behind
// the last run gather nothing that is there.
struct Runs {
  int64_t *first, *order;
};
Runs sort_rows(const KernelCall& call, const Picked& p, bool by_unit) {
  const int64_t units = by_unit ? p.units.count : 1, runs = p.matrices * units;
  Runs r{static_cast<int64_t*>(call.workspace), static_cast<int64_t*>(call.workspace) + runs + 2};
  const auto run_of = [&](int64_t row) {
    int64_t e = load_int(call.query.in(2).dtype, call.inputs[2], row);
    if (e < 0) e += p.matrices;
    if (e < 0 || e >= p.matrices) return runs;
    return e * units + (by_unit ? p.units.of(row, p.rows) : 0);
  };
  std::fill_n(r.first, runs + 2, int64_t{0});
  for (int64_t row = 0; row < p.rows; ++row) ++r.first[run_of(row) + 1];
  for (int64_t i = 0; i <= runs; ++i) r.first[i + 1] += r.first[i];
  // Filling moves every start to the next one: they are moved back.
  for (int64_t row = 0; row < p.rows; ++row) r.order[r.first[run_of(row)]++] = row;
  std::copy_backward(r.first, r.first + runs + 1, r.first + runs + 2);
  r.first[0] = 0;
  return r;
}

void bring_together(ThreadPool& threads, const int64_t* order, int64_t rows, const float* from, int64_t width,
                    float* to) {
  for_each_row(threads, rows, width, [&](int64_t row) {
    std::memcpy(to + row * width, from + order[row] * width, static_cast<size_t>(width * bytes_per_float));
  });
}

// The bytes that gemm needs for any number of rows up to `most`.
template <class Make> int64_t gemm_bytes(int64_t most, int threads, Make&& problem_of) {
  int64_t bytes = 0;
  for (int64_t rows = 1; rows <= std::min(most, most_rows); ++rows)
    bytes = std::max(bytes, gemm_workspace_bytes(problem_of(rows), threads));
  return bytes;
}

// --- picked_linear ---

GemmProblem product_of(const Picked& p, int64_t rows) {
  GemmProblem product{.m = rows,
                      .n = p.n,
                      .k = p.k,
                      .units = p.units.count,
                      .a_row = p.k,
                      .a_col = 1,
                      .b_row = p.along_k(),
                      .b_col = p.along_n(),
                      .c_row = p.n};
  if (p.units.outer > 1) product.pack_a = product.pack_b = pack_in_unit_order;
  return product;
}

Result<Prepared> prepare_product(const KernelQuery& q) {
  auto p = std::make_shared<Picked>();
  p->transposed = q.attributes.flag("transpose_w");
  p->rows = q.in(0).shape[0];
  p->k = q.in(0).shape[1];
  p->n = q.out(0).shape[1];
  p->matrices = q.in(1).shape[0];
  p->units = q.units;
  EPL_TRY(require(p->units.divide(p->k), "segments that do not divide the sum"));
  const int64_t values = p->sorted_values() + line_aligned(p->rows * p->k) + line_aligned(p->rows * p->n);
  const int64_t product = gemm_bytes(p->rows, q.threads, [&](int64_t rows) { return product_of(*p, rows); });
  return Prepared{.state = p, .workspace_bytes = values * bytes_per_float + product};
}

void launch_product(const KernelCall& call) {
  const Picked& p = *static_cast<const Picked*>(call.state);
  const Runs runs = sort_rows(call, p, false);
  float* const x = static_cast<float*>(call.workspace) + p.sorted_values();
  float* const y = x + line_aligned(p.rows * p.k);
  float* const scratch = y + line_aligned(p.rows * p.n);
  bring_together(call.threads(), runs.order, p.rows, call.in<float>(0), p.k, x);
  for (int64_t e = 0; e < p.matrices; ++e) {
    for (int64_t row = runs.first[e]; row < runs.first[e + 1]; row += most_rows) {
      const GemmProblem product = product_of(p, std::min(most_rows, runs.first[e + 1] - row));
      GemmArguments arguments{.a = x + row * p.k, .b = call.in<float>(1) + e * p.k * p.n, .c = y + row * p.n};
      const StridedOperand a{arguments.a, product.a_row, product.a_col, {}, false},
          b{arguments.b, product.b_col, product.b_row, {}, true};
      const UnitOrder orders[2] = {{pack_strided, &a, p.k, p.units}, {pack_strided, &b, p.k, p.units}};
      arguments.a_context = &orders[0];
      arguments.b_context = &orders[1];
      gemm(product, arguments, scratch, call.threads());
    }
  }
  const int64_t there = runs.first[p.matrices];
  for_each_row(call.threads(), p.rows, p.n, [&](int64_t row) {
    float* const to = call.out<float>(0) + runs.order[row] * p.n;
    if (row < there)
      std::memcpy(to, y + row * p.n, static_cast<size_t>(p.n * bytes_per_float));
    else
      std::fill_n(to, p.n, std::numeric_limits<float>::quiet_NaN());
  });
}

// --- picked_linear_grad_weight ---

// `height` rows of a matrix's gradient: of x's features, or of dy's where it is stored transposed.
GemmProblem gradient_of(const Picked& p, int64_t height, int64_t rows) {
  const int64_t a = p.transposed ? p.n : p.k, b = p.transposed ? p.k : p.n;
  return {.m = height, .n = b, .k = rows, .a_row = 1, .a_col = a, .b_row = b, .b_col = 1, .c_row = b};
}

Result<Prepared> prepare_gradient(const KernelQuery& q) {
  auto p = std::make_shared<Picked>();
  p->transposed = q.attributes.flag("transpose_w");
  p->rows = q.in(0).shape[0];
  p->k = q.in(0).shape[1];
  p->n = q.in(1).shape[1];
  p->matrices = q.out(0).shape[0];
  p->units = q.units;
  EPL_TRY(require(p->units.divide(p->rows), "units that do not divide the rows"));
  EPL_TRY(require_vectors());
  const int64_t height = p->transposed ? p->n : p->k, width = p->transposed ? p->k : p->n;
  p->block = std::clamp<int64_t>(gradient_values / std::max<int64_t>(1, (p->units.count + 1) * width), 1,
                                 std::max<int64_t>(height, 1));
  const int64_t values = p->sorted_values() + line_aligned(p->rows * p->k) + line_aligned(p->rows * p->n) +
                         (p->units.count + 1) * line_aligned(p->block * width);
  int64_t product = 0;
  for (const int64_t some : {p->block, height % std::max<int64_t>(p->block, 1)})
    product =
        std::max(product, gemm_bytes(p->rows, q.threads, [&](int64_t rows) { return gradient_of(*p, some, rows); }));
  return Prepared{.state = p, .workspace_bytes = values * bytes_per_float + product};
}

void launch_gradient(const KernelCall& call) {
  const Picked& p = *static_cast<const Picked*>(call.state);
  const NormLoops& loops = EPL_CPU_CHOOSE(norm_loops)();
  const Runs runs = sort_rows(call, p, true);
  float* const x = static_cast<float*>(call.workspace) + p.sorted_values();
  float* const dy = x + line_aligned(p.rows * p.k);
  float* const sums = dy + line_aligned(p.rows * p.n);
  bring_together(call.threads(), runs.order, p.rows, call.in<float>(0), p.k, x);
  bring_together(call.threads(), runs.order, p.rows, call.in<float>(1), p.n, dy);
  const float *const a = p.transposed ? dy : x, *const b = p.transposed ? x : dy;
  const int64_t height = p.transposed ? p.n : p.k, width = p.transposed ? p.k : p.n;
  const int64_t step = line_aligned(p.block * width);
  float *const more = sums + p.units.count * step, *const scratch = more + step;
  const auto add = [&](float* to, const float* from, int64_t values) {
    call.threads().run_ranges(values, task_values,
                              [&](int64_t begin, int64_t end) { loops.add(to + begin, from + begin, end - begin); });
  };
  for (int64_t e = 0; e < p.matrices; ++e) {
    if (runs.first[e * p.units.count] == runs.first[(e + 1) * p.units.count]) {  // nobody gathers it
      std::fill_n(call.out<float>(0) + e * height * width, height * width, 0.0f);
      continue;
    }
    for (int64_t at = 0; at < height; at += p.block) {
      const int64_t some = std::min(p.block, height - at), values = some * width;
      float* const result = call.out<float>(0) + (e * height + at) * width;
      for (int64_t u = 0; u < p.units.count; ++u) {
        const int64_t run = e * p.units.count + u;
        float* const sum = sums + u * step;
        if (runs.first[run] == runs.first[run + 1]) std::fill_n(sum, values, 0.0f);
        for (int64_t row = runs.first[run]; row < runs.first[run + 1]; row += most_rows) {
          const bool first = row == runs.first[run];
          const GemmProblem product = gradient_of(p, some, std::min(most_rows, runs.first[run + 1] - row));
          gemm(product, {.a = a + row * height + at, .b = b + row * width, .c = first ? sum : more}, scratch,
               call.threads());
          if (!first) add(sum, more, values);
        }
      }
      for (int64_t pair = 1; pair < p.units.count; pair *= 2) {
        for (int64_t u = 0; u + pair < p.units.count; u += 2 * pair)
          add(sums + u * step, sums + (u + pair) * step, values);
      }
      std::memcpy(result, sums, static_cast<size_t>(values * bytes_per_float));
    }
  }
}

}  // namespace

EPL_KERNELS(cpu, picked_linear) {
  table.add({.op = "picked_linear",
             .name = "picked_linear_sorted",
             .dtypes = {DType::f32},
             .prepare = prepare_product,
             .launch = launch_product});
}

EPL_KERNELS(cpu, picked_linear_grad_weight) {
  table.add({.op = "picked_linear_grad_weight",
             .name = "picked_linear_grad_weight_sorted",
             .dtypes = {DType::f32},
             .prepare = prepare_gradient,
             .launch = launch_gradient});
}

}  // namespace epl::cpu
