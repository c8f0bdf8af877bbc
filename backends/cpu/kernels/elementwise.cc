// The elementwise engine at run time, and the row of `fused`. See elementwise.h.
#include "backends/cpu/kernels/elementwise.h"

#include <algorithm>

#include "backends/cpu/kernels/elementwise_run.h"
#include "core/base/cache_line.h"
#include "core/base/thread_pool.h"

namespace epl::cpu {
namespace {

constexpr int64_t task_elements = 32768;  // what is worth waking a thread for

}  // namespace

bool PreparedElementwise::passes_inputs_through() const {
  return std::ranges::any_of(outputs_, [&](const Output& output) {
    return std::ranges::any_of(steps_, [&](const Step& s) { return s.kind == Kind::load && s.result == output.value; });
  });
}

int64_t PreparedElementwise::thread_bytes() const {
  return line_aligned(static_cast<int64_t>(values_.size()) * 9) + line_aligned(slots_ * tile_ * element_bytes_);
}

int64_t PreparedElementwise::workspace_bytes(int threads) const {
  return line_aligned(static_cast<int64_t>(values_.size()) * 8) + threads * thread_bytes();
}

void PreparedElementwise::launch(const KernelCall& call) const {
  if (elements_ == 0) return;
  Run(*this, call, outputs_.size(), 0).uniform_values();
  int64_t tiles = (elements_ + tile_ - 1) / tile_;
  int64_t tasks = std::clamp<int64_t>(elements_ / task_elements, 1, int64_t{8} * call.threads().size());
  call.threads().run(tasks, [&](int64_t task, int thread) {
    Run run(*this, call, outputs_.size(), thread);
    const int64_t first = tiles * task / tasks * tile_;
    run.range(first, std::min(elements_, tiles * (task + 1) / tasks * tile_) - first);
    run.finish();
  });
}

namespace {

Result<Prepared> prepare(const KernelQuery& q) {
  EPL_ASSIGN(const ScalarExpr expression, ScalarExpr::parse(q.attributes.text("expression")));
  std::string reason;
  std::shared_ptr<const PreparedElementwise> prepared =
      PreparedElementwise::make(expression, q.input_types, q.output_types, &reason);
  EPL_TRY(require(prepared != nullptr, reason));
  // An output that is an input as it is would find another one written over it.
  return Prepared{.state = prepared,
                  .workspace_bytes = prepared->workspace_bytes(q.threads),
                  .aliases = prepared->passes_inputs_through() ? std::vector<Prepared::Alias>() : equal_aliases(q)};
}

}  // namespace

EPL_KERNELS(cpu, fused) {
  table.add({.op = "fused", .name = "fused_tiles", .prepare = prepare, .launch = [](const KernelCall& call) {
               static_cast<const PreparedElementwise*>(call.state)->launch(call);
             }});
}

}  // namespace epl::cpu
