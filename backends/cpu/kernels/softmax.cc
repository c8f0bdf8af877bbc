// Rows of softmax, log_softmax and their gradients, along any axis.
#include "backends/cpu/kernels/softmax.h"

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

AxisRows rows_of(const KernelQuery& q) { return AxisRows(q.in(0), q.axis("axis")); }
Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(require(q.in(0).shape[q.axis("axis")] > 0, "empty rows"));
  EPL_TRY(require_vectors());
  return Prepared{.workspace_bytes = axis_row_scratch(rows_of(q), 2, q.threads), .aliases = every_alias(q)};
}

template <auto member> void one_operand(const KernelCall& call) {
  AxisRows rows = rows_of(call.query);
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().*member;
  float* y = call.out<float>(0);
  for_each_axis_row(call.threads(), rows, 2, call.workspace, [&](int64_t r, float* scratch) {
    float* to = rows.target(y, r, scratch);
    loop(rows.read(call.in<float>(0), r, scratch), to, rows.n);
    rows.write(y, r, to);
  });
}
template <auto member> void two_operands(const KernelCall& call) {
  AxisRows rows = rows_of(call.query);
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().*member;
  float* y = call.out<float>(0);
  for_each_axis_row(call.threads(), rows, 2, call.workspace, [&](int64_t r, float* scratch) {
    float* to = rows.target(y, r, scratch);
    const float* a = rows.read(call.in<float>(0), r, scratch);
    loop(a, rows.read(call.in<float>(1), r, scratch + rows.scratch_values()), to, rows.n);
    rows.write(y, r, to);
  });
}

}  // namespace

EPL_KERNELS(cpu, softmax) {
  const std::vector<DType> f32 = {DType::f32};
  table.add({.op = "softmax",
             .name = "softmax_rows",
             .dtypes = f32,
             .prepare = prepare,
             .launch = one_operand<&SoftmaxLoops::softmax>});
  table.add({.op = "softmax_grad",
             .name = "softmax_grad_rows",
             .dtypes = f32,
             .prepare = prepare,
             .launch = two_operands<&SoftmaxLoops::softmax_grad>});
  table.add({.op = "log_softmax",
             .name = "log_softmax_rows",
             .dtypes = f32,
             .prepare = prepare,
             .launch = one_operand<&SoftmaxLoops::log_softmax>});
  table.add({.op = "log_softmax_grad",
             .name = "log_softmax_grad_rows",
             .dtypes = f32,
             .prepare = prepare,
             .launch = two_operands<&SoftmaxLoops::log_softmax_grad>});
}

}  // namespace epl::cpu
