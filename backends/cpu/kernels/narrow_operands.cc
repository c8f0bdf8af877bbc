#include "backends/cpu/kernels/narrow_operands.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>

#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/kernels/tile_loops.h"
#include "core/base/narrow.h"

namespace epl::cpu {
namespace {

constexpr int max_operands = 4;

struct Widened {
  KernelQuery query;  // with operands of float32
  Prepared prepared;
  // Where operands are in the workspace, in bytes; -1: they are used as they are.
  std::array<int64_t, max_operands> at;
};

int64_t in_lines(int64_t bytes) { return (bytes + 63) / 64 * 64; }

Result<Prepared> prepare_widened(const KernelRow& row, const KernelQuery& q) {
  EPL_TRY(require_vectors());
  EPL_TRY(require(q.inputs() <= max_operands, "more than four operands"));
  EPL_TRY(require(q.out(0).dtype == DType::f32, "a result that is rounded to 16 bits"));
  auto widened = std::make_shared<Widened>();
  widened->query = q;
  int64_t bytes = 0;
  for (int i = 0; i < q.inputs(); ++i) {
    int64_t& at = widened->at[static_cast<size_t>(i)] = -1;
    TensorType& type = widened->query.input_types[static_cast<size_t>(i)];
    if (!q.has(i) || !has_16_bits(type.dtype)) continue;
    type.dtype = DType::f32;
    at = bytes;
    bytes += in_lines(type.bytes());
  }
  EPL_ASSIGN(widened->prepared, row.prepare(widened->query));
  bytes += in_lines(widened->prepared.workspace_bytes);
  return Prepared{.state = std::move(widened), .workspace_bytes = bytes};
}

void widen(ThreadPool& threads, DType type, const void* from, float* to, int64_t count) {
  const TileLoop load = EPL_CPU_CHOOSE(tile_loop_table)().loops[load_row(type, ElementClass::real32)][0];
  threads.run_ranges(count, task_values, [&](int64_t begin, int64_t end) {
    load(static_cast<const uint16_t*>(from) + begin, nullptr, nullptr, to + begin, end - begin);
  });
}

void launch_widened(const KernelRow& row, const KernelCall& call) {
  const auto& widened = *static_cast<const Widened*>(call.state);
  std::array<const void*, max_operands> inputs = {};
  auto* const workspace = static_cast<std::byte*>(call.workspace);
  int64_t used = 0;
  for (int i = 0; i < call.query.inputs(); ++i) {
    const int64_t at = widened.at[static_cast<size_t>(i)];
    inputs[static_cast<size_t>(i)] = call.inputs[i];
    if (at < 0) continue;
    auto* const to = reinterpret_cast<float*>(workspace + at);
    widen(call.threads(), call.query.in(i).dtype, call.inputs[i], to, call.query.in(i).elements());
    inputs[static_cast<size_t>(i)] = to;
    used = at + in_lines(widened.query.in(i).bytes());
  }
  row.launch({widened.query, widened.prepared.state.get(), inputs.data(), call.outputs, workspace + used, call.stream,
              call.context});
}

}  // namespace

KernelRow of_narrow_operands(const KernelRow& row) {
  return {.op = row.op,
          .name = cat(row.name, "_of_16_bits"),
          .dtypes = {DType::bf16, DType::f16},
          .prepare = [row](const KernelQuery& q) { return prepare_widened(row, q); },
          .launch = [row](const KernelCall& call) { launch_widened(row, call); }};
}

}  // namespace epl::cpu
