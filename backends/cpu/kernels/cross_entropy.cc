// Softmax cross-entropy over the classes at any axis, its gradient, and the count of targets that count.
//
// The loss of every position goes to the workspace and is summed from there in the canonical order, so that the sum
// does not depend on which thread computed which row. Logits are read twice (maximum, then exponentials) and never
// copied.
#include <limits>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/softmax.h"
#include "core/base/cache_line.h"

namespace epl::cpu {
namespace {

Status accepts(const KernelQuery& q) {
  DType target = q.in(1).dtype;
  EPL_TRY(require(target == DType::i64 || target == DType::i32, "targets of another type than i64 and i32"));
  EPL_TRY(require(q.in(0).shape[q.axis("axis")] > 0, "no classes"));
  return require_vectors();
}

int64_t target_at(const KernelCall& call, int input, int64_t i) {
  return call.query.in(input).dtype == DType::i64 ? call.in<int64_t>(input)[i] : call.in<int32_t>(input)[i];
}

AxisRows rows_of(const KernelQuery& q) { return AxisRows(q.in(0), q.axis("axis")); }
PreparedReduce sum_of_positions(const KernelQuery& q) { return PreparedReduce({q.in(1).elements()}, {0}, q.units); }

// Workspace: the losses of all positions, then the sum's, then the threads' rows.
int64_t terms_bytes(const KernelQuery& q) { return line_aligned(q.in(1).elements() * 4); }
int64_t sum_bytes(const PreparedReduce& reduce, int threads) { return line_aligned(reduce.workspace_bytes(threads)); }
Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(require(q.units.divide(q.in(1).elements()), "units that do not divide the positions"));
  EPL_TRY(accepts(q));
  auto sum = std::make_shared<const PreparedReduce>(sum_of_positions(q));
  return Prepared{
      .state = sum,
      .workspace_bytes = terms_bytes(q) + sum_bytes(*sum, q.threads) + axis_row_scratch(rows_of(q), 1, q.threads)};
}
Result<Prepared> prepare_grad(const KernelQuery& q) {
  EPL_TRY(accepts(q));
  return Prepared{.workspace_bytes = axis_row_scratch(rows_of(q), 1, q.threads),
                  .aliases = {{.input = 0, .output = 0}}};
}

void cross_entropy(const KernelCall& call) {
  const PreparedReduce& sum = *static_cast<const PreparedReduce*>(call.state);
  AxisRows rows = rows_of(call.query);
  int64_t ignored = call.attributes().integer("ignore_index");
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().log_sum_exp;
  float* terms = static_cast<float*>(call.workspace);
  std::byte* for_sum = static_cast<std::byte*>(call.workspace) + terms_bytes(call.query);
  float* lses = call.query.outputs() > 1 ? call.out<float>(1) : nullptr;
  for_each_axis_row(
      call.threads(), rows, 1, for_sum + sum_bytes(sum, call.query.threads), [&](int64_t i, float* scratch) {
        int64_t target = target_at(call, 1, i);
        bool valid = target >= 0 && target < rows.n;
        const float* row = rows.read(call.in<float>(0), i, scratch);
        float lse = lses || target != ignored ? loop(row, rows.n) : 0.0f;
        if (lses) lses[i] = lse;
        terms[i] = target == ignored ? 0.0f : valid ? lse - row[target] : std::numeric_limits<float>::quiet_NaN();
      });
  if (call.outputs[0]) sum.run(Reducer::sum, terms, call.out<float>(0), for_sum, call.threads());
}

void cross_entropy_grad(const KernelCall& call) {
  AxisRows rows = rows_of(call.query);
  int64_t ignored = call.attributes().integer("ignore_index");
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().cross_entropy_grad;
  float scale = *call.in<float>(2);
  float* dx = call.out<float>(0);
  for_each_axis_row(call.threads(), rows, 1, call.workspace, [&](int64_t i, float* scratch) {
    float* to = rows.target(dx, i, scratch);
    int64_t target = target_at(call, 1, i);
    if (target == ignored) {
      std::fill_n(to, rows.n, 0.0f);
    } else if (target < 0 || target >= rows.n) {
      std::fill_n(to, rows.n, std::numeric_limits<float>::quiet_NaN());
    } else {
      loop(rows.read(call.in<float>(0), i, scratch), call.in<float>(3)[i], target, scale, to, rows.n);
    }
    rows.write(dx, i, to);
  });
}

// Counts below 2^24 are exact in float, and so is their tree over units; beyond, the reference rounds unit by unit.
constexpr int64_t exact_count = int64_t{1} << 24;

Result<Prepared> prepare_count(const KernelQuery& q) {
  EPL_TRY(require(q.in(0).elements() < exact_count, "2^24 targets or more"));
  EPL_TRY(require(q.units.divide(q.in(0).elements()), "units that do not divide the targets"));
  return Prepared{};
}

void count_valid(const KernelCall& call) {
  int64_t ignored = call.attributes().integer("ignore_index"), count = 0;
  for (int64_t i = 0; i < call.query.in(0).elements(); ++i) count += target_at(call, 0, i) != ignored;
  *call.out<float>(0) = static_cast<float>(count);
}

}  // namespace

EPL_KERNELS(cpu, cross_entropy) {
  table.add({.op = "cross_entropy",
             .name = "cross_entropy_rows",
             .dtypes = {DType::f32},
             .prepare = prepare,
             .launch = cross_entropy});
  table.add({.op = "cross_entropy_grad",
             .name = "cross_entropy_grad_rows",
             .dtypes = {DType::f32},
             .prepare = prepare_grad,
             .launch = cross_entropy_grad});
  table.add({.op = "count_valid",
             .name = "count_valid_exact",
             .dtypes = {DType::i64, DType::i32},
             .prepare = prepare_count,
             .launch = count_valid});
}

}  // namespace epl::cpu
