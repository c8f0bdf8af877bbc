// Matrix products: matmul, linear and the gradient of linear's weight, in the order of the CPU and by cuBLASLt.
// Operands are float32, or of 16 bits with sums and a result of float32 (`wide`).
#include <limits>

#include "backends/cuda/generate/product.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType product_operands[] = {DType::f32, DType::bf16, DType::f16};

int64_t count(const Shape& shape, size_t begin, size_t end) {
  int64_t n = 1;
  for (size_t d = begin; d < end; ++d) n *= shape[d];
  return n;
}

// Strides of rows and of k; of k and of columns.
void set_a(Product& p, bool transposed, std::string_view offset = "0") {
  p.a_rows_follow = transposed;
  p.a = cat("a_data[", offset, " + row * ", transposed ? 1 : p.k, "LL + position(k) * ", transposed ? p.m : 1, "LL]");
}
void set_b(Product& p, bool transposed, std::string_view offset = "0") {
  p.b_columns_follow = !transposed;
  p.b =
      cat("b_data[", offset, " + position(k) * ", transposed ? 1 : p.n, "LL + column * ", transposed ? p.k : 1, "LL]");
}

Result<Kernel> finished(const Query& q, Product& p, int a, int b, Argument bias) {
  EPL_TRY(sums_are_wide(q));
  EPL_TRY(require(q.units.divide(p.k), "units that do not divide the summed dimension"));
  EPL_TRY(require(p.batch < 65536 && p.m < int64_t{65535} * 16, "more products or rows than a grid has"));
  p.units = q.units.count;
  p.type = q.in(0).dtype;
  p.functions += position_function(q.units, p.k);
  Kernel kernel;
  add_product(kernel, p, input(a), input(b), bias, output(0));
  return kernel;
}

// Where matrix number `batch` of the result begins in an operand of these leading dimensions.
std::string matrices(std::string_view name, const Shape& own, const Shape& all) {
  const Shape strides = row_major_strides(own);
  Walks walks;
  for (size_t d = 0; d < all.size(); ++d) {
    const size_t shift = all.size() - own.size();
    walks.push_back({all[d], d < shift || own[d - shift] == 1 ? 0 : strides[d - shift]});
  }
  return walk_function(name, walks);
}

Result<Kernel> matmul(const Query& q) {
  const Shape &a = q.in(0).shape, &b = q.in(1).shape;
  const bool transpose_a = q.flag("transpose_a"), transpose_b = q.flag("transpose_b");
  Product p;
  p.m = a.size() == 1 ? 1 : a[transpose_a ? a.size() - 1 : a.size() - 2];
  p.k = a[a.size() == 1 || !transpose_a ? a.size() - 1 : a.size() - 2];
  p.n = b.size() == 1 ? 1 : b[transpose_b ? b.size() - 2 : b.size() - 1];
  const Shape of_a = a.size() > 2 ? Shape(a.begin(), a.end() - 2) : Shape(),
              of_b = b.size() > 2 ? Shape(b.begin(), b.end() - 2) : Shape();
  Shape all(std::max(of_a.size(), of_b.size()), 1);
  for (size_t d = 0; d < all.size(); ++d) {
    const int64_t size_a = d < of_a.size() ? of_a[of_a.size() - 1 - d] : 1,
                  size_b = d < of_b.size() ? of_b[of_b.size() - 1 - d] : 1;
    all[all.size() - 1 - d] = size_a == 1 ? size_b : size_b == 1 ? size_a : std::min(size_a, size_b);
    p.batch *= all[all.size() - 1 - d];
  }
  p.c = cat("batch * ", p.m * p.n, "LL + row * ", p.n, "LL + column");
  p.functions = matrices("a_matrix", of_a, all) + matrices("b_matrix", of_b, all);
  set_a(p, transpose_a, cat("a_matrix(batch) * ", p.m * p.k, "LL"));
  set_b(p, transpose_b, cat("b_matrix(batch) * ", p.k * p.n, "LL"));
  return finished(q, p, 0, 1, Argument{});
}

Result<Kernel> linear(const Query& q) {
  const Shape& x = q.in(0).shape;
  const bool transposed = q.flag("transpose_w");
  Product p;
  p.m = count(x, 0, x.size() - 1);
  p.k = x.back();
  p.n = q.in(1).shape[transposed ? 0 : 1];
  p.c = cat("row * ", p.n, "LL + column");
  set_a(p, false);
  set_b(p, transposed);
  if (q.has(2)) p.bias = "bias_data[column]";
  return finished(q, p, 0, 1, q.has(2) ? input(2) : Argument{});
}

// The same by cuBLASLt. There a row-major [rows, columns] is a matrix of `columns` rows: so operands change places, and
// the result's columns, to which a bias belongs, are its rows.

constexpr int64_t most_workspace_bytes = int64_t{32} << 20;
// What algorithms are chosen for where they may not follow from what a call has of the batch.
constexpr int64_t typical_rows = 4096, typical_side = 512, typical_products = 8;

