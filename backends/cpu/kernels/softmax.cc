// Rows of softmax, log_softmax and their gradients: the axis must be the last.
#include "backends/cpu/kernels/softmax.h"

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

bool accepts(const KernelQuery& q) {
  int axis = q.axis("axis");
  return q.require(q.in(0).shape[axis] > 0, "empty rows") && requires_inner_axis(q, axis);
}
bool may_alias(const KernelQuery&, int, int) { return true; }

template <auto member>
void one_operand(const KernelCall& call) {
  int64_t n = call.query.in(0).shape[call.query.axis("axis")], rows = call.query.in(0).elements() / n;
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().*member;
  for_each_row(call.threads, rows, n, [&](int64_t r) { loop(call.in<float>(0) + r * n, call.out<float>(0) + r * n, n); });
}
template <auto member>
void two_operands(const KernelCall& call) {
  int64_t n = call.query.in(0).shape[call.query.axis("axis")], rows = call.query.in(0).elements() / n;
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().*member;
  for_each_row(call.threads, rows, n, [&](int64_t r) {
    loop(call.in<float>(0) + r * n, call.in<float>(1) + r * n, call.out<float>(0) + r * n, n);
  });
}

}  // namespace

EPL_KERNELS(cpu, softmax) {
  const std::vector<DType> f32 = {DType::f32};
  table.add({.op = "softmax", .name = "softmax_rows", .dtypes = f32, .accepts = accepts, .may_alias = may_alias,
             .launch = one_operand<&SoftmaxLoops::softmax>});
  table.add({.op = "softmax_grad", .name = "softmax_grad_rows", .dtypes = f32, .accepts = accepts, .may_alias = may_alias,
             .launch = two_operands<&SoftmaxLoops::softmax_grad>});
  table.add({.op = "log_softmax", .name = "log_softmax_rows", .dtypes = f32, .accepts = accepts, .may_alias = may_alias,
             .launch = one_operand<&SoftmaxLoops::log_softmax>});
  table.add({.op = "log_softmax_grad", .name = "log_softmax_grad_rows", .dtypes = f32, .accepts = accepts, .may_alias = may_alias,
             .launch = two_operands<&SoftmaxLoops::log_softmax_grad>});
}

}  // namespace epl::cpu
