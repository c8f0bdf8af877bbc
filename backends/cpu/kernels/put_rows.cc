// put_rows and take_rows: rows copied to where indices say, and from there; zeros where no row is.
#include <algorithm>
#include <cstring>

#include "backends/cpu/kernels/rows.h"

namespace epl::cpu {
namespace {

// Negative indices count from the end; -1 where there is no such row.
int64_t row_at(const KernelCall& call, int64_t i, int64_t rows) {
  int64_t row = load_int(call.query.in(1).dtype, call.inputs[1], i);
  if (row < 0) row += rows;
  return row >= 0 && row < rows ? row : -1;
}

int64_t row_width(const TensorType& type) {
  int64_t width = 1;
  for (size_t d = 1; d < type.shape.size(); ++d) width *= type.shape[d];
  return width;
}

// Copies row `from` to row `to`, zeros where `from` is negative.
void copy_row(const KernelCall& call, int64_t from, int64_t to, int64_t bytes) {
  std::byte* target = call.out<std::byte>(0) + to * bytes;
  from < 0 ? std::memset(target, 0, static_cast<size_t>(bytes))
           : std::memcpy(target, call.in<std::byte>(0) + from * bytes, static_cast<size_t>(bytes));
}

Result<Prepared> prepare_put(const KernelQuery& q) {
  return Prepared{.workspace_bytes = q.out(0).shape[0] * static_cast<int64_t>(sizeof(int64_t))};
}

// First which row comes last to each slot, then all copies at once.
void put_rows(const KernelCall& call) {
  const TensorType& y = call.query.out(0);
  const int64_t slots = y.shape[0], width = row_width(y), bytes = width * static_cast<int64_t>(dtype_bytes(y.dtype));
  auto* last = static_cast<int64_t*>(call.workspace);
  std::fill_n(last, slots, -1);
  for (int64_t i = 0; i < call.query.in(1).elements(); ++i) {
    if (const int64_t slot = row_at(call, i, slots); slot >= 0) last[slot] = i;
  }
  for_each_row(call.threads(), slots, width, [&](int64_t slot) { copy_row(call, last[slot], slot, bytes); });
}

void take_rows(const KernelCall& call) {
  const TensorType& y = call.query.out(0);
  const int64_t width = row_width(y), bytes = width * static_cast<int64_t>(dtype_bytes(y.dtype));
  for_each_row(call.threads(), y.shape[0], width,
               [&](int64_t i) { copy_row(call, row_at(call, i, call.query.in(0).shape[0]), i, bytes); });
}

}  // namespace

EPL_KERNELS(cpu, put_rows) {
  table.add({.op = "put_rows", .name = "put_rows_copies", .prepare = prepare_put, .launch = put_rows});
  table.add({.op = "take_rows", .name = "take_rows_copies", .launch = take_rows});
}

}  // namespace epl::cpu
