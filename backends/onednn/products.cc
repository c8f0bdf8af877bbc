// The rows of matrix products: matmul, linear and the gradient of linear's weight, each as oneDNN matmuls. Sums over
// the batch ignore units: the order of summation is oneDNN's.
#include <algorithm>
#include <utility>

#include "backends/onednn/kernel.h"
#include "backends/onednn/rows.h"

namespace epl::onednn {
namespace {

// C[batch, m, n] = A[batch_a, m, k] B[batch_b, k, n]; leading dimensions are aligned at the end, 1 where they
// broadcast.
struct Product {
  int64_t m, n, k;
  Dims batch_a, batch_b;
  bool transposed_a = false, transposed_b = false;  // how the operand is stored
  int a = 0, b = 1, bias = -1;                      // operands of the node; -1: none
};

// Fewer dimensions where they mean the same, because oneDNN's fast paths want two or three.
void simplify(Product& p) {
  const size_t dims = std::max(p.batch_a.size(), p.batch_b.size());
  p.batch_a.insert(p.batch_a.begin(), dims - p.batch_a.size(), 1);
  p.batch_b.insert(p.batch_b.begin(), dims - p.batch_b.size(), 1);
  const bool shared_b = count(p.batch_b) == 1;
  if (shared_b && (!p.transposed_a || count(p.batch_a) == 1)) {
    p.m *= count(p.batch_a);  // every matrix of A meets the same B: they are one tall matrix
    p.batch_a = p.batch_b = {};
  } else if (p.batch_a == p.batch_b || shared_b || count(p.batch_a) == 1) {
    p.batch_a = {count(p.batch_a)};
    p.batch_b = {count(p.batch_b)};
  }
}

// A [batch, rows, columns] operand that may be stored transposed.
View matrices(const Dims& batch, int64_t rows, int64_t columns, bool transposed) {
  Dims stored = batch;
  stored.insert(stored.end(), {transposed ? columns : rows, transposed ? rows : columns});
  View view = View::dense(stored);
  if (transposed) {
    std::swap(view.dims[stored.size() - 1], view.dims[stored.size() - 2]);
    std::swap(view.strides[stored.size() - 1], view.strides[stored.size() - 2]);
  }
  return view;
}

// One share of a product; an empty bias is none.
struct Share {
  View a, b, c, bias;
};

// Along the batch where there is one, else along the longer side of C: no sum is cut.
std::vector<Share> cut_product(const Product& p, const Share& full, int64_t shares) {
  const size_t rows = full.c.dims.size() - 2, columns = rows + 1;
  std::vector<Share> out;
  if (rows > 0) {
    const auto part = [](const View& v, Run run) { return v.dims[0] == 1 ? v : v.part(0, run); };
    for (Run run : cut(full.c.dims[0], shares, 1))
      out.push_back({part(full.a, run), part(full.b, run), full.c.part(0, run), {}});
  } else if (p.m >= p.n) {
    for (Run run : cut(p.m, shares, 8))
      out.push_back({full.a.part(rows, run), full.b, full.c.part(rows, run), full.bias});
  } else {
    for (Run run : cut(p.n, shares, 16)) {
      out.push_back(
          {full.a, full.b.part(columns, run), full.c.part(columns, run), p.bias < 0 ? View{} : full.bias.part(1, run)});
    }
  }
  return out;
}

// Whether oneDNN's sgemm is worth taking for a share in float32. For large products it packs both operands into memory
// that it allocates in each call, megabytes that the memory plan does not count; it does not where one side is small,
// as its driver decides by 1/m + 1/n >= 0.0038. Where the rows of B are then a multiple of 1 KiB apart they share few
// lines of the first cache. Measured on a Zen 3 over 162 shapes, time against the built-in kernel: packed 0.99,
// colliding 1.43 (up to 2.1), others 1.0, thin ones down to 0.5.
void require_fast(const Share& share, const Product& p) {
  constexpr double unpacked = 0.0038;
  constexpr int64_t row_elements = 256, thin = 4;
  const size_t rows = share.c.dims.size() - 2;
  const int64_t m = share.c.dims[rows], n = share.c.dims[rows + 1];
  require(1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n) >= unpacked,
          "a large product, for which oneDNN allocates memory in each step and is not faster than the built-in kernel");
  require(p.transposed_b || m <= thin || p.n % row_elements != 0,
          "rows that collide in the cache, where oneDNN is slower than the built-in kernel");
}

Recipes recipes_of(Product p, const Query& q) {
  simplify(p);
  require(p.m > 0 && p.n > 0 && p.k > 0 && count(p.batch_a) > 0 && count(p.batch_b) > 0, "an empty operand");
  Dims batch(p.batch_a.size());
  std::ranges::transform(p.batch_a, p.batch_b, batch.begin(), [](int64_t a, int64_t b) { return std::max(a, b); });
  require(batch.size() + 2 <= DNNL_MAX_NDIMS, "more dimensions than oneDNN has");
  const Share full{matrices(p.batch_a, p.m, p.k, p.transposed_a), matrices(p.batch_b, p.k, p.n, p.transposed_b),
                   matrices(batch, p.m, p.n, false), p.bias < 0 ? View{} : View::dense({1, p.n})};
  const Type factors = q.factors(), result = q.result();
  Recipes recipes;
  for (const Share& share :
       cut_product(p, full, shares_of(q, static_cast<double>(count(full.c.dims)) * static_cast<double>(p.k)))) {
    const Desc a = share.a.desc(factors), b = share.b.desc(factors), c = share.c.desc(result);
    std::vector<Operand> operands = {{DNNL_ARG_SRC, Location::Kind::input, p.a, share.a, a},
                                     {DNNL_ARG_WEIGHTS, Location::Kind::input, p.b, share.b, b}};
    dnnl::matmul::primitive_desc primitive;
    if (p.bias >= 0) {
      const Desc bias = share.bias.desc(result);
      primitive = {dnnl::matmul::desc(a, b, bias, c), primitive_attributes(), cpu_engine()};
      operands.push_back({DNNL_ARG_BIAS, Location::Kind::input, p.bias, share.bias, bias});
    } else {
      primitive = {dnnl::matmul::desc(a, b, c), primitive_attributes(), cpu_engine()};
    }
    operands.push_back({DNNL_ARG_DST, Location::Kind::output, 0, share.c, c});
    if (factors == Type::f32 && std::string_view(primitive.impl_info_str()).starts_with("gemm")) require_fast(share, p);
    recipes.add(primitive, operands);
  }
  return recipes;
}

// All dimensions but the last `matrix`.
Dims leading(const Dims& dims, int64_t matrix) {
  return std::ssize(dims) > matrix ? Dims(dims.begin(), dims.end() - matrix) : Dims();
}

Recipes matmul(const Query& q) {
  const Dims a = q.in(0), b = q.in(1);
  Product p;
  p.transposed_a = a.size() > 1 && q.flag("transpose_a");
  p.transposed_b = b.size() > 1 && q.flag("transpose_b");
  p.m = a.size() == 1 ? 1 : a[a.size() - (p.transposed_a ? 1 : 2)];
  p.k = a[a.size() - (p.transposed_a ? 2 : 1)];
  p.n = b.size() == 1 ? 1 : b[b.size() - (p.transposed_b ? 2 : 1)];
  p.batch_a = leading(a, 2);
  p.batch_b = leading(b, 2);
  return recipes_of(p, q);
}

Recipes linear(const Query& q) {
  const Dims x = q.in(0), w = q.in(1);
  Product p;
  p.transposed_b = q.flag("transpose_w");
  p.m = count(leading(x, 1));
  p.k = x.back();
  p.n = w[p.transposed_b ? 0 : 1];
  if (q.has(2)) p.bias = 2;
  return recipes_of(p, q);
}

Recipes linear_grad_weight(const Query& q) {
  Product p;
  p.transposed_a = true;
  if (q.flag("transpose_w")) std::swap(p.a, p.b);
  p.k = count(leading(q.in(0), 1));
  p.m = q.in(p.a).back();
  p.n = q.in(p.b).back();
  return recipes_of(p, q);
}

}  // namespace

const epl_pack_kernel matmul_row = row<matmul>("matmul", "matmul_onednn");
const epl_pack_kernel linear_row = row<linear>("linear", "linear_onednn");
const epl_pack_kernel linear_grad_weight_row =
    row<linear_grad_weight>("linear_grad_weight", "linear_grad_weight_onednn");

}  // namespace epl::onednn