Status allowed(const Query& q) {
  EPL_TRY(sums_are_wide(q));
  EPL_TRY(require(q.bits != Bits::exact, "a library has other bits than the CPU, which reproducible.level keeps"));
  return require(!q.splits_keep_bits, "a library has other bits where a split cuts, which reproducible.level keeps");
}

BlasCall::Matrix row_major_matrix(int64_t rows, int64_t columns) {
  return {.rows = columns, .columns = rows, .leading = columns, .stride = rows * columns};
}

// Elements before and behind the dimension that is summed over, of an operand.
struct Summed {
  int operand;
  int64_t before, behind;
};

// Y[m, n] = X W: the sizes of one unit of the sum.
struct BlasProduct {
  BlasCall::Matrix x, w;
  bool transpose_x = false, transpose_w = false;
  int64_t m = 0, n = 0, k = 0, batch = 1;
  bool has_bias = false;
  int64_t typical_m = 0, typical_n = 0, typical_batch = 0;  // BlasCall
};

// Where the units of the sum over k follow one another, each as if it were alone. So a unit is multiplied in the same
// way, whatever others a call has.
Argument units_first(Kernel& kernel, Summed x, DType type, int64_t k, Units units) {
  const Argument given = input(x.operand);
  if (units.count == 1 || (units.outer == 1 && x.before == 1)) return given;
  const int64_t run = units.run(k);
  const Walks source = {{units.count, run * x.behind},
                        {x.before, k * x.behind},
                        {units.outer, units.count * run * x.behind},
                        {run * x.behind, 1}};
  const int64_t elements = x.before * k * x.behind;
  const Argument copy = workspace(line_aligned(kernel.workspace_bytes));
  kernel.workspace_bytes = copy.value + line_aligned(elements * static_cast<int64_t>(dtype_bytes(type)));
  add_copy(kernel, type, given, copy, source, row_major({units.count, x.before, units.outer, run * x.behind}));
  return copy;
}

Status fits(const BlasCall& call) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  for (const BlasCall::Matrix* one : {&call.a, &call.b, &call.d})
    EPL_TRY(require(one->rows > 0 && one->columns > 0 && one->rows <= most && one->columns <= most,
                    "a matrix that is empty, or has more rows or columns than 32 bits count"));
  return require(call.batch > 0 && call.batch <= most, "no products, or more than 32 bits count");
}

// `k`: of all units.
Result<Kernel> blas_kernel(const Query& q, const BlasProduct& p, Summed x, Summed w, int64_t k) {
  const Units units = q.bits == Bits::run ? Units() : q.units;
  BlasCall call{.a = p.w,
                .b = p.x,
                .d = row_major_matrix(p.m, p.n),
                .type = q.in(0).dtype,
                .transpose_a = p.transpose_w,
                .transpose_b = p.transpose_x,
                .has_bias = p.has_bias,
                .batch = p.batch};
  if (q.bits == Bits::run) {
    call.splits_sums = true;
    call.most_workspace_bytes = most_workspace_bytes;
  } else {
    call.typical_rows = p.typical_n;
    call.typical_columns = p.typical_m;
    call.typical_batch = p.typical_batch;
  }
  EPL_TRY(fits(call));
  EPL_TRY(require(units.count == 1 || !p.has_bias, "a sum over units and a bias"));
  Kernel kernel;
  const Argument from_x = units_first(kernel, x, call.type, k, units),
                 from_w = units_first(kernel, w, call.type, k, units);
  Argument to = output(0);
  if (units.count > 1) {
    to = workspace(line_aligned(kernel.workspace_bytes));
    kernel.workspace_bytes = to.value + line_aligned(units.count * p.batch * p.m * p.n * 4);
  }
  const auto add = [&](const BlasCall& one) {
    Launch& launch = kernel.launches.emplace_back();
    launch.arguments = {from_w, from_x, to, p.has_bias ? input(2) : Argument{}};
    launch.call = one;
  };
  const int64_t of_x = x.before * x.behind * p.k, of_w = w.before * w.behind * p.k;
  if (units.count == 1) {
    add(call);
  } else if (p.batch == 1) {
    call.batch = units.count;
    call.a.stride = of_w, call.b.stride = of_x;
    add(call);
  } else {
    call.d.stride = units.count * p.m * p.n;
    for (int64_t unit = 0; unit < units.count; ++unit) {
      call.a.first = unit * of_w, call.b.first = unit * of_x, call.d.first = unit * p.m * p.n;
      add(call);
    }
  }
  if (units.count == 1) return kernel;
  Product join;
  join.m = p.m, join.n = p.n, join.k = k, join.batch = p.batch, join.units = units.count;
  join.c = cat("batch * ", p.m * p.n, "LL + row * ", p.n, "LL + column");
  add_join_of_units(kernel, join, to, Argument{}, output(0));
  return kernel;
}

Result<int64_t> of_unit(const Query& q, int64_t k) {
  if (q.bits == Bits::run) return k;
  EPL_TRY(require(q.units.divide(k), "units that do not divide the summed dimension"));
  return k / q.units.count;
}

