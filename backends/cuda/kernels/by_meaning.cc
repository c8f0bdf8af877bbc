// Sums, extremes and products of types that the CPU has no kernel for: in the order of the ops' meanings, which the CPU
// computes then. An element is a thread's. Real numbers are added in float64, unit by unit, and units joined by the
// binary tree after rounding; integers wrap.
#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/region.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

// `Wide unit_sum(term)` over `length` terms.
constexpr std::string_view unit_sum = R"text(
template <class Term> inline Wide unit_sum(const Term& term) {
  if (!real || units == 1) {
    decltype(real_or_bits()) sum = 0;
    for (long long i = 0; i < length; ++i) sum += term(i);
    return (Wide)sum;
  }
  Wide tree[40];
  for (long long unit = 0;; ++unit) {
    Wide sum = 0;
    for (long long i = unit * run; i < (unit + 1) * run; ++i) sum += (Wide)term(position(i));
    sum = loaded(rounded(sum));
    int level = 0;
    for (long long bit = unit; bit & 1; bit >>= 1, ++level) sum = loaded(rounded(tree[level] + sum));
    if (unit + 1 == units) return sum;
    tree[level] = sum;
  }
}
)text";

// What the loops over `length` positions need.
std::string sum_functions(DType type, int64_t length, Units units) {
  return cat(element_functions(type), constant("length", length), constant("units", units.count),
             constant("run", length / units.count), position_function(units, length),
             "constexpr bool real = ", is_float(type) ? "true" : "false", ";\n", is_float(type) ? "double" : "uint64_t",
             " real_or_bits();\n", unit_sum);
}

Kernel launched(const std::string& functions, int64_t threads, std::string_view parameters, std::string_view value,
                std::vector<Argument> arguments) {
  Kernel kernel;
  if (threads == 0) return kernel;
  const std::string body = cat(functions, "extern \"C\" __global__ void by_meaning(", parameters, ") {\n",
                               thread_head(threads), value, "}\n");
  kernel.launches.push_back(launch_threads(program({region_file}, body), "by_meaning", threads, std::move(arguments)));
  return kernel;
}

Result<Kernel> reduced(const Query& q, Units units, std::string_view value) {
  const DType type = q.in(0).dtype;
  EPL_TRY(require(type != DType::boolean, "truth values"));
  const Reduction r(q.in(0).shape, q.integers("axes"), units);
  EPL_TRY(require(units.divide(r.reduced), "units that do not divide the summed elements"));
  const std::string functions =
      sum_functions(type, r.reduced, units) + walk_function("kept_at", r.kept) + walk_function("folded_at", r.folded);
  return launched(functions, r.outputs, "const Memory* x, Memory* y", value, {input(0), output(0)});
}

Result<Kernel> sum(const Query& q) {
  return reduced(q, q.units,
                 "  const long long base = kept_at(t);\n"
                 "  y[t] = rounded(unit_sum([&](long long i) { return loaded(x[base + folded_at(i)]); }));\n");
}
Result<Kernel> prod_reduce(const Query& q) {
  return reduced(q, Units(),
                 "  const long long base = kept_at(t);\n  decltype(real_or_bits()) product = 1;\n"
                 "  for (long long i = 0; i < length; ++i) product *= loaded(x[base + folded_at(i)]);\n"
                 "  y[t] = rounded((Wide)product);\n");
}

Result<Kernel> extreme(const Query& q, bool largest) {
  const DType type = q.in(0).dtype;
  std::string first = largest ? "0" : "~(uint64_t)0";
  if (is_float(type)) first = largest ? "-infinity" : "infinity";
  if (is_integer(type) && type != DType::u64) first = largest ? "INT64_MIN" : "INT64_MAX";
  const std::string better = largest ? "best < v ? v : best" : "v < best ? v : best";
  return reduced(
      q, Units(),
      cat("  const long long base = kept_at(t);\n  Wide best = ", first,
          ";\n  for (long long i = 0; i < length; ++i) {\n    const Wide v = loaded(x[base + folded_at(i)]);\n",
          is_float(type) ? cat("    best = best != best || v != v ? (Wide)__builtin_nanf(\"\") : ", better)
                         : cat("    best = ", better),
          ";\n  }\n  y[t] = rounded(best);\n"));
}
Result<Kernel> max_reduce(const Query& q) { return extreme(q, true); }
Result<Kernel> min_reduce(const Query& q) { return extreme(q, false); }

