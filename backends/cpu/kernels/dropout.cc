// The row of dropout. A draw depends on the seed, the step, the node's name and the element's position in the global
// batch. So it is the same under every layout.
#include "backends/cpu/kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/rows.h"
#include "core/base/philox.h"

namespace epl::cpu {
namespace {

void dropout(const KernelCall& call) {
  double ratio = call.attributes().number("ratio");
  uint32_t threshold = static_cast<uint32_t>(std::ceil(ratio * 16777216.0));  // of 24 bits; exact
  float scale = static_cast<float>(1 / (1 - ratio));
  const StepNumbers numbers = call.context.numbers();
  uint64_t key = random_key(numbers.seed, static_cast<uint64_t>(numbers.step), call.query.key);
  int64_t n = call.query.in(0).elements();
  DropoutLoop loop = cpu_level() >= CpuLevel::v4 ? v4::dropout_loop : v3::dropout_loop;
  const float* x = call.in<float>(0);
  float* y = call.out<float>(0);
  uint8_t* mask = call.query.outputs() > 1 ? call.out<uint8_t>(1) : nullptr;
  const bool full = call.attributes().flag(draws_in_full);
  // Of a shard: elements follow in runs.
  const int64_t* own = call.query.has(1) ? call.in<int64_t>(1) : nullptr;
  const int64_t offset = own ? *own : 0, run = own ? call.attributes().integer("run") : INT64_MAX,
                stride = own ? call.attributes().integer("stride") : 0;
  for_each_run(full ? StepContext{} : call.context, n, [&](int64_t first, int64_t run_begin, int64_t run_end) {
    call.threads().run_ranges(run_end - run_begin, task_values, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end;) {
        const int64_t at = run_begin + i, in_run = (first + i) % run, count = std::min(end - i, run - in_run),
                      element = offset + (first + i) / run * stride + in_run;
        loop(key, static_cast<uint64_t>(element), threshold, scale, x + at, y + at, mask ? mask + at : nullptr, count);
        i += count;
      }
    });
  });
}

Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(require(q.has_output(0), "an unused result"));
  EPL_TRY(require_vectors());
  return Prepared{.aliases = {{.input = 0, .output = 0}}};
}

}  // namespace

EPL_KERNELS(cpu, dropout) {
  table.add({.op = "dropout", .name = "dropout_philox", .dtypes = {DType::f32}, .prepare = prepare, .launch = dropout});
}

}  // namespace epl::cpu
