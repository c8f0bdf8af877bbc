// Sums, extremes and products over axes.
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/rows.h"

namespace epl::cuda {
namespace {

constexpr DType f32[] = {DType::f32};

Result<Kernel> reduced(const Query& q, std::string_view op, Units units) {
  const Reduction r(q.in(0).shape, q.integers("axes"), units);
  EPL_TRY(require(r.reduced > 0 || op == "Sum" || op == "Product", "an extreme of nothing"));
  EPL_TRY(require(units.divide(r.reduced), "units that do not divide the summed elements"));
  Kernel kernel{.workspace_bytes = r.reduced == 0 ? 0 : r.workspace_bytes()};
  add_reduction(kernel, r, op, input(0), output(0), 0);
  return kernel;
}

Result<Kernel> sum(const Query& q) { return reduced(q, "Sum", q.units); }
Result<Kernel> max_reduce(const Query& q) { return reduced(q, "Max", Units()); }
Result<Kernel> min_reduce(const Query& q) { return reduced(q, "Min", Units()); }
Result<Kernel> prod_reduce(const Query& q) { return reduced(q, "Product", Units()); }

}  // namespace

Rows reduce_rows() {
  return {{"sum", "sum_segments", f32, sum},
          {"max_reduce", "max_segments", f32, max_reduce},
          {"min_reduce", "min_segments", f32, min_reduce},
          {"prod_reduce", "product_segments", f32, prod_reduce}};
}

}  // namespace epl::cuda
