// Max and average pools over up to three spatial dimensions, and their gradients. A window's elements are visited in
// row-major order, and so are the windows that meet an element in a gradient: every sum is one chain in that order.
// Numbers other than float32 are added in float64 and rounded in the end.
#include <array>

#include "backends/cuda/generate/elements.h"
#include "backends/cuda/generate/program.h"
#include "backends/cuda/kernels/rows.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

constexpr int max_spatial = 3;
using Three = std::array<int64_t, max_spatial>;

Three filled(const Query& q, const char* name, int spatial, int64_t missing, int from = 0) {
  Three values;
  values.fill(missing);
  if (!q.find(name) || q.integers(name).empty()) return values;
  for (int d = 0; d < spatial; ++d)
    values[static_cast<size_t>(max_spatial - spatial + d)] = q.integers(name)[static_cast<size_t>(from + d)];
  return values;
}
Three spatial_of(const Shape& shape) {
  Three values = {1, 1, 1};
  for (size_t d = 2; d < shape.size(); ++d) values[max_spatial - (shape.size() - d)] = shape[d];
  return values;
}

// The geometry as constants, with leading spatial dimensions of size one put in front of what is missing.
struct Pool {
  int64_t planes, in_size, out_size;
  std::string text;
};
Pool pool_of(const Query& q, const Shape& x, const Shape& y) {
  const int n = static_cast<int>(x.size()) - 2;
  const Three in = spatial_of(x), out = spatial_of(y);
  const std::pair<std::string_view, Three> lists[] = {{"in", in},
                                                      {"out", out},
                                                      {"kernel", filled(q, "kernel", n, 1)},
                                                      {"strides", filled(q, "strides", n, 1)},
                                                      {"dilations", filled(q, "dilations", n, 1)},
                                                      {"begin", filled(q, "pads", n, 0)},
                                                      {"end", filled(q, "pads", n, 0, n)}};
  Pool p{x[0] * x[1], in[0] * in[1] * in[2], out[0] * out[1] * out[2], "struct P {\n"};
  for (const auto& [name, values] : lists)
    p.text += cat("  static constexpr long long ", name, "(int d) { return d == 0 ? ", values[0], " : d == 1 ? ",
                  values[1], " : ", values[2], "; }\n");
  const bool include = q.find("count_include_pad") && q.flag("count_include_pad");
  p.text += cat("  static constexpr bool include_pad = ", include ? "true" : "false", ";\n};\n",
                constant("in_size", p.in_size), constant("out_size", p.out_size));
  return p;
}

constexpr std::string_view pool_file = "backends/cuda/text/pool.cuh";

constexpr std::string_view elements = R"text(
struct Elements {
  const Memory* data;
  Wide operator[](long long i) const { return loaded(data[i]); }
};
)text";

Kernel launched(const Pool& p, DType type, int64_t threads, std::string_view call, std::string_view parameters,
                std::vector<Argument> arguments) {
  Kernel kernel;
  if (threads == 0) return kernel;
  const std::string body = cat(number_functions(type), elements, p.text, "extern \"C\" __global__ void pool(",
                               parameters, ") {\n", thread_head(threads), "  ", call, ";\n}\n");
  kernel.launches.push_back(
      launch_threads(program({pool_file, half_file}, body), "pool", threads, std::move(arguments)));
  return kernel;
}

Status accepts(const Query& q) {
  return require(q.in(0).ndim() <= 2 + max_spatial, "more than three spatial dimensions");
}

Result<Kernel> max_pool(const Query& q) {
  EPL_TRY(accepts(q));
  EPL_TRY(require(q.in(0).elements() < (int64_t{1} << 31), "2^31 elements or more"));
  const Pool p = pool_of(q, q.in(0).shape, q.out(0).shape);
  return launched(
      p, q.in(0).dtype, p.planes * p.out_size,
      "const LargestOfWindow<Wide> best = max_window<P, Wide>(Elements{x + t / out_size * in_size}, t % out_size);\n"
      "  if (y) y[t] = rounded(best.value);\n  if (indices) indices[t] = best.index",
      "const Memory* x, Memory* y, int* indices",
      {input(0), q.has_output(0) ? output(0) : Argument{}, q.has_output(1) ? output(1) : Argument{}});
}

// Each element looks for the windows that chose it.
Result<Kernel> max_pool_grad(const Query& q) {
  EPL_TRY(require(q.in(1).dtype == DType::i32, "indices of another type than i32"));
  const Shape &x = q.out(0).shape, &y = q.in(0).shape;
  Pool p{x[0] * x[1], 1, 1, {}};
  for (size_t d = 2; d < x.size(); ++d) p.in_size *= x[d], p.out_size *= y[d];
  p.text = constant("in_size", p.in_size) + constant("out_size", p.out_size);
  // Where windows are as usual, few of them can have chosen an element.
  const bool known = q.find("kernel") && !q.integers("kernel").empty() && x.size() <= 5;
  if (known) p.text = pool_of(q, x, y).text;
  return launched(p, q.in(0).dtype, p.planes * p.in_size,
                  cat("const long long first = t / in_size * out_size;\n  dx[t] = rounded(",
                      known ? "chosen_near<P, Wide>(Elements{dy + first}, indices + first, t % in_size)"
                            : "chosen<Wide>(Elements{dy + first}, indices + first, t % in_size, out_size)",
                      ")"),
                  "const Memory* dy, const int* indices, Memory* dx", {input(0), input(1), output(0)});
}

Result<Kernel> avg_pool(const Query& q) {
  EPL_TRY(accepts(q));
  const Pool p = pool_of(q, q.in(0).shape, q.out(0).shape);
  return launched(p, q.in(0).dtype, p.planes * p.out_size,
                  "y[t] = rounded(mean_window<P, Wide>(Elements{x + t / out_size * in_size}, t % out_size))",
                  "const Memory* x, Memory* y", {input(0), output(0)});
}

Result<Kernel> avg_pool_grad(const Query& q) {
  EPL_TRY(accepts(q));
  const Pool p = pool_of(q, q.out(0).shape, q.in(0).shape);
  return launched(p, q.in(0).dtype, p.planes * p.in_size,
                  "dx[t] = rounded(shares<P, Wide>(Elements{dy + t / in_size * out_size}, t % in_size))",
                  "const Memory* dy, Memory* dx", {input(0), output(0)});
}

}  // namespace

Rows pool_rows() {
  return {{"max_pool", "max_pool_windows", float_types, max_pool},
          {"max_pool_grad", "max_pool_grad_elements", float_types, max_pool_grad},
          {"avg_pool", "avg_pool_windows", float_types, avg_pool},
          {"avg_pool_grad", "avg_pool_grad_elements", float_types, avg_pool_grad}};
}

}  // namespace epl::cuda
