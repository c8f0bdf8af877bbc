// Ops that go along an axis element by element: arg_max, arg_min and top_k, which compare and give positions, and
// cum_sum. A row is a thread's. Any element type.
#include "backends/cuda/generate/region.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

// `offset(row)`, sizes, and `at(x, i)`: element i in a type that holds every value.
std::string row_functions(const AxisRows& rows, DType type) {
  std::string read = cat("x[i]"), as = std::string(memory_type(type));
  if (type == DType::f16) as = "float", read = "widened_half(x[i])";
  if (type == DType::bf16) as = "float", read = "epl::bfloat_to_float(x[i])";
  return cat(constant("n", rows.n), constant("inner", rows.inner), "using Value = ", as,
             ";\nusing Memory = ", memory_type(type),
             ";\ninline long long offset(long long row) { return row / inner * n * inner + row % inner; }\n",
             "inline Value at(const Memory* x, long long i) { return ", read, "; }\n");
}

Kernel launched(const AxisRows& rows, DType type, std::string_view body, std::vector<Argument> arguments) {
  Kernel kernel;
  if (rows.rows == 0) return kernel;
  const std::string text = cat(row_functions(rows, type), constant("rows", rows.rows), body);
  kernel.launches.push_back(launch_threads(program({region_file}, text), "along", rows.rows, std::move(arguments)));
  return kernel;
}

// A NaN that is not the first element is never better than another one.
Result<Kernel> arg(const Query& q, bool largest) {
  const AxisRows rows(q.in(0), q.axis("axis"));
  EPL_TRY(require(rows.n > 0, "empty rows"));
  const std::string body =
      cat("extern \"C\" __global__ void along(const Memory* x, long long* y) {\n", thread_head(rows.rows),
          "  const long long from = offset(t);\n  Value best = at(x, from);\n  long long position = 0;\n"
          "  for (long long i = 1; i < n; ++i) {\n    const Value value = at(x, from + i * inner);\n    if (",
          largest ? "value > best" : "value < best", q.flag("last") ? " || value == best" : "",
          ") best = value, position = i;\n  }\n  y[t] = position;\n}\n");
  return launched(rows, q.in(0).dtype, body, {input(0), output(0)});
}
Result<Kernel> arg_max(const Query& q) { return arg(q, true); }
Result<Kernel> arg_min(const Query& q) { return arg(q, false); }

// One after the other the best of those behind the last: equal elements keep the order of their positions, and a NaN
// counts as larger than every number.
Result<Kernel> top_k(const Query& q) {
  const AxisRows rows(q.in(0), q.axis("axis"));
  const std::string body =
      cat(constant("k", q.integer("k")),
          "inline bool less(Value a, Value b) { return b != b ? a == a : a < b; }\n"
          "inline bool better(Value a, long long i, Value b, long long j) {\n"
          "  if (less(a, b) || less(b, a)) return ",
          q.flag("largest") ? "less(b, a)" : "less(a, b)",
          ";\n  return i < j;\n}\n"
          "extern \"C\" __global__ void along(const Memory* x, Memory* values, long long* indices) {\n",
          thread_head(rows.rows),
          "  const long long from = offset(t), to = t / inner * k * inner + t % inner;\n  long long last = -1;\n"
          "  for (long long m = 0; m < k; ++m) {\n    long long best = -1;\n    for (long long i = 0; i < n; ++i) {\n"
          "      const Value value = at(x, from + i * inner);\n"
          "      if (last >= 0 && !better(at(x, from + last * inner), last, value, i)) continue;\n"
          "      if (best < 0 || better(value, i, at(x, from + best * inner), best)) best = i;\n    }\n"
          "    if (values) values[to + m * inner] = x[from + best * inner];\n"
          "    if (indices) indices[to + m * inner] = best;\n    last = best;\n  }\n}\n");
  return launched(rows, q.in(0).dtype, body,
                  {input(0), q.has_output(0) ? output(0) : Argument{}, q.has_output(1) ? output(1) : Argument{}});
}

// Real numbers are added in float64, integers in 64 bits that wrap.
Result<Kernel> cum_sum(const Query& q) {
  const DType type = q.in(0).dtype;
  EPL_TRY(require(type != DType::boolean, "truth values"));
  const AxisRows rows(q.in(0), q.axis("axis"));
  const bool real = is_float(type);
  const std::string_view rounded = type == DType::f16    ? "half_of(out)"
                                   : type == DType::bf16 ? "bfloat_of(out)"
                                                         : "(Memory)out";
  const std::string body = cat(
      "extern \"C\" __global__ void along(const Memory* x, Memory* y) {\n", thread_head(rows.rows), "  ",
      real ? "double" : "unsigned long long", " sum = 0;\n  for (long long i = 0; i < n; ++i) {\n",
      "    const long long position = offset(t) + (", q.flag("reverse") ? "n - 1 - i" : "i", ") * inner;\n    const ",
      real ? "double" : "unsigned long long", " value = (", real ? "double" : "unsigned long long",
      ")at(x, position), out = ", q.flag("exclusive") ? "sum" : "sum + value", ";\n    y[position] = ", rounded,
      ";\n    sum += value;\n  }\n}\n");
  return launched(rows, type, body, {input(0), output(0)});
}

}  // namespace

Rows along_axis_rows() {
  return {{"arg_max", "arg_max", {}, arg_max},
          {"arg_min", "arg_min", {}, arg_min},
          {"top_k", "top_k", {}, top_k},
          {"cum_sum", "cum_sum", {}, cum_sum}};
}

}  // namespace epl::cuda
