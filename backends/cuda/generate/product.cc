#include "backends/cuda/generate/product.h"

#include <bit>

#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/steps.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

int64_t blocks_of(const Product& p, int64_t each) {
  const int64_t tile = 16 * each;
  return (p.m + tile - 1) / tile * ((p.n + tile - 1) / tile) * p.batch;
}

// Of a side of its square. The more, the less shared memory is read for each multiplication; few elements are better
// spread over many threads.
int64_t elements_of_a_thread(const Product& p) {
  if (p.m >= 128 && p.n >= 128 && blocks_of(p, 8) >= 96) return 8;
  return p.m >= 64 && p.n >= 64 && blocks_of(p, 4) >= 16 ? 4 : 1;
}

constexpr int64_t enough_blocks = 264;                    // two for each processor of a large GPU
constexpr int64_t most_parts_bytes = int64_t{256} << 20;  // of products of units
constexpr int64_t most_of_grid = 65535;                   // in its third direction

// Whether units are multiplied side by side: where one after another would leave processors idle.
bool splits_units(const Product& p) {
  return p.units > 1 && blocks_of(p, elements_of_a_thread(p)) < enough_blocks && p.batch * p.units <= most_of_grid &&
         p.batch * p.units * p.m * p.n * 4 <= most_parts_bytes;
}

std::string shapes(const Product& p, int64_t units) {
  const int levels = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(units))) - 1);
  return cat("  static ", constant("m", p.m), "  static ", constant("n", p.n), "  static ",
             constant("k", units == p.units ? p.k : p.k / p.units), "  static ", constant("units", units),
             "  static constexpr int levels = ", levels,
             ";\n  static constexpr bool a_rows_follow = ", p.a_rows_follow ? "true" : "false",
             ", b_columns_follow = ", p.b_columns_follow ? "true" : "false", ";\n");
}

std::string biased(const Product& p) { return p.bias.empty() ? std::string("sum") : cat("sum + ", p.bias); }

// struct P of text/product.cuh. Where units are split, `batch` counts them too, and each has a result of its own.
std::string operands(const Product& p, bool split) {
  const std::string of_unit = split ? cat("    const long long batch = z / ", p.units, ", k = z % ", p.units, " * ",
                                          p.k / p.units, " + of_run;\n")
                                    : std::string("    const long long batch = z, k = of_run;\n");
  const std::string where = split ? cat("z * ", p.m * p.n, "LL + row * ", p.n, "LL + column") : p.c;
  return cat(operand_types(p.type), p.functions, "struct P {\n  Operand a_data, b_data;\n  const float* bias_data;\n",
             shapes(p, split ? 1 : p.units), "  float a(long long z, long long row, long long of_run) const {\n",
             of_unit, "    return ", p.a,
             ";\n  }\n  float b(long long z, long long of_run, long long column) const {\n", of_unit, "    return ",
             p.b, ";\n  }\n  long long c(long long z, long long row, long long column) const {\n",
             "    const long long batch = z;\n    return ", where, ";\n  }\n",
             "  float biased(long long batch, long long row, long long column, float sum) const { return ",
             split ? std::string("sum") : biased(p), "; }\n};\n");
}

// Joins the products of units, [batch, unit, m, n], by the binary tree.
std::string join_units(const Product& p) {
  return cat(join_function,
             "extern \"C\" __global__ void join_units(const float* parts, const float* bias_data, float* c) {\n",
             thread_head(p.batch * p.m * p.n), "  const long long batch = t / ", p.m * p.n, "LL, row = t / ", p.n,
             "LL % ", p.m, "LL, column = t % ", p.n, "LL;\n  float tree[40];\n  for (long long unit = 0; unit < ",
             p.units, "; ++unit) {\n    float sum = parts[(batch * ", p.units, " + unit) * ", p.m * p.n, "LL + row * ",
             p.n, "LL + column];\n    if (joined(tree, unit, ", p.units, ", &sum)) c[", p.c, "] = ", biased(p),
             ";\n  }\n}\n");
}

}  // namespace

Status sums_are_wide(const Query& q) {
  EPL_TRY(require(q.in(0).dtype == q.in(1).dtype, "operands of different types"));
  return require(q.out(0).dtype == DType::f32, "a result that is rounded to 16 bits");
}

void add_join_of_units(Kernel& kernel, const Product& p, Argument parts, Argument bias, Argument c) {
  kernel.launches.push_back(
      launch_threads(program({product_file}, cat(operand_types(p.type), p.functions, join_units(p))), "join_units",
                     p.batch * p.m * p.n, {parts, bias, c}));
}

void add_product(Kernel& kernel, const Product& p, Argument a, Argument b, Argument bias, Argument c) {
  if (p.m == 0 || p.n == 0 || p.batch == 0) return;
  const bool split = splits_units(p);
  Product each_unit = p;
  if (split) each_unit.batch *= p.units;
  const int64_t each = elements_of_a_thread(each_unit), tile = 16 * each;
  const std::string body = cat(
      operands(p, split),
      // Two blocks of a processor, whose waits overlap.
      "extern \"C\" __global__ void __launch_bounds__(256, 2) product(const Memory* a, const Memory* b, const float* "
      "bias, float* c) {\n",
      "  product_tile<P, ", each, ">(P{Operand{a}, Operand{b}, bias}, c);\n}\n", split ? join_units(p) : std::string());
  const std::string text = program({product_file}, body);
  Argument parts = c;
  if (split) {
    parts = workspace(line_aligned(kernel.workspace_bytes));
    kernel.workspace_bytes = parts.value + line_aligned(each_unit.batch * p.m * p.n * 4);
  }
  kernel.launches.push_back(
      {.source = text,
       .entry = "product",
       .grid = {static_cast<unsigned>((p.n + tile - 1) / tile), static_cast<unsigned>((p.m + tile - 1) / tile),
                static_cast<unsigned>(each_unit.batch)},
       .block = {256, 1, 1},
       .arguments = {a, b, bias, parts}});
  if (split) kernel.launches.push_back(launch_threads(text, "join_units", p.batch * p.m * p.n, {parts, bias, c}));
}

}  // namespace epl::cuda
