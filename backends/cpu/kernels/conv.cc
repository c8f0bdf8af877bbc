// The rows of convolution and its two gradients: products whose patches are gathered while they are packed.
//
// x [batch, groups * in, spatial...], w [groups * out, in, kernel...], y [batch, groups * out, spatial...]; the groups are a
// batch of products:
//   conv              y[out, (image, position)]  = w[out, (in, tap)]       * patches of x [(in, tap), (image, position)]
//   conv_grad_input   dx[in, (image, pixel)]     = w[in, (out, tap)]       * patches of dy [(out, tap), (image, pixel)]
//   conv_grad_weight  dw[out, (in, tap)]         = dy[out, (image, pixel)] * patches of x, transposed; sums units of images
#include <memory>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/conv_gather.h"
#include "backends/cpu/kernels/gemm.h"
#include "core/backend/kernel.h"

namespace epl::cpu {
namespace {

// Sizes of a convolution, whichever of its tensors is asked for.
struct Geometry {
  int64_t batch, groups, in, out;  // channels per group
  int64_t x[conv_dims], y[conv_dims], kernel[conv_dims], strides[conv_dims], dilations[conv_dims], pads[conv_dims];
  int64_t x_pixels = 1, y_pixels = 1, taps = 1;
};

Geometry geometry_of(const Attributes& attributes, const Shape& x, const Shape& w, const Shape& y) {
  Geometry g;
  g.batch = x[0];
  g.groups = attributes.integer("groups");
  g.in = w[1];
  g.out = w[0] / g.groups;
  const int dims = static_cast<int>(x.size()) - 2, added = conv_dims - dims;
  const Ints &strides = attributes.ints("strides"), &dilations = attributes.ints("dilations"), &pads = attributes.ints("pads");
  for (int d = 0; d < conv_dims; ++d) {
    const int own = d - added;  // dimension of the tensors, or negative
    g.x[d] = own < 0 ? 1 : x[own + 2];
    g.y[d] = own < 0 ? 1 : y[own + 2];
    g.kernel[d] = own < 0 ? 1 : w[own + 2];
    g.strides[d] = own < 0 || strides.empty() ? 1 : strides[own];
    g.dilations[d] = own < 0 || dilations.empty() ? 1 : dilations[own];
    g.pads[d] = own < 0 || pads.empty() ? 0 : pads[own];
    g.x_pixels *= g.x[d];
    g.y_pixels *= g.y[d];
    g.taps *= g.kernel[d];
  }
  // A kernel of one tap that neither skips nor pads sees the image as one long row.
  bool plain = g.taps == 1;
  for (int d = 0; d < conv_dims; ++d) plain = plain && g.strides[d] == 1 && g.x[d] == g.y[d] && g.pads[d] == 0;
  if (plain) {
    for (int d = 0; d < conv_dims; ++d) g.x[d] = g.y[d] = d + 1 < conv_dims ? 1 : g.x_pixels;
  }
  return g;
}

// What a launch needs; the pointers of the operands are filled in then.
struct Convolution {
  GemmProblem gemm;
  Patches patches;
  Images images;
  TurnedWeights weights;
};

Patches patches_of_x(const Geometry& g) {
  Patches p;
  p.channel = g.x_pixels;
  p.group = g.in * g.x_pixels;
  p.image = g.groups * p.group;
  for (int d = 0; d < conv_dims; ++d) {
    p.positions[d] = g.y[d], p.sizes[d] = g.x[d], p.kernel[d] = g.kernel[d];
    p.step[d] = g.strides[d], p.start[d] = -g.pads[d], p.tap_step[d] = g.dilations[d], p.divide[d] = 1;
  }
  return p;
}

Patches patches_of_dy(const Geometry& g) {
  Patches p;
  p.channel = g.y_pixels;
  p.group = g.out * g.y_pixels;
  p.image = g.groups * p.group;
  for (int d = 0; d < conv_dims; ++d) {
    p.positions[d] = g.x[d], p.sizes[d] = g.y[d], p.kernel[d] = g.kernel[d];
    p.step[d] = 1, p.start[d] = g.pads[d], p.tap_step[d] = -g.dilations[d], p.divide[d] = g.strides[d];
  }
  return p;
}

// The columns of C are the pixels of all images.
void set_image_columns(GemmProblem& p, const Geometry& g, int64_t channels, int64_t pixels) {
  p.n = g.batch * pixels;
  p.c_row = p.c_run = pixels;
  p.c_jump = g.groups * channels * pixels;
  p.batch[2].count = g.groups;
  p.batch[2].c = channels * pixels;
}

Convolution forward(const KernelQuery& q) {
  const Geometry g = geometry_of(q.attributes, q.in(0).shape, q.in(1).shape, q.out(0).shape);
  Convolution c;
  c.patches = patches_of_x(g);
  GemmProblem& p = c.gemm;
  p.m = g.out;
  p.k = g.in * g.taps;
  set_image_columns(p, g, g.out, g.y_pixels);
  p.a_row = p.k;
  p.a_col = 1;
  p.batch[2].a = p.m * p.k;
  p.batch[2].bias = g.out;
  p.pack_b = EPL_CPU_CHOOSE(pack_patches);
  if (q.has(2)) p.bias = GemmBias::rows;
  return c;
}

Convolution grad_input(const KernelQuery& q) {
  const Geometry g = geometry_of(q.attributes, q.out(0).shape, q.in(1).shape, q.in(0).shape);
  Convolution c;
  c.patches = patches_of_dy(g);
  c.weights = {nullptr, g.out * g.in * g.taps, g.in, g.taps};
  GemmProblem& p = c.gemm;
  p.m = g.in;
  p.k = g.out * g.taps;
  set_image_columns(p, g, g.in, g.x_pixels);
  p.pack_a = EPL_CPU_CHOOSE(pack_turned_weights);
  p.pack_b = EPL_CPU_CHOOSE(pack_patches);
  return c;
}

Convolution grad_weight(const KernelQuery& q) {
  const Geometry g = geometry_of(q.attributes, q.in(0).shape, q.out(0).shape, q.in(1).shape);
  Convolution c;
  c.patches = patches_of_x(g);
  c.images = {nullptr, g.groups * g.out * g.y_pixels, g.out * g.y_pixels, g.y_pixels};
  GemmProblem& p = c.gemm;
  p.m = g.out;
  p.n = g.in * g.taps;
  p.k = g.batch * g.y_pixels;
  p.units = q.units;
  p.c_row = p.n;
  p.batch[2].count = g.groups;
  p.batch[2].c = p.m * p.n;
  p.pack_a = EPL_CPU_CHOOSE(pack_images);
  p.pack_b = EPL_CPU_CHOOSE(pack_patches_across);
  return c;
}

bool accepts(const KernelQuery& q) {
  const int dims = q.in(0).ndim() - 2;
  return q.require(dims >= 1 && dims <= conv_dims, "more than three spatial dimensions") &&
         q.require(q.in(0).shape[0] % q.units == 0, "units that do not divide the batch");
}

template <Convolution make(const KernelQuery&)>
int64_t workspace(const KernelQuery& q) {
  return gemm_workspace_bytes(make(q).gemm, q.threads);
}

template <Convolution make(const KernelQuery&)>
std::shared_ptr<const void> prepare(const KernelQuery& q) {
  return std::make_shared<const Convolution>(make(q));
}

void launch_forward(const KernelCall& call) {
  Convolution c = *static_cast<const Convolution*>(call.prepared);
  c.patches.data = call.in<float>(0);
  GemmArguments arguments;
  arguments.a = call.in<float>(1);
  arguments.b_context = &c.patches;
  arguments.c = call.out<float>(0);
  if (c.gemm.bias != GemmBias::none) arguments.bias = call.in<float>(2);
  gemm(c.gemm, arguments, call.workspace, call.threads);
}

void launch_grad_input(const KernelCall& call) {
  Convolution c = *static_cast<const Convolution*>(call.prepared);
  c.patches.data = call.in<float>(0);
  c.weights.data = call.in<float>(1);
  GemmArguments arguments;
  arguments.a_context = &c.weights;
  arguments.b_context = &c.patches;
  arguments.c = call.out<float>(0);
  gemm(c.gemm, arguments, call.workspace, call.threads);
}

void launch_grad_weight(const KernelCall& call) {
  Convolution c = *static_cast<const Convolution*>(call.prepared);
  c.patches.data = call.in<float>(0);
  c.images.data = call.in<float>(1);
  GemmArguments arguments;
  arguments.a_context = &c.images;
  arguments.b_context = &c.patches;
  arguments.c = call.out<float>(0);
  gemm(c.gemm, arguments, call.workspace, call.threads);
}

template <Convolution make(const KernelQuery&)>
void add_row(KernelTable& table, const char* op, const char* name, void (*launch)(const KernelCall&)) {
  table.add({.op = op,
             .name = name,
             .dtypes = {DType::f32},
             .accepts = accepts,
             .workspace = workspace<make>,
             .prepare = prepare<make>,
             .launch = launch});
}

}  // namespace

EPL_KERNELS(cpu, conv) { add_row<forward>(table, "conv", "conv_ordered", launch_forward); }

EPL_KERNELS(cpu, conv_grad_input) { add_row<grad_input>(table, "conv_grad_input", "conv_grad_input_ordered", launch_grad_input); }

EPL_KERNELS(cpu, conv_grad_weight) { add_row<grad_weight>(table, "conv_grad_weight", "conv_grad_weight_ordered", launch_grad_weight); }

}  // namespace epl::cpu
