#include "backends/cuda/kernels/conv_dnn.h"

#include <algorithm>

#include "backends/cuda/generate/product.h"
#include "backends/cuda/generate/steps.h"
#include "backends/cuda/kernels/conv_geometry.h"
#include "core/base/text.h"

namespace epl::cuda {
namespace {

using What = DnnCall::What;

// What an engine may need beside its operands: 32 MiB, and as much as they take, because engines bring them to a layout
// of their own.
constexpr int64_t least_workspace_bytes = int64_t{32} << 20;

// The library has two spatial dimensions at least; a 1 leads where there is one.
constexpr size_t least_dimensions = 2;

Shape led(const Shape& shape) {
  Shape all = shape;
  while (all.size() < least_dimensions + 2) all.insert(all.begin() + 2, 1);
  return all;
}
// A number for each spatial dimension of `values`, from number `first` on; empty: all are `otherwise`.
std::vector<int64_t> numbers(const std::vector<int64_t>& values, size_t first, size_t dims, int64_t otherwise) {
  std::vector<int64_t> all(dims, otherwise);
  if (!values.empty()) std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), dims, all.begin());
  while (all.size() < least_dimensions) all.insert(all.begin(), otherwise);
  return all;
}

Status allowed(const Query& q) {
  EPL_TRY(sums_are_wide(q));
  EPL_TRY(require(q.bits == Bits::run && !q.splits_keep_bits,
                  "cuDNN has other bits than the CPU, and other ones for each batch, which reproducible.level keeps"));
  EPL_TRY(has_conv_geometry(q));
  for (const std::vector<Operand>* operands : {&q.inputs, &q.outputs})
    for (const Operand& one : *operands) EPL_TRY(require(!one.present || one.elements() > 0, "an empty tensor"));
  return {};
}

// The kernel without what follows the call. x, w and y: where each is.
struct Place {
  const TensorType& type;
  Argument at;
};
Kernel convolved(const Query& q, What what, const Place& x, const Place& w, const Place& y) {
  const size_t dims = x.type.shape.size() - 2;
  const std::vector<int64_t>& pads = q.integers("pads");
  Kernel kernel;
  Launch& launch = kernel.launches.emplace_back();
  launch.arguments = {x.at, w.at, y.at};
  launch.call = DnnCall{.what = what,
                        .type = q.in(0).dtype,
                        .x = led(x.type.shape),
                        .w = led(w.type.shape),
                        .y = led(y.type.shape),
                        .strides = numbers(q.integers("strides"), 0, dims, 1),
                        .dilations = numbers(q.integers("dilations"), 0, dims, 1),
                        .pads_before = numbers(pads, 0, dims, 0),
                        .pads_behind = numbers(pads, dims, dims, 0),
                        .most_workspace_bytes = least_workspace_bytes + line_aligned(x.type.bytes()) +
                                                line_aligned(w.type.bytes()) + line_aligned(y.type.bytes())};
  return kernel;
}

}  // namespace

Result<Kernel> dnn_forward(const Query& q) {
  EPL_TRY(allowed(q));
  EPL_TRY(require(!q.has(2) || q.in(2).dtype == DType::f32, "a bias of 16 bits"));
  const TensorType& y = q.out(0);
  Kernel kernel = convolved(q, What::forward, {q.in(0), input(0)}, {q.in(1), input(1)}, {y, output(0)});
  if (!q.has(2)) return kernel;
  const int64_t elements = y.elements(), pixels = elements / (y.shape[0] * y.shape[1]);
  const std::string body =
      cat("extern \"C\" __global__ void add_bias(float* y, const float* bias) {\n", thread_head(elements),
          "  y[t] = y[t] + bias[t / ", pixels, "LL % ", y.shape[1], "LL];\n}\n");
  kernel.launches.push_back(launch_threads(program({}, body), "add_bias", elements, {output(0), input(2)}));
  return kernel;
}

Result<Kernel> dnn_grad_input(const Query& q) {
  EPL_TRY(allowed(q));
  return convolved(q, What::grad_input, {q.out(0), output(0)}, {q.in(1), input(1)}, {q.in(0), input(0)});
}

Result<Kernel> dnn_grad_weight(const Query& q) {
  EPL_TRY(allowed(q));
  return convolved(q, What::grad_weight, {q.in(0), input(0)}, {q.out(0), output(0)}, {q.in(1), input(1)});
}

}  // namespace epl::cuda
