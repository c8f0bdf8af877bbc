// Rows for tensors of 16 bits out of rows for float32: operands are widened into the workspace, and results rounded out
// of it. The CPU follows the ops' meanings there, whose bits are others, so these rows serve where bits may be the
// device's own.
#include <algorithm>

#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/narrow.h"
#include "core/base/text.h"

namespace epl::cuda {

Rows conv_rows();
Rows picked_linear_rows();
Rows softmax_rows();

namespace {

constexpr DType narrow_types[] = {DType::bf16, DType::f16};

// One way between 16 bits and float32.
void add_cast(Kernel& kernel, DType from, DType to, int64_t count, Argument x, Argument y) {
  if (count == 0) return;
  const bool widens = to == DType::f32;
  const DType narrow = widens ? from : to;
  const std::string_view way = widens ? narrow == DType::f16 ? "widened_half(x[t])" : "epl::bfloat_to_float(x[t])"
                               : narrow == DType::f16 ? "half_of(x[t])"
                                                      : "bfloat_of(x[t])";
  const std::string body = cat("extern \"C\" __global__ void cast(const ", memory_type(from), "* x, ", memory_type(to),
                               "* y) {\n", thread_head(count), "  y[t] = ", way, ";\n}\n");
  kernel.launches.push_back(launch_threads(program({half_file}, body), "cast", count, {x, y}));
}

// A library may be missing, which is found when the whole kernel is prepared: then no other row for float32 is asked.
bool calls_a_library(const Kernel& kernel) {
  return std::ranges::any_of(kernel.launches,
                             [](const Launch& one) { return !std::holds_alternative<std::monostate>(one.call); });
}

Result<Kernel> in_float32(const Query& wide) {
  Status refused = unsupported("no row for float32");
  for (Rows (*family)() : {conv_rows, picked_linear_rows, softmax_rows}) {
    for (const Row& row : family()) {
      if (wide.op != row.op || std::ranges::find(row.dtypes, DType::f32) == row.dtypes.end()) continue;
      Result<Kernel> made = row.make(wide);
      if (made.ok() && !calls_a_library(*made)) return made;
      if (!made.ok()) refused = made.status();
    }
  }
  return refused;
}

// What has 16 bits of `operands` becomes float32, each with its place in the workspace; -1: it is what it was.
std::vector<int64_t> places_of(std::vector<Operand>& operands, int64_t& bytes) {
  std::vector<int64_t> places;
  for (Operand& one : operands) {
    const bool narrow = one.present && has_16_bits(one.type.dtype);
    places.push_back(narrow ? bytes : -1);
    if (!narrow) continue;
    one.type.dtype = DType::f32;
    bytes += line_aligned(one.type.bytes());
  }
  return places;
}

Result<Kernel> between_casts(const Query& q) {
  EPL_TRY(require(q.bits != Bits::exact, "the CPU follows the op's meaning, whose bits reproducible.level keeps"));
  EPL_TRY(
      require(!q.splits_keep_bits, "a part of a split follows the op's meaning, whose bits reproducible.level keeps"));
  Query wide = q;
  Kernel kernel;
  const std::vector<int64_t> inputs = places_of(wide.inputs, kernel.workspace_bytes),
                             outputs = places_of(wide.outputs, kernel.workspace_bytes);
  EPL_ASSIGN(Kernel inner, in_float32(wide));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] >= 0)
      add_cast(kernel, q.inputs[i].type.dtype, DType::f32, q.inputs[i].elements(), input(static_cast<int64_t>(i)),
               workspace(inputs[i]));
  }
  for (Launch& launch : inner.launches) {
    for (Argument& argument : launch.arguments) {
      const auto at = static_cast<size_t>(argument.value);
      if (argument.kind == Argument::Kind::workspace) argument.value += kernel.workspace_bytes;
      if (argument.kind == Argument::Kind::input && inputs[at] >= 0) argument = workspace(inputs[at]);
      if (argument.kind == Argument::Kind::output && outputs[at] >= 0) argument = workspace(outputs[at]);
    }
    kernel.launches.push_back(std::move(launch));
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] >= 0)
      add_cast(kernel, DType::f32, q.outputs[o].type.dtype, q.outputs[o].elements(), workspace(outputs[o]),
               output(static_cast<int64_t>(o)));
  }
  kernel.workspace_bytes += inner.workspace_bytes;
  return kernel;
}

// A sum over units whose result has 16 bits is rounded for each micro-batch, and otherwise once.
Result<Kernel> sums_between_casts(const Query& q) {
  EPL_TRY(require(q.bits == Bits::run, "sums over units are rounded once, whose bits reproducible.level keeps"));
  return between_casts(q);
}

}  // namespace

// Ops that have a body are not here: a row that takes a type keeps its op from being expanded at every level.
Rows rows_between_casts() {
  return {{"conv", "conv_between_casts", narrow_types, between_casts},
          {"conv_grad_input", "conv_grad_input_between_casts", narrow_types, between_casts},
          {"conv_grad_weight", "conv_grad_weight_between_casts", narrow_types, sums_between_casts},
          {"cross_entropy", "cross_entropy_between_casts", narrow_types, between_casts},
          {"cross_entropy_grad", "cross_entropy_grad_between_casts", narrow_types, between_casts},
          {"picked_linear", "picked_linear_between_casts", narrow_types, between_casts},
          {"picked_linear_grad_weight", "picked_linear_grad_weight_between_casts", narrow_types, sums_between_casts}};
}

}  // namespace epl::cuda
