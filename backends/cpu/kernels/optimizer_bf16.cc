// Rows of the steps of optimizers with states in bf16 (core/ops/optimizer_bf16.cc), in one pass: no state is held in
// float32 beside it.
#include "backends/cpu/kernels/optimizer_bf16.h"

#include <algorithm>

#include "backends/cpu/kernels/rows.h"
#include "core/base/random_rounding.h"
#include "core/base/update_options.h"

namespace epl::cpu {
namespace {

constexpr int64_t line = 32;             // elements: threads meet at the ends of cache lines
constexpr int64_t grain = 16384 / line;  // what is worth waking a thread for

// How many columns from the first one on follow one another; one at least.
int64_t run_of(const int32_t* columns, int64_t n) {
  uint32_t strays = 0;
  for (int64_t i = 0; i < n; ++i)
    strays |= static_cast<uint32_t>(columns[i]) - static_cast<uint32_t>(columns[0]) - static_cast<uint32_t>(i);
  if (strays == 0) return n;
  int64_t run = 1;
  while (run < n && int64_t{columns[run]} == int64_t{columns[run - 1]} + 1) ++run;
  return run;
}

// The operands of a node, for loops over some of its elements.
template <class Step> struct Update {
  static constexpr int first_scalar = 2 + Step::states, rows = first_scalar + Step::scalars;

  explicit Update(const KernelCall& call) : call(call), step(update::step_of<Step>(call.attributes())) {
    for (int i = 0; i < Step::scalars; ++i) scalars[i] = *call.in<float>(first_scalar + i);
    width = call.query.in(rows + 1).elements();
    key = static_cast<uint64_t>(*call.in<int64_t>(rows + 2));
  }
  RoundedUpdate at(int64_t i, uint64_t element, int64_t n) const {
    RoundedUpdate out{key, element, scalars, call.in<float>(0) + i, call.in<float>(1) + i, call.out<float>(0) + i};
    for (int k = 0; k < Step::states; ++k) {
      out.states[k] = call.in<uint16_t>(2 + k) + i;
      out.states_new[k] = call.out<uint16_t>(1 + k) + i;
    }
    out.n = n;
    return out;
  }
  void hold(int64_t i, int64_t n) const {
    const RoundedUpdate all = at(i, 0, n);
    std::copy_n(all.parameter, n, all.parameter_new);
    for (int k = 0; k < Step::states; ++k) std::copy_n(all.states[k], n, all.states_new[k]);
  }
  void run(RoundedLoop<Step> loop, int64_t begin, int64_t end) const {
    const int32_t *row = call.in<int32_t>(rows), *columns = call.in<int32_t>(rows + 1);
    for (int64_t i = begin; i < end;) {
      const int64_t column = i % width, n = run_of(columns + column, std::min(end - i, width - column));
      const uint64_t element =
          element_number(static_cast<uint32_t>(row[i / width]), static_cast<uint32_t>(columns[column]));
      loop(step, at(i, element, n));
      i += n;
    }
  }

  const KernelCall& call;
  const Step step;
  float scalars[Step::scalars];
  int64_t width;
  uint64_t key;
};

template <class Step> void launch(const KernelCall& call) {
  const RoundedLoop<Step> loop = EPL_CPU_CHOOSE(rounded_loop<Step>)();
  const int64_t elements = call.query.in(0).elements();
  if (elements == 0) return;
  const Update<Step> update(call);
  const bool held = call.attributes().flag("holds") && update.scalars[0] < 0;
  call.threads().run_ranges((elements + line - 1) / line, grain, [&](int64_t begin, int64_t end) {
    const int64_t from = begin * line, to = std::min(end * line, elements);
    held ? update.hold(from, to - from) : update.run(loop, from, to);
  });
}

Result<Prepared> prepare(const KernelQuery& q) {
  for (int o = 0; o < q.outputs(); ++o) EPL_TRY(require(q.has_output(o), "a result that nobody wants"));
  EPL_TRY(require_vectors());
  return Prepared{.aliases = equal_aliases(q)};
}

}  // namespace

EPL_KERNELS(cpu, optimizer_bf16) {
  const auto add = [&](std::string op, void (*launch)(const KernelCall&)) {
    table.add({.op = op, .name = op + "_pass", .dtypes = {DType::f32}, .prepare = prepare, .launch = launch});
  };
  add("momentum_bf16", launch<update::Momentum>);
  add("rmsprop_bf16", launch<update::Rmsprop>);
  add("adagrad_bf16", launch<update::Adagrad>);
  add("adam_bf16", launch<update::Adam>);
  add("adamw_bf16", launch<update::Adamw>);
}

}  // namespace epl::cpu
