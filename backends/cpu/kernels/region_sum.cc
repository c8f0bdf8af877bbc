// Sums of what a region computes, without a tensor of it in memory: the row of `fused_sum`.
//
// The region runs in the order in which the sums take their operands, segment by segment, in each thread's part of the
// workspace (reduce.h). The bits are those of the region and of the sums one after the other.
#include "backends/cpu/kernels/elementwise_run.h"
#include "backends/cpu/kernels/reduce.h"

namespace epl::cpu {
namespace {

// Elements that follow one another in memory; below this each tile costs more than its elements.
constexpr int64_t shortest_run = 32;

struct RegionSum {
  std::unique_ptr<const PreparedElementwise> region;
  PreparedReduce reduce;
  int sums = 0;
  size_t stored = 0;  // results that are outputs themselves
  int64_t region_bytes = 0;
};

Result<Prepared> prepare(const KernelQuery& q) {
  EPL_TRY(require(cpu_level() != CpuLevel::none, "a processor without AVX2"));
  EPL_ASSIGN(const ScalarExpr expression, ScalarExpr::parse(q.attributes.text("expression")));
  Shape shape;
  for (const TensorType& type : q.input_types) {
    EPL_ASSIGN(shape, broadcast_shapes(shape, type.shape));
  }
  auto state = std::make_shared<RegionSum>();
  state->sums = static_cast<int>(q.attributes.integer("sums"));
  state->stored = q.output_types.size() - static_cast<size_t>(state->sums);
  std::vector<TensorType> results(q.output_types.begin(), q.output_types.begin() + static_cast<long>(state->stored));
  for (size_t k = state->stored; k < q.output_types.size(); ++k) {
    EPL_TRY(require(q.output_types[k].dtype == DType::f32, "a sum of another type than f32"));
    results.push_back({DType::f32, shape});
  }
  const int64_t elements = results.back().elements();
  EPL_TRY(require(elements > 0, "no elements"));
  const Ints& axes = q.attributes.ints("axes");
  const int64_t reduced = PreparedReduce(shape, axes, 1).reduced();
  EPL_TRY(require(q.units.divide(reduced), "units that do not divide the summed elements"));
  state->reduce = PreparedReduce(shape, axes, q.units);
  EPL_TRY(require(state->reduce.shortest_run() >= shortest_run, "summed elements that lie apart"));
  std::string reason;
  state->region =
      PreparedElementwise::make(expression, q.input_types, results, &reason, PreparedElementwise::Tiles::of_powers);
  EPL_TRY(require(state->region != nullptr, reason));
  state->region_bytes = state->region->workspace_bytes(q.threads);
  const int64_t bytes = state->region_bytes + state->reduce.made_workspace_bytes(state->sums, q.threads);
  // An output that is an input as it is would find another one written over it.
  auto aliases = state->region->passes_inputs_through() ? std::vector<Prepared::Alias>() : equal_aliases(q);
  std::erase_if(aliases, [&](const Prepared::Alias& a) { return static_cast<size_t>(a.output) >= state->stored; });
  return Prepared{.state = state, .workspace_bytes = bytes, .aliases = std::move(aliases)};
}

void launch(const KernelCall& call) {
  const auto& state = *static_cast<const RegionSum*>(call.state);
  using Run = PreparedElementwise::Run;
  Run(*state.region, call, state.stored, 0).uniform_values();
  const auto task = [&](int thread, PreparedReduce::Walk walk) {
    Run run(*state.region, call, state.stored, thread);
    walk([&](int64_t first, int64_t count, float* room) {
      for (int k = 0; k < state.sums; ++k)
        run.set_result(state.stored + static_cast<size_t>(k), room + k * reduce_segment, first);
      run.range(first, count);
    });
    run.finish();
  };
  state.reduce.run_made(state.sums, task, call.outputs + state.stored,
                        static_cast<std::byte*>(call.workspace) + state.region_bytes, call.threads());
}

}  // namespace

EPL_KERNELS(cpu, region_sum) {
  table.add({.op = "fused_sum", .name = "fused_sum_segments", .prepare = prepare, .launch = launch});
}

}  // namespace epl::cpu
