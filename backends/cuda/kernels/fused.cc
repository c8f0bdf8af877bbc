// Elementwise regions: one thread for each element.
#include "backends/cuda/generate/program.h"
#include "backends/cuda/generate/region.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

std::vector<TensorType> types_of(const std::vector<Operand>& operands) {
  std::vector<TensorType> types;
  for (const Operand& o : operands) types.push_back(o.type);
  return types;
}

Result<Kernel> fused(const Query& q) {
  EPL_ASSIGN(const Body body, parse_body(q.text("expression")));
  EPL_ASSIGN(const Region region, make_region(body, types_of(q.inputs), types_of(q.outputs)));
  const int64_t elements = q.out(0).elements();
  std::string parameters, stores;
  std::vector<Argument> arguments;
  for (size_t i = 0; i < q.inputs.size(); ++i) {
    parameters += cat("const ", memory_type(q.inputs[i].type.dtype), "* x", i, ", ");
    arguments.push_back(input(static_cast<int64_t>(i)));
  }
  for (size_t o = 0; o < q.outputs.size(); ++o) {
    parameters += cat(memory_type(q.outputs[o].type.dtype), "* y", o, o + 1 < q.outputs.size() ? ", " : "");
    arguments.push_back(output(static_cast<int64_t>(o)));
    // Every result is computed before the first is stored: one may lie over an operand.
    stores += cat("  const auto r", o, " = ", region.results[o], ";\n");
  }
  for (size_t o = 0; o < q.outputs.size(); ++o) stores += cat("  if (y", o, ") y", o, "[e] = r", o, ";\n");
  const std::string text = cat(region.functions, "extern \"C\" __global__ void region(", parameters, ") {\n",
                               thread_head(elements), "  const long long e = t;\n", region.loads, stores, "}\n");
  return Kernel{.launches = {launch_threads(program({region_file}, text), "region", elements, std::move(arguments))},
                .aliases = equal_aliases(q)};
}

}  // namespace

Rows fused_rows() { return {{"fused", "fused_elements", {}, fused}}; }

}  // namespace epl::cuda
