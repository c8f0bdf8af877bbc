// The rows of matrix products: matmul, linear and the gradient of linear's weight, all as one order-invariant product.
#include <algorithm>
#include <memory>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/narrow_pack.h"
#include "backends/cpu/kernels/unit_order.h"
#include "core/backend/kernel.h"

namespace epl::cpu {
namespace {

int64_t count_elements(const Shape& shape, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t d = begin; d < end; ++d) count *= shape[d];
  return count;
}

// A product and the operand that plays A: the gradient of a transposed weight swaps them.
struct Product {
  GemmProblem gemm;
  int a = 0, b = 1;
  int64_t elements = 0;  // of k, where it counts pairs
  Units units;           // with `outer` above 1 the operands are packed in their order
  bool fits = true;      // the leading dimensions make at most three
};

void set_units(Product& product, const KernelQuery& q) {
  product.units = q.units;
  product.gemm.units = q.units.count;
  if (q.units.outer == 1) return;
  product.gemm.pack_a = product.gemm.pack_b = pack_in_unit_order;
}

// Rows of an operand [rows, columns], stored as it is or transposed.
void set_a(GemmProblem& p, bool transposed) {
  p.a_row = transposed ? 1 : p.k;
  p.a_col = transposed ? p.m : 1;
}
void set_b(GemmProblem& p, bool transposed) {
  p.b_row = transposed ? 1 : p.n;
  p.b_col = transposed ? p.k : 1;
}

// Leading dimensions of both operands, aligned at the end and merged where both move on evenly.
bool set_batch(GemmProblem& p, const Shape& a, const Shape& b) {
  struct Dimension {
    int64_t count, a, b;  // strides in matrices, 0 where broadcast
  };
  std::vector<Dimension> merged;  // innermost first
  int64_t matrices_a = 1, matrices_b = 1;
  for (size_t d = 0; d < std::max(a.size(), b.size()); ++d) {
    const int64_t size_a = d < a.size() ? a[a.size() - 1 - d] : 1, size_b = d < b.size() ? b[b.size() - 1 - d] : 1;
    const Dimension next{std::max(size_a, size_b) * (size_a && size_b ? 1 : 0), size_a == 1 ? 0 : matrices_a,
                         size_b == 1 ? 0 : matrices_b};
    matrices_a *= size_a;
    matrices_b *= size_b;
    if (next.count == 1) continue;
    if (!merged.empty() && next.a == merged.back().a * merged.back().count &&
        next.b == merged.back().b * merged.back().count) {
      merged.back().count *= next.count;
    } else {
      merged.push_back(next);
    }
  }
  // Rows of A lie k apart where it is not transposed: with one row its strides alone do not tell.
  if (merged.size() == 1 && merged[0].b == 0 && p.a_col == 1 && p.a_row == p.k) {
    p.m *= merged[0].count;  // every matrix of A meets the same B: they are one tall matrix
    return true;
  }
  if (merged.size() > 3) return false;
  int64_t products = 1;
  for (size_t i = 0; i < merged.size(); ++i) {
    p.batch[2 - i] = {merged[i].count, merged[i].a * p.m * p.k, merged[i].b * p.k * p.n, products * p.m * p.n, 0};
    products *= merged[i].count;
  }
  return true;
}

Product matmul_product(const KernelQuery& q) {
  const Shape &a = q.in(0).shape, &b = q.in(1).shape;
  const bool transpose_a = q.attributes.flag("transpose_a"), transpose_b = q.attributes.flag("transpose_b");
  Product product;
  GemmProblem& p = product.gemm;
  p.m = a.size() == 1 ? 1 : a[transpose_a ? a.size() - 1 : a.size() - 2];
  p.k = a[a.size() == 1 || !transpose_a ? a.size() - 1 : a.size() - 2];
  p.n = b.size() == 1 ? 1 : b[transpose_b ? b.size() - 2 : b.size() - 1];
  set_units(product, q);
  p.c_row = p.n;
  set_a(p, transpose_a);
  set_b(p, transpose_b);
  product.fits = set_batch(p, a.size() > 2 ? Shape(a.begin(), a.end() - 2) : Shape(),
                           b.size() > 2 ? Shape(b.begin(), b.end() - 2) : Shape());
  return product;
}

Product linear_product(const KernelQuery& q) {
  const Shape& x = q.in(0).shape;
  const bool transposed = q.attributes.flag("transpose_w");
  Product product;
  GemmProblem& p = product.gemm;
  p.m = count_elements(x, 0, x.size() - 1);
  p.k = x.back();
  p.n = q.in(1).shape[transposed ? 0 : 1];
  p.c_row = p.n;
  set_a(p, false);
  set_b(p, transposed);
  if (q.has(2)) p.bias = GemmBias::columns;
  set_units(product, q);
  return product;
}

Product weight_product(const KernelQuery& q) {
  const Shape& x = q.in(0).shape;
  Product product;
  if (q.attributes.flag("transpose_w")) std::swap(product.a, product.b);
  GemmProblem& p = product.gemm;
  p.k = count_elements(x, 0, x.size() - 1);
  p.m = q.in(product.a).shape.back();
  p.n = q.in(product.b).shape.back();
  set_units(product, q);
  p.c_row = p.n;
  set_a(p, true);
  set_b(p, false);
  return product;
}

template <Product make(const KernelQuery&)> Result<Prepared> prepare(const KernelQuery& q) {
  auto product = std::make_shared<const Product>(make(q));
  EPL_TRY(require(product->fits, "leading dimensions that broadcast in more than three runs"));
  EPL_TRY(require(product->units.divide(product->gemm.k), "units that do not divide the summed dimension"));
  return Prepared{.state = product, .workspace_bytes = gemm_workspace_bytes(product->gemm, q.threads)};
}

void launch(const KernelCall& call) {
  const Product& product = *static_cast<const Product*>(call.state);
  GemmArguments arguments;
  arguments.a = call.in<float>(product.a);
  arguments.b = call.in<float>(product.b);
  arguments.c = call.out<float>(0);
  if (product.gemm.bias != GemmBias::none) arguments.bias = call.in<float>(2);
  const GemmProblem& p = product.gemm;
  StridedOperand operands[2] = {{arguments.a, p.a_row, p.a_col, {}, false}, {arguments.b, p.b_col, p.b_row, {}, true}};
  for (StridedOperand& operand : operands) std::copy_n(p.batch, 3, operand.batch);
  const UnitOrder orders[2] = {{pack_strided, &operands[0], p.k, product.units},
                               {pack_strided, &operands[1], p.k, product.units}};
  arguments.a_context = &orders[0];
  arguments.b_context = &orders[1];
  gemm(product.gemm, arguments, call.workspace, call.threads());
}

// Of bf16 where bits may follow from the device: subnormal numbers are zero on every processor, as the instruction for
// pairs has them.
bool flushes(const KernelQuery& q) { return q.in(0).dtype == DType::bf16 && q.level != BitsLevel::exact; }

// Operands of 16 bits are changed while they are packed, so nothing is read where it lies: to float32, or to pairs
// where the processor multiplies these.
template <Product make(const KernelQuery&)> Result<Prepared> prepare_narrow(const KernelQuery& q) {
  EPL_TRY(require(q.out(0).dtype == DType::f32, "a result that is rounded to 16 bits"));
  auto product = std::make_shared<Product>(make(q));
  EPL_TRY(require(product->fits, "leading dimensions that broadcast in more than three runs"));
  EPL_TRY(require(product->units.divide(product->gemm.k), "units that do not divide the summed dimension"));
  GemmProblem& p = product->gemm;
  product->elements = p.k;
  p.flush = flushes(q);
  p.pairs = p.flush && cpu_level() >= CpuLevel::v4_bf16;
  p.strided_packs = product->units.outer == 1;
  if (p.pairs) {
    p.k = pairs_of(p.k, product->units);
    p.pack_a = p.pack_b = v4_bf16::pack_pairs;
  } else {
    p.pack_a = p.pack_b = product->units.outer == 1 ? EPL_CPU_CHOOSE(pack_narrow) : pack_in_unit_order;
  }
  const int64_t bytes = gemm_workspace_bytes(p, q.threads);
  return Prepared{.state = std::move(product), .workspace_bytes = bytes};
}

void launch_narrow(const KernelCall& call) {
  const Product& product = *static_cast<const Product*>(call.state);
  const GemmProblem& p = product.gemm;
  const int64_t n = product.elements;
  GemmArguments arguments;
  arguments.c = call.out<float>(0);
  if (p.bias != GemmBias::none) arguments.bias = call.in<float>(2);
  const bool half = call.query.in(0).dtype == DType::f16;
  PairOperand operands[2] = {{{call.in<uint16_t>(product.a), half, p.a_row, p.a_col, {}, false}, n, product.units},
                             {{call.in<uint16_t>(product.b), half, p.b_col, p.b_row, {}, true}, n, product.units}};
  for (PairOperand& operand : operands) std::copy_n(p.batch, 3, operand.operand.batch);
  const GemmPack pack = EPL_CPU_CHOOSE(pack_narrow);
  const UnitOrder orders[2] = {{pack, &operands[0].operand, n, product.units},
                               {pack, &operands[1].operand, n, product.units}};
  const void* contexts[2];
  for (int i = 0; i < 2; ++i) {
    contexts[i] = p.pairs                   ? static_cast<const void*>(&operands[i])
                  : product.units.outer > 1 ? static_cast<const void*>(&orders[i])
                                            : &operands[i].operand;
  }
  arguments.a_context = contexts[0];
  arguments.b_context = contexts[1];
  gemm(p, arguments, call.workspace, call.threads());
}

template <Product make(const KernelQuery&)> void add_row(KernelTable& table, const char* op, const char* name) {
  table.add({.op = op, .name = name, .dtypes = {DType::f32}, .prepare = prepare<make>, .launch = launch});
  table.add({.op = op,
             .name = cat(name, "_of_16_bits"),
             .dtypes = {DType::bf16, DType::f16},
             .prepare = prepare_narrow<make>,
             .launch = launch_narrow});
}

}  // namespace

EPL_KERNELS(cpu, matmul) { add_row<matmul_product>(table, "matmul", "matmul_ordered"); }

EPL_KERNELS(cpu, linear) { add_row<linear_product>(table, "linear", "linear_ordered"); }

EPL_KERNELS(cpu, linear_grad_weight) {
  add_row<weight_product>(table, "linear_grad_weight", "linear_grad_weight_ordered");
}

}  // namespace epl::cpu