int64_t count(const Shape& shape, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t d = begin; d < end; ++d) n *= shape[d];
  return n;
}

Status fits(const Query& q, int64_t length) {
  const DType type = q.in(0).dtype;
  EPL_TRY(require(type == q.out(0).dtype, "sums of another type than the operands"));
  EPL_TRY(require(type == q.in(1).dtype, "operands of different types"));
  EPL_TRY(require(q.in(0).dtype != DType::boolean, "truth values"));
  return require(q.units.divide(length), "units that do not divide the summed dimension");
}

// Elements of a and b, of positions of k, from where those of the result's element begin.
std::string product_of(std::string_view a, std::string_view b) {
  return cat("unit_sum([&](long long i) {\n    return (decltype(real_or_bits()))loaded(a[", a,
             "]) * (decltype(real_or_bits()))loaded(b[", b, "]);\n  })");
}
constexpr std::string_view two_operands = "const Memory* a, const Memory* b, ";

std::string matrices(std::string_view name, const Shape& own, const Shape& all) {
  const Shape strides = row_major_strides(own);
  const size_t shift = all.size() - own.size();
  Walks walks;
  for (size_t d = 0; d < all.size(); ++d)
    walks.push_back({all[d], d < shift || own[d - shift] == 1 ? 0 : strides[d - shift]});
  return walk_function(name, walks);
}

Result<Kernel> matmul(const Query& q) {
  const Shape &a = q.in(0).shape, &b = q.in(1).shape;
  const bool ta = q.flag("transpose_a"), tb = q.flag("transpose_b");
  const int64_t m = a.size() == 1 ? 1 : a[ta ? a.size() - 1 : a.size() - 2],
                k = a[a.size() == 1 || !ta ? a.size() - 1 : a.size() - 2],
                n = b.size() == 1 ? 1 : b[tb ? b.size() - 2 : b.size() - 1];
  EPL_TRY(fits(q, k));
  const Shape of_a = a.size() > 2 ? Shape(a.begin(), a.end() - 2) : Shape(),
              of_b = b.size() > 2 ? Shape(b.begin(), b.end() - 2) : Shape();
  Shape all(std::max(of_a.size(), of_b.size()), 1);
  for (size_t d = 0; d < all.size(); ++d) {
    const int64_t size_a = d < of_a.size() ? of_a[of_a.size() - 1 - d] : 1,
                  size_b = d < of_b.size() ? of_b[of_b.size() - 1 - d] : 1;
    all[all.size() - 1 - d] = size_a == 1 ? size_b : size_a;
  }
  const std::string functions =
      sum_functions(q.out(0).dtype, k, q.units) + matrices("a_matrix", of_a, all) + matrices("b_matrix", of_b, all);
  const std::string value = cat(
      "  const long long batch = t / ", m * n, ", row = t / ", n, " % ", m, ", column = t % ", n,
      ", a0 = a_matrix(batch) * ", m * k, " + row * ", ta && a.size() > 1 ? 1 : k, ", b0 = b_matrix(batch) * ", k * n,
      " + column * ", tb && b.size() > 1 ? k : 1, ";\n  y[t] = rounded(",
      product_of(cat("a0 + i * ", ta && a.size() > 1 ? m : 1), cat("b0 + i * ", tb && b.size() > 1 ? 1 : n)), ");\n");
  return launched(functions, q.out(0).elements(), cat(two_operands, "Memory* y"), value,
                  {input(0), input(1), output(0)});
}

// The bias is added before the sum is rounded.
Result<Kernel> linear(const Query& q) {
  const bool transposed = q.flag("transpose_w");
  const int64_t k = q.in(0).shape.back(), n = q.in(1).shape[transposed ? 0 : 1];
  EPL_TRY(fits(q, k));
  const std::string value =
      cat("  const long long row = t / ", n, ", column = t % ", n, ";\n  Wide sum = ",
          product_of(cat("row * ", k, " + i"), transposed ? cat("column * ", k, " + i") : cat("i * ", n, " + column")),
          ";\n  if (bias) sum = sum + loaded(bias[column]);\n  y[t] = rounded(sum);\n");
  return launched(sum_functions(q.out(0).dtype, k, q.units), q.out(0).elements(),
                  cat(two_operands, "const Memory* bias, Memory* y"), value,
                  {input(0), input(1), q.has(2) ? input(2) : Argument{}, output(0)});
}

