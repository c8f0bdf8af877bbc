// Matrix products: matmul, linear and the gradient of linear's weight.
#include "backends/cuda/generate/product.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};

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
  EPL_TRY(require(q.units.divide(p.k), "units that do not divide the summed dimension"));
  EPL_TRY(require(p.batch < 65536 && p.m < int64_t{65535} * 16, "more products or rows than a grid has"));
  p.units = q.units.count;
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
  return {{"matmul", "matmul_ordered", f32, matmul},
          {"linear", "linear_ordered", f32, linear},
          {"linear_grad_weight", "linear_grad_weight_ordered", f32, linear_grad_weight}};
}

}  // namespace epl::cuda
