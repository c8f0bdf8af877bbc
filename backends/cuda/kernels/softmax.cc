// Softmax, log-softmax, cross-entropy and their gradients: 16 threads for each row.
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};

Result<Kernel> rows_of(const Query& q, std::string_view loop, int operands) {
  const AxisRows rows(q.in(0), q.axis("axis"));
  EPL_TRY(require(rows.n > 0, "empty rows"));
  Kernel kernel;
  if (rows.inner == 1) {
    for (int i = 0; i < operands; ++i) kernel.aliases.push_back({i, 0});
  }
  if (rows.rows == 0) return kernel;
  RowLayout layout(kernel, rows);
  std::vector<Argument> arguments;
  std::string parameters, passed;
  for (int i = 0; i < operands; ++i) {
    arguments.push_back(layout.read(input(i)));
    parameters += cat("const float* x", i, ", ");
    passed += cat("x", i, " + row * n, ");
  }
  arguments.push_back(layout.write(output(0)));
  const std::string body = cat(constant("n", rows.n), "extern \"C\" __global__ void rows(", parameters, "float* y) {\n",
                               row_head(rows.rows), "  epl::cpu::gpu::", loop, "(", passed, "y + row * n, n);\n}\n");
  kernel.launches.push_back(
      launch_threads(program({rows_file}, body), "rows", rows.rows * row_threads, std::move(arguments)));
  layout.finish();
  return kernel;
}

Result<Kernel> softmax(const Query& q) { return rows_of(q, "softmax", 1); }
Result<Kernel> softmax_grad(const Query& q) { return rows_of(q, "softmax_grad", 2); }
Result<Kernel> log_softmax(const Query& q) { return rows_of(q, "log_softmax", 1); }
Result<Kernel> log_softmax_grad(const Query& q) { return rows_of(q, "log_softmax_grad", 2); }

Status accepts(const Query& q) {
  const DType target = q.in(1).dtype;
  EPL_TRY(require(target == DType::i64 || target == DType::i32, "targets of another type than i64 and i32"));
  return require(q.in(0).shape[static_cast<size_t>(q.axis("axis"))] > 0, "no classes");
}

Result<Kernel> cross_entropy(const Query& q) {
  EPL_TRY(accepts(q));
  const AxisRows rows(q.in(0), q.axis("axis"));
  const Reduction sum({rows.rows}, {0}, q.units);
  EPL_TRY(require(q.units.divide(rows.rows), "units that do not divide the positions"));
  Kernel kernel;
  RowLayout layout(kernel, rows);
  const Argument x = layout.read(input(0)), terms = workspace(kernel.workspace_bytes);
  kernel.workspace_bytes += line_aligned(rows.rows * 4);
  const int64_t for_sum = kernel.workspace_bytes;
  if (rows.rows > 0) kernel.workspace_bytes += sum.workspace_bytes();
  const std::string body = cat(
      constant("n", rows.n), "extern \"C\" __global__ void losses(const float* x, const ", memory_type(q.in(1).dtype),
      "* targets, float* lses, float* terms, long long ignored) {\n", row_head(rows.rows),
      "  const long long target = targets[row];\n"
      "  const bool valid = target >= 0 && target < n;\n"
      "  const float lse = lses || target != ignored ? epl::cpu::gpu::log_sum_exp(x + row * n, n) : 0.0f;\n"
      "  if (lane > 0) return;\n"
      "  if (lses) lses[row] = lse;\n"
      "  terms[row] = target == ignored ? 0.0f : valid ? lse - x[row * n + target] : __builtin_nanf(\"\");\n}\n");
  kernel.launches.push_back(launch_threads(program({rows_file}, body), "losses", rows.rows * row_threads,
                                           {x, input(1), output(1), terms, number(q.integer("ignore_index"))}));
  if (q.has_output(0)) add_reduction(kernel, sum, "Sum", terms, output(0), for_sum);
  return kernel;
}

Result<Kernel> cross_entropy_grad(const Query& q) {
  EPL_TRY(accepts(q));
  const AxisRows rows(q.in(0), q.axis("axis"));
  Kernel kernel;
  if (rows.inner == 1) kernel.aliases.push_back({0, 0});
  RowLayout layout(kernel, rows);
  const Argument x = layout.read(input(0)), y = layout.write(output(0));
  const std::string body =
      cat(constant("n", rows.n), "extern \"C\" __global__ void gradients(const float* x, const ",
          memory_type(q.in(1).dtype),
          "* targets, const float* scale, const float* lses, float* y, long long ignored) {\n", row_head(rows.rows),
          "  const long long target = targets[row];\n"
          "  if (target >= 0 && target < n && target != ignored)\n"
          "    return epl::cpu::gpu::cross_entropy_grad(x + row * n, lses[row], target, *scale, y + row * n, n);\n"
          "  const float value = target == ignored ? 0.0f : __builtin_nanf(\"\");\n"
          "  for (long long i = lane; i < n; i += 16) y[row * n + i] = value;\n}\n");
  kernel.launches.push_back(launch_threads(program({rows_file}, body), "gradients", rows.rows * row_threads,
                                           {x, input(1), input(2), input(3), y, number(q.integer("ignore_index"))}));
  layout.finish();
  return kernel;
}

constexpr int64_t exact_count = int64_t{1} << 24;

// One block: a count is exact in any order.
Result<Kernel> count_valid(const Query& q) {
  const int64_t n = q.in(0).elements();
  EPL_TRY(require(n < exact_count, "2^24 targets or more"));
  EPL_TRY(require(q.units.divide(n), "units that do not divide the targets"));
  const std::string body =
      cat("extern \"C\" __global__ void count(const ", memory_type(q.in(0).dtype),
          "* targets, float* y, long long n, long long ignored) {\n"
          "  __shared__ int counts[256];\n  int own = 0;\n"
          "  for (long long i = threadIdx.x; i < n; i += 256) own += targets[i] != ignored;\n"
          "  counts[threadIdx.x] = own;\n  __syncthreads();\n"
          "  for (int half = 128; half > 0; half /= 2) {\n"
          "    if (threadIdx.x < half) counts[threadIdx.x] += counts[threadIdx.x + half];\n    __syncthreads();\n  }\n"
          "  if (threadIdx.x == 0) *y = (float)counts[0];\n}\n");
  Kernel kernel;
  kernel.launches.push_back(launch_threads(program({}, body), "count", block_threads,
                                           {input(0), output(0), number(n), number(q.integer("ignore_index"))}));
  return kernel;
}

constexpr DType indices[] = {DType::i64, DType::i32};

}  // namespace

Rows softmax_rows() {
  return {{"softmax", "softmax_rows", f32, softmax},
          {"softmax_grad", "softmax_grad_rows", f32, softmax_grad},
          {"log_softmax", "log_softmax_rows", f32, log_softmax},
          {"log_softmax_grad", "log_softmax_grad_rows", f32, log_softmax_grad},
          {"cross_entropy", "cross_entropy_rows", f32, cross_entropy},
          {"cross_entropy_grad", "cross_entropy_grad_rows", f32, cross_entropy_grad},
          {"count_valid", "count_valid_block", indices, count_valid}};
}

}  // namespace epl::cuda