Result<Kernel> linear_grad_weight(const Query& q) {
  const Shape& x = q.in(0).shape;
  const int64_t rows = count(x, 0, x.size() - 1), k = x.back(), n = q.in(1).shape.back();
  EPL_TRY(fits(q, rows));
  const bool transposed = q.flag("transpose_w");
  const std::string value = cat("  const long long of_x = t ", transposed ? "%" : "/", " ", transposed ? k : n,
                                ", of_dy = t ", transposed ? "/" : "%", " ", transposed ? k : n, ";\n  y[t] = rounded(",
                                product_of(cat("i * ", k, " + of_x"), cat("i * ", n, " + of_dy")), ");\n");
  return launched(sum_functions(q.out(0).dtype, rows, q.units), q.out(0).elements(), cat(two_operands, "Memory* y"),
                  value, {input(0), input(1), output(0)});
}

std::string pick_function(DType type, int64_t matrices) {
  return cat("using Index = ", memory_type(type), ";\ninline long long pick_of(const Index* picks, long long row) {\n",
             "  long long pick = picks[row];\n  if (pick < 0) pick += ", matrices, ";\n  return pick >= 0 && pick < ",
             matrices, " ? pick : -1;\n}\n");
}
Status picks(const Query& q, int64_t length) {
  EPL_TRY(require(is_float(q.in(0).dtype), "elements that are no real numbers"));
  EPL_TRY(require(is_integer(q.in(2).dtype), "picks that are no integers"));
  return fits(q, length);
}

Result<Kernel> picked_linear(const Query& q) {
  const int64_t k = q.in(0).shape[1], n = q.out(0).shape[1];
  EPL_TRY(picks(q, k));
  const bool transposed = q.flag("transpose_w");
  const std::string value =
      cat("  const long long row = t / ", n, ", column = t % ", n, ", pick = pick_of(picks, row);\n  if (pick < 0) {\n",
          "    y[t] = rounded((Wide)__builtin_nanf(\"\"));\n    return;\n  }\n  y[t] = rounded(",
          product_of(cat("row * ", k, " + i"),
                     cat("pick * ", k * n, " + column * ", transposed ? k : 1, " + i * ", transposed ? 1 : n)),
          ");\n");
  return launched(sum_functions(q.out(0).dtype, k, q.units) + pick_function(q.in(2).dtype, q.in(1).shape[0]),
                  q.out(0).elements(), cat(two_operands, "const Index* picks, Memory* y"), value,
                  {input(0), input(1), input(2), output(0)});
}

// Rows that picked another matrix add nothing.
Result<Kernel> picked_linear_grad_weight(const Query& q) {
  const int64_t rows = q.in(0).shape[0], k = q.in(0).shape[1], n = q.in(1).shape[1];
  EPL_TRY(picks(q, rows));
  const bool transposed = q.flag("transpose_w");
  const std::string value =
      cat("  const long long matrix = t / ", k * n, ", of_x = t ", transposed ? "%" : "/", " ", transposed ? k : n,
          " % ", k, ", of_dy = t ", transposed ? "/" : "%", " ", transposed ? k : n, " % ", n,
          ";\n  y[t] = rounded(unit_sum([&](long long i) {\n    return pick_of(picks, i) == matrix ? loaded(a[i * ", k,
          " + of_x]) * loaded(b[i * ", n, " + of_dy]) : (Wide)0;\n  }));\n");
  return launched(sum_functions(q.out(0).dtype, rows, q.units) + pick_function(q.in(2).dtype, q.out(0).shape[0]),
                  q.out(0).elements(), cat(two_operands, "const Index* picks, Memory* y"), value,
                  {input(0), input(1), input(2), output(0)});
}

}  // namespace

// Behind the rows of float32.
Rows rows_by_meaning() {
  return {
      {"sum", "sum_by_meaning", {}, sum},
      {"max_reduce", "max_by_meaning", {}, max_reduce},
      {"min_reduce", "min_by_meaning", {}, min_reduce},
      {"prod_reduce", "product_by_meaning", {}, prod_reduce},
      {"matmul", "matmul_by_meaning", {}, matmul},
      {"linear", "linear_by_meaning", {}, linear},
      {"linear_grad_weight", "linear_grad_weight_by_meaning", {}, linear_grad_weight},
      {"picked_linear", "picked_linear_by_meaning", other_floats, picked_linear},
      {"picked_linear_grad_weight", "picked_linear_grad_weight_by_meaning", other_floats, picked_linear_grad_weight}};
}

}  // namespace epl::cuda
