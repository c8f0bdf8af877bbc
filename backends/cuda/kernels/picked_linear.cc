// picked_linear and the gradient of its weight: an element for each thread. The gradient sums, for each unit of the
// rows, those that picked its matrix, in their order and by blocks of 256; units are joined by the binary tree.
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};

std::string pick_function(DType type, int64_t matrices) {
  return cat("using Index = ", memory_type(type), ";\ninline long long pick_of(const Index* picks, long long row) {\n",
             "  long long pick = picks[row];\n  if (pick < 0) pick += ", matrices, ";\n  return pick >= 0 && pick < ",
             matrices, " ? pick : -1;\n}\n");
}

constexpr std::string_view product = R"text(
extern "C" __global__ void picked(const float* x, const float* w, const Index* picks, float* y) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= rows * n) return;
  const long long row = t / n, column = t % n, pick = pick_of(picks, row);
  if (pick < 0) {
    y[t] = __builtin_nanf("");
    return;
  }
  const float *a = x + row * k, *b = w + pick * k * n + column * along_n;
  float tree[40];
  for (long long unit = 0;; ++unit) {
    float sum = 0.0f;
    for (long long block = 0; block < run; block += 256) {
      float chain = 0.0f;
      const long long first = unit * run + block, last = unit * run + (block + 256 < run ? block + 256 : run);
      for (long long i = first; i < last; ++i) chain = ::fmaf(a[i], b[i * along_k], chain);
      sum = block == 0 ? chain : sum + chain;
    }
    if (!joined(tree, unit, units, &sum)) continue;
    y[t] = sum;
    return;
  }
}
)text";

Result<Kernel> picked_linear(const Query& q) {
  const bool transposed = q.flag("transpose_w");
  const int64_t rows = q.in(0).shape[0], k = q.in(0).shape[1], n = q.out(0).shape[1];
  EPL_TRY(require(is_integer(q.in(2).dtype), "picks that are no integers"));
  EPL_TRY(require(q.units.outer == 1 && q.units.divide(k), "segments of the sum that are interleaved"));
  Kernel kernel;
  if (rows * n == 0) return kernel;
  const std::string body =
      cat(pick_function(q.in(2).dtype, q.in(1).shape[0]), constant("rows", rows), constant("k", k), constant("n", n),
          constant("along_k", transposed ? 1 : n), constant("along_n", transposed ? k : 1),
          constant("units", q.units.count), constant("run", k / q.units.count), join_function, product);
  kernel.launches.push_back(
      launch_threads(program({}, body), "picked", rows * n, {input(0), input(1), input(2), output(0)}));
  return kernel;
}

constexpr std::string_view gradient = R"text(
extern "C" __global__ void picked(const float* a, const float* b, const Index* picks, float* y) {
  const long long t = (long long)blockIdx.x * 256 + threadIdx.x;
  if (t >= matrices * height * width) return;
  const long long matrix = t / (height * width), i = t / width % height, j = t % width;
  float tree[40];
  for (long long unit = 0;; ++unit) {
    float sum = 0.0f, chain = 0.0f;
    long long taken = 0;
    for (long long row = 0; row < rows; ++row) {
      if (row / run % units != unit || pick_of(picks, row) != matrix) continue;
      if (taken > 0 && taken % 256 == 0) {
        sum = taken == 256 ? chain : sum + chain;
        chain = 0.0f;
      }
      chain = ::fmaf(a[row * height + i], b[row * width + j], chain);
      ++taken;
    }
    sum = taken <= 256 ? chain : sum + chain;
    if (!joined(tree, unit, units, &sum)) continue;
    y[t] = sum;
    return;
  }
}
)text";

Result<Kernel> picked_linear_grad_weight(const Query& q) {
  const bool transposed = q.flag("transpose_w");
  const int64_t rows = q.in(0).shape[0], k = q.in(0).shape[1], n = q.in(1).shape[1], matrices = q.out(0).shape[0];
  EPL_TRY(require(is_integer(q.in(2).dtype), "picks that are no integers"));
  EPL_TRY(require(q.units.divide(rows), "units that do not divide the rows"));
  const int64_t height = transposed ? n : k, width = transposed ? k : n;
  Kernel kernel;
  if (matrices * height * width == 0) return kernel;
  const std::string body =
      cat(pick_function(q.in(2).dtype, matrices), constant("rows", rows), constant("matrices", matrices),
          constant("height", height), constant("width", width), constant("units", q.units.count),
          constant("run", std::max<int64_t>(1, q.units.run(rows))), join_function, gradient);
  kernel.launches.push_back(
      launch_threads(program({}, body), "picked", matrices * height * width,
                     {input(transposed ? 1 : 0), input(transposed ? 0 : 1), input(2), output(0)}));
  return kernel;
}

}  // namespace

Rows picked_linear_rows() {
  return {{"picked_linear", "picked_linear_elements", f32, picked_linear},
          {"picked_linear_grad_weight", "picked_linear_grad_weight_elements", f32, picked_linear_grad_weight}};
}

}  // namespace epl::cuda
