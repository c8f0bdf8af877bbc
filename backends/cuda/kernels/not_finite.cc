// Looks for a NaN or an infinity: elements whose exponent has all bits set.
#include "backends/cuda/generate/program.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr int64_t most_blocks = 1024;

std::string exponent_of(DType type) {
  switch (type) {
    case DType::f64:
      return "0x7ff0000000000000ull";
    case DType::f16:
      return "(uint16_t)0x7c00";
    case DType::bf16:
      return "(uint16_t)0x7f80";
    default:
      return "0x7f800000u";
  }
}

// The least number of an operand that has one goes to an integer in the workspace.
Launch look(DType type, int64_t i, int64_t n) {
  const std::string body =
      cat("extern \"C\" __global__ void look(const ", bytes_type(type),
          "* x, int* first, long long n, long long number) {\n",
          "  bool found = false;\n"
          "  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < n; i += (long long)gridDim.x * 256)\n"
          "    found = found || (x[i] & ",
          exponent_of(type), ") == ", exponent_of(type),
          ";\n"
          "  if (found) atomicMin(first, (int)number);\n}\n");
  Launch launch = launch_threads(program({}, body), "look", n, {input(i), workspace(0), number(n), number(i)});
  launch.grid[0] = static_cast<unsigned>(std::min<int64_t>(launch.grid[0], most_blocks));
  return launch;
}

Result<Kernel> first_not_finite(const Query& q) {
  const bool counted = q.flag("counted");
  const int64_t checked = static_cast<int64_t>(q.inputs.size()) - (counted ? 1 : 0);
  Kernel kernel{.launches = {}, .workspace_bytes = 256, .aliases = {}};
  const bool counts = counted && q.has(static_cast<int>(checked));
  const DType count_type = counts ? q.in(static_cast<int>(checked)).dtype : DType::f32;
  EPL_TRY(require(count_type != DType::f16 && count_type != DType::bf16, "a count of 16 bits"));
  const std::string body =
      cat("extern \"C\" __global__ void begin(int* first, long long checked) { *first = (int)checked; }\n"
          "extern \"C\" __global__ void end(const int* first, const ",
          memory_type(count_type),
          "* count, long long* y, long long checked) {\n"
          "  *y = count && *count == 0 ? 0 : *first == checked ? -1 : *first;\n}\n");
  const std::string text = program({}, body);
  kernel.launches.push_back({.source = text, .entry = "begin", .arguments = {workspace(0), number(checked)}});
  for (int64_t i = 0; i < checked; ++i) {
    if (!q.has(static_cast<int>(i)) || q.in(static_cast<int>(i)).elements() == 0) continue;
    const TensorType& type = q.in(static_cast<int>(i));
    EPL_TRY(require(is_float(type.dtype), "an operand of integers"));
    kernel.launches.push_back(look(type.dtype, i, type.elements()));
  }
  kernel.launches.push_back(
      {.source = text,
       .entry = "end",
       .arguments = {workspace(0), counts ? input(checked) : Argument{}, output(0), number(checked)}});
  return kernel;
}

}  // namespace

Rows not_finite_rows() { return {{"first_not_finite", "first_not_finite_bits", {}, first_not_finite}}; }

}  // namespace epl::cuda
