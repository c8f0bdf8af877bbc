// Softmax cross-entropy over rows of logits, its gradient, and the count of targets that count.
//
// The loss of every position goes to the workspace and is summed from there in the canonical order, so that the sum does
// not depend on who computed which row. Logits are read twice (maximum, then exponentials) and never copied.
#include <limits>

#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/softmax.h"

namespace epl::cpu {
namespace {

int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

bool accepts(const KernelQuery& q) {
  int axis = q.axis("axis");
  DType target = q.in(1).dtype;
  return q.require(target == DType::i64 || target == DType::i32, "targets of another type than i64 and i32") &&
         q.require(q.in(0).shape[axis] > 0, "no classes") && requires_inner_axis(q, axis);
}
bool accepts_sum(const KernelQuery& q) {
  return q.require(q.in(1).elements() % q.units == 0, "units that do not divide the positions") && accepts(q);
}

int64_t target_at(const KernelCall& call, int input, int64_t i) {
  return call.query.in(input).dtype == DType::i64 ? call.in<int64_t>(input)[i] : call.in<int32_t>(input)[i];
}

ReducePlan sum_of_positions(const KernelQuery& q) { return ReducePlan({q.in(1).elements()}, {0}, q.units); }

void cross_entropy(const KernelCall& call) {
  const KernelQuery& q = call.query;
  int64_t classes = q.in(0).shape[q.axis("axis")], positions = q.in(1).elements();
  int64_t ignored = call.attributes().integer("ignore_index");
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().log_sum_exp;
  float* terms = static_cast<float*>(call.workspace);
  for_each_row(call.threads, positions, classes, [&](int64_t i) {
    const float* row = call.in<float>(0) + i * classes;
    int64_t target = target_at(call, 1, i);
    bool saved = call.query.outputs() > 1 && call.outputs[1];
    float lse = saved || target != ignored ? loop(row, classes) : 0.0f;
    if (saved) call.out<float>(1)[i] = lse;
    bool valid = target >= 0 && target < classes;
    terms[i] = target == ignored ? 0.0f : valid ? lse - row[target] : std::numeric_limits<float>::quiet_NaN();
  });
  if (!call.outputs[0]) return;
  auto* rest = static_cast<std::byte*>(call.workspace) + round_up(positions * 4);
  static_cast<const ReducePlan*>(call.prepared)->run(Reducer::sum, terms, call.out<float>(0), rest, call.threads);
}

void cross_entropy_grad(const KernelCall& call) {
  const KernelQuery& q = call.query;
  int64_t classes = q.in(0).shape[q.axis("axis")], positions = q.in(1).elements();
  int64_t ignored = call.attributes().integer("ignore_index");
  auto* loop = EPL_CPU_CHOOSE(softmax_loops)().cross_entropy_grad;
  float scale = *call.in<float>(2);
  for_each_row(call.threads, positions, classes, [&](int64_t i) {
    float* to = call.out<float>(0) + i * classes;
    int64_t target = target_at(call, 1, i);
    if (target == ignored) {
      std::fill_n(to, classes, 0.0f);
    } else if (target < 0 || target >= classes) {
      std::fill_n(to, classes, std::numeric_limits<float>::quiet_NaN());
    } else {
      loop(call.in<float>(0) + i * classes, call.in<float>(3)[i], target, scale, to, classes);
    }
  });
}

// Counts below 2^24 are exact in float, and so is their tree over units; beyond, the reference rounds unit by unit.
constexpr int64_t exact_count = int64_t{1} << 24;

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
             .accepts = accepts_sum,
             .workspace =
                 [](const KernelQuery& q) { return round_up(q.in(1).elements() * 4) + sum_of_positions(q).workspace_bytes(q.threads); },
             .prepare = [](const KernelQuery& q) -> std::shared_ptr<const void> {
               return std::make_shared<const ReducePlan>(sum_of_positions(q));
             },
             .launch = cross_entropy});
  table.add({.op = "cross_entropy_grad",
             .name = "cross_entropy_grad_rows",
             .dtypes = {DType::f32},
             .accepts = accepts,
             .may_alias = [](const KernelQuery&, int input, int) { return input == 0; },
             .launch = cross_entropy_grad});
  table.add({.op = "count_valid",
             .name = "count_valid_exact",
             .dtypes = {DType::i64, DType::i32},
             .accepts =
                 [](const KernelQuery& q) {
                   return q.require(q.in(0).elements() < exact_count, "2^24 targets or more") &&
                          q.require(q.in(0).elements() % q.units == 0, "units that do not divide the targets");
                 },
             .launch = count_valid});
}

}  // namespace epl::cpu
