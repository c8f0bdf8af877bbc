#include "backends/cuda/generate/product.h"

#include <bit>

#include "core/base/text.h"

namespace epl::cuda {

namespace {

// Of a side of its square. The more, the less shared memory is read for each multiplication; few elements are better
// spread over many threads.
int64_t elements_of_a_thread(const Product& p) {
  const auto blocks = [&](int64_t tile) { return (p.m + tile - 1) / tile * ((p.n + tile - 1) / tile) * p.batch; };
  if (p.m >= 128 && p.n >= 128 && blocks(128) >= 96) return 8;
  return p.m >= 64 && p.n >= 64 && blocks(64) >= 16 ? 4 : 1;
}

}  // namespace

void add_product(Kernel& kernel, const Product& p, Argument a, Argument b, Argument bias, Argument c) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const int64_t each = elements_of_a_thread(p);
  const int levels = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(p.units))) - 1);
  const int64_t tile = 16 * each;
  const std::string body =
      cat(p.functions, "struct P {\n  const float *a_data, *b_data, *bias_data;\n  static ", constant("m", p.m),
          "  static ", constant("n", p.n), "  static ", constant("k", p.k), "  static ", constant("units", p.units),
          "  static constexpr int levels = ", levels,
          ";\n  static constexpr bool a_rows_follow = ", p.a_rows_follow ? "true" : "false",
          ", b_columns_follow = ", p.b_columns_follow ? "true" : "false", ";\n",
          "  float a(long long batch, long long row, long long k) const { return ", p.a, "; }\n",
          "  float b(long long batch, long long k, long long column) const { return ", p.b, "; }\n",
          "  long long c(long long batch, long long row, long long column) const { return ", p.c, "; }\n",
          "  float biased(long long batch, long long row, long long column, float sum) const { return ",
          p.bias.empty() ? std::string("sum") : cat("sum + ", p.bias), "; }\n};\n",
          // Two blocks of a processor, whose waits overlap.
          "extern \"C\" __global__ void __launch_bounds__(256, 2) product(const float* a, const float* b, const float* "
          "bias, float* c) {\n",
          "  product_tile<P, ", each, ">(P{a, b, bias}, c);\n}\n");
  kernel.launches.push_back({.source = program({product_file}, body),
                             .entry = "product",
                             .grid = {static_cast<unsigned>((p.n + tile - 1) / tile),
                                      static_cast<unsigned>((p.m + tile - 1) / tile), static_cast<unsigned>(p.batch)},
                             .block = {256, 1, 1},
                             .arguments = {a, b, bias, c}});
}

}  // namespace epl::cuda