// The rows are samples', as many as a call has. That the bits of one do not follow from their number is what algorithms
// do that do not split sums (bench/RESULTS.md); the library promises it for equal calls alone.
Result<Kernel> linear_blas_lt(const Query& q) {
  EPL_TRY(allowed(q));
  const Shape& x = q.in(0).shape;
  BlasProduct p;
  p.transpose_w = q.flag("transpose_w");
  p.m = count(x, 0, x.size() - 1), p.n = q.in(1).shape[p.transpose_w ? 0 : 1];
  EPL_ASSIGN(p.k, of_unit(q, x.back()));
  p.x = row_major_matrix(p.m, p.k);
  p.w = p.transpose_w ? row_major_matrix(p.n, p.k) : row_major_matrix(p.k, p.n);
  p.has_bias = q.has(2);
  p.typical_m = typical_rows, p.typical_batch = 1;
  return blas_kernel(q, p, {0, p.m, 1}, p.transpose_w ? Summed{1, p.n, 1} : Summed{1, 1, p.n}, x.back());
}

Result<Kernel> matmul_blas_lt(const Query& q) {
  EPL_TRY(allowed(q));
  const Shape &a = q.in(0).shape, &b = q.in(1).shape;
  EPL_TRY(require(a.size() >= 2 && b.size() >= 2, "a vector"));
  const int64_t of_a = count(a, 0, a.size() - 2), of_b = count(b, 0, b.size() - 2);
  const bool one_b = of_b == 1 && b.size() <= a.size();
  EPL_TRY(require(one_b || Shape(a.begin(), a.end() - 2) == Shape(b.begin(), b.end() - 2),
                  "matrices that are repeated over others"));
  BlasProduct p;
  p.transpose_x = q.flag("transpose_a"), p.transpose_w = q.flag("transpose_b");
  const int64_t k = a[p.transpose_x ? a.size() - 2 : a.size() - 1];
  EPL_ASSIGN(p.k, of_unit(q, k));
  p.m = a[p.transpose_x ? a.size() - 1 : a.size() - 2], p.n = b[p.transpose_w ? b.size() - 2 : b.size() - 1];
  p.batch = of_a;
  const bool as_linear = one_b && !p.transpose_x;  // one product of all rows
  if (as_linear) p.m *= of_a, p.batch = 1;
  p.x = p.transpose_x ? row_major_matrix(p.k, p.m) : row_major_matrix(p.m, p.k);
  p.w = p.transpose_w ? row_major_matrix(p.n, p.k) : row_major_matrix(p.k, p.n);
  if (one_b) p.w.stride = 0;
  // Which of its dimensions are the batch's is not known here.
  p.typical_m = as_linear ? typical_rows : typical_side, p.typical_n = typical_side;
  p.typical_batch = as_linear ? 1 : typical_products;
  return blas_kernel(q, p, p.transpose_x ? Summed{0, of_a, p.m} : Summed{0, of_a == p.batch ? of_a * p.m : p.m, 1},
                     p.transpose_w ? Summed{1, of_b * p.n, 1} : Summed{1, of_b, p.n}, k);
}

// A product for each unit, and our tree over them.
Result<Kernel> linear_grad_weight_blas_lt(const Query& q) {
  EPL_TRY(allowed(q));
  const Shape& x = q.in(0).shape;
  int a = 0, b = 1;
  if (q.flag("transpose_w")) std::swap(a, b);
  BlasProduct p;
  const int64_t k = count(x, 0, x.size() - 1);
  EPL_ASSIGN(p.k, of_unit(q, k));
  p.m = q.in(a).shape.back(), p.n = q.in(b).shape.back();
  p.transpose_x = true;
  p.x = row_major_matrix(p.k, p.m), p.w = row_major_matrix(p.k, p.n);
  p.typical_batch = typical_products;
  return blas_kernel(q, p, {a, 1, p.m}, {b, 1, p.n}, k);
}

Result<Kernel> linear_grad_weight(const Query& q) {
  const Shape& x = q.in(0).shape;
  int a = 0, b = 1;
  if (q.flag("transpose_w")) std::swap(a, b);
  Product p;
  p.k = count(x, 0, x.size() - 1);
  p.m = q.in(a).shape.back();
  p.n = q.in(b).shape.back();
  p.c = cat("row * ", p.n, "LL + column");
  set_a(p, true);
  set_b(p, false);
  return finished(q, p, a, b, Argument{});
}

}  // namespace

Rows matmul_rows() {
  return {{"matmul", "matmul_blas_lt", product_operands, matmul_blas_lt},
          {"matmul", "matmul_ordered", product_operands, matmul},
          {"linear", "linear_blas_lt", product_operands, linear_blas_lt},
          {"linear", "linear_ordered", product_operands, linear},
          {"linear_grad_weight", "linear_grad_weight_blas_lt", product_operands, linear_grad_weight_blas_lt},
          {"linear_grad_weight", "linear_grad_weight_ordered", product_operands, linear_grad_weight}};
}

}  // namespace epl::cuda
