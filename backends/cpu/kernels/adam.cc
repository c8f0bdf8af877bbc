// Rows of adam and adamw. The fused engine could run them with a pass for every operation. But most passes would wait
// for the one square root and the one division. A single pass overlaps these with everything else and with memory.
#include "backends/cpu/kernels/adam.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

constexpr int64_t line = 16;             // elements: threads meet at the ends of cache lines
constexpr int64_t grain = 16384 / line;  // what is worth waking a thread for

// In the order of the op's expression (core/ops/optimizer.cc), one rounding each.
AdamNumbers numbers_of(const KernelCall& call, bool decoupled) {
  const Attributes& a = call.attributes();
  const auto number = [&](std::string_view name) { return a.number(name); };
  const float lr = *call.in<float>(4), correction1 = *call.in<float>(5), correction2 = *call.in<float>(6);
  const float decay = static_cast<float>(number("weight_decay"));
  AdamNumbers n{};
  n.decay = decoupled ? 0 : decay;
  n.keep = decoupled && decay != 0 ? 1 - decay * lr : 1;
  n.mean_share = static_cast<float>(1 - number("beta1"));
  n.square_keep = static_cast<float>(number("beta2"));
  n.square_share = static_cast<float>(1 - number("beta2"));
  n.spread = 1 / std::sqrt(correction2);
  n.epsilon = static_cast<float>(number("epsilon"));
  n.rate = lr / correction1;
  return n;
}

// A negative rate says that nothing changes.
bool held(const KernelCall& call) { return call.attributes().flag("holds") && *call.in<float>(4) < 0; }

void hold(const KernelCall& call, int64_t at, int64_t n) {
  constexpr int old[] = {0, 2, 3};
  for (int i = 0; i < 3; ++i) std::copy_n(call.in<float>(old[i]) + at, n, call.out<float>(i) + at);
}

template <bool decoupled> void launch(const KernelCall& call) {
  const bool holds = held(call);
  const AdamNumbers numbers = numbers_of(call, decoupled);
  const AdamLoop loop = EPL_CPU_CHOOSE(adam_loop)();
  const int64_t elements = call.query.in(0).elements();
  call.threads().run_ranges((elements + line - 1) / line, grain, [&](int64_t begin, int64_t end) {
    const int64_t at = begin * line, n = std::min(end * line, elements) - at;
    if (holds) return hold(call, at, n);
    loop(numbers, call.in<float>(0) + at, call.in<float>(1) + at, call.in<float>(2) + at, call.in<float>(3) + at,
         call.out<float>(0) + at, call.out<float>(1) + at, call.out<float>(2) + at, n);
  });
}

Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(require(q.has_output(0) && q.has_output(1) && q.has_output(2), "a result that nobody wants"));
  EPL_TRY(require_vectors());
  return Prepared{.aliases = equal_aliases(q)};
}

}  // namespace

EPL_KERNELS(cpu, adam) {
  table.add({.op = "adam", .name = "adam_pass", .dtypes = {DType::f32}, .prepare = prepare, .launch = launch<false>});
  table.add({.op = "adamw", .name = "adamw_pass", .dtypes = {DType::f32}, .prepare = prepare, .launch = launch<true>});
}

}  // namespace epl::cpu
