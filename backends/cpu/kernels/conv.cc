// The rows of convolution and its two gradients: products whose patches are gathered while they are packed.
//
// x [batch, groups * in, spatial...], w [groups * out, in, kernel...], y [batch, groups * out, spatial...]; the groups
// are a batch of products:
//   conv              y[out, (image, position)] = w[out, (in, tap)] * patches of x [(in, tap), (image, position)]
//   conv_grad_input   dx[in, (image, pixel)] = w[in, (out, tap)] * patches of dy [(out, tap), (image, pixel)],
//                     a product for each phase of the strides (conv_phases.h)
//   conv_grad_weight  dw[out, (in, tap)] = dy[out, (image, pixel)] * patches of x, transposed; sums units of images
#include <algorithm>
#include <cstddef>
#include <memory>
#include <numeric>
#include <vector>

#include "backends/cpu/cpu.h"
#include "backends/cpu/kernels/conv_gather.h"
#include "backends/cpu/kernels/conv_phases.h"
#include "backends/cpu/kernels/conv_winograd.h"
#include "backends/cpu/kernels/conv_winograd_weight.h"
#include "backends/cpu/kernels/gemm.h"
#include "backends/cpu/kernels/narrow_operands.h"
#include "backends/cpu/kernels/reduce.h"
#include "backends/cpu/kernels/unit_order.h"
#include "core/backend/kernel.h"

namespace epl::cpu {
namespace {

// Sizes of a convolution, whichever of its tensors is asked for.
struct Geometry {
  int64_t batch, groups, in, out;  // channels per group
  int64_t x[conv_dims], y[conv_dims], kernel[conv_dims], strides[conv_dims], dilations[conv_dims], pads[conv_dims];
  int64_t x_pixels = 1, y_pixels = 1, taps = 1;
  bool plain = true;  // one tap that neither skips nor pads: the image is one long row
  bool strided() const { return strides[0] * strides[1] * strides[2] > 1; }
};

Geometry geometry_of(const Attributes& attributes, const Shape& x, const Shape& w, const Shape& y) {
  Geometry g;
  g.batch = x[0];
  g.groups = attributes.integer("groups");
  g.in = w[1];
  g.out = w[0] / g.groups;
  const int dims = static_cast<int>(x.size()) - 2, added = conv_dims - dims;
  const Ints &strides = attributes.ints("strides"), &dilations = attributes.ints("dilations"),
             &pads = attributes.ints("pads");
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
  g.plain = g.taps == 1;
  for (int d = 0; d < conv_dims; ++d) g.plain = g.plain && g.strides[d] == 1 && g.x[d] == g.y[d] && g.pads[d] == 0;
  if (g.plain) {
    for (int d = 0; d < conv_dims; ++d) g.x[d] = g.y[d] = d + 1 < conv_dims ? 1 : g.x_pixels;
  }
  return g;
}

// One product; the pointers of the operands are filled in at launch.
struct Convolution {
  GemmProblem gemm;
  Patches patches;
  Images images, plain_patches;
  FlippedWeights weights;
  Units units;
  int64_t parts = 1;  // runs of units whose sums are products of their own; C is one behind the other
  int64_t c_at = -1;  // where C lies in the workspace, in elements; -1: it is the output
};
struct Convolutions {
  std::vector<Convolution> products;
  ConvPhases phases;      // of an input gradient with strides
  int64_t part_size = 0;  // elements of a weight gradient of one part, if there are several
  int64_t elements() const { return phases.elements + (part_size ? products[0].parts * part_size : 0); }
};

Patches patches_of_x(const Geometry& g) {
  Patches p;
  p.channel = g.x_pixels;
  p.group = g.in * g.x_pixels;
  p.image = g.groups * p.group;
  for (int d = 0; d < conv_dims; ++d) {
    p.positions[d] = g.y[d], p.sizes[d] = g.x[d], p.kernel[d] = g.kernel[d];
    p.step[d] = g.strides[d], p.start[d] = -g.pads[d], p.tap_step[d] = g.dilations[d];
  }
  return p;
}

// The columns of C are the pixels of all images. A long plain image is a matrix as it lies, and a product of its own.
void set_image_columns(GemmProblem& p, const Geometry& g, int64_t channels, int64_t pixels, int64_t b_channels) {
  constexpr int64_t long_image = 256;
  p.c_row = pixels;
  p.batch[2].count = g.groups;
  p.batch[2].c = channels * pixels;
  if (g.plain && pixels >= long_image) {
    p.n = pixels;
    p.b_row = pixels;
    p.b_col = 1;
    p.batch[2].b = b_channels * pixels;
    p.batch[1].count = g.batch;
    p.batch[1].b = g.groups * p.batch[2].b;
    p.batch[1].c = g.groups * p.batch[2].c;
  } else {
    p.n = g.batch * pixels;
    p.c_run = pixels;
    p.c_jump = g.groups * channels * pixels;
    p.pack_b = EPL_CPU_CHOOSE(pack_patches);
  }
}

Convolutions forward(const KernelQuery& q) {
  const Geometry g = geometry_of(q.attributes, q.in(0).shape, q.in(1).shape, q.out(0).shape);
  Convolution c;
  c.patches = patches_of_x(g);
  GemmProblem& p = c.gemm;
  p.m = g.out;
  p.k = g.in * g.taps;
  set_image_columns(p, g, g.out, g.y_pixels, g.in);
  p.a_row = p.k;
  p.a_col = 1;
  p.batch[2].a = p.m * p.k;
  p.batch[2].bias = g.out;
  if (q.has(2)) p.bias = GemmBias::rows;
  return {{c}, {}};
}

// The pixels at `phase` modulo the strides.
Convolution grad_input_phase(const Geometry& g, const int64_t (&phase)[conv_dims]) {
  Convolution c;
  Patches& patches = c.patches;
  FlippedWeights& w = c.weights;
  patches.channel = g.y_pixels;
  patches.group = g.out * g.y_pixels;
  patches.image = g.groups * patches.group;
  w.group = g.out * g.in * g.taps;
  w.in = g.in;
  w.taps = g.taps;
  for (int d = 0; d < conv_dims; ++d) {
    // Pixel position * stride + phase meets tap t in output (position * stride + phase + pad - t * dilation) / stride.
    const int64_t stride = g.strides[d], shift = phase[d] + g.pads[d];
    w.kernel[d] = g.kernel[d];
    w.skip[d] = stride / std::gcd(stride, g.dilations[d]);
    w.first[d] = 0;
    while (w.first[d] < g.kernel[d] && (shift - w.first[d] * g.dilations[d]) % stride != 0) ++w.first[d];
    w.used[d] = w.first[d] < g.kernel[d] ? (g.kernel[d] - w.first[d] - 1) / w.skip[d] + 1 : 0;
    patches.positions[d] = g.x[d] > phase[d] ? (g.x[d] - phase[d] - 1) / stride + 1 : 0;
    patches.sizes[d] = g.y[d];
    patches.kernel[d] = w.used[d];
    patches.step[d] = 1;
    patches.start[d] = w.used[d] ? (shift - w.first[d] * g.dilations[d]) / stride : 0;
    patches.tap_step[d] = -(g.dilations[d] * w.skip[d] / stride);
  }
  GemmProblem& p = c.gemm;
  p.m = g.in;
  p.k = g.out * patches.taps();
  set_image_columns(p, g, g.in, g.x_pixels, g.out);
  if (g.taps == 1) {
    p.a_row = 1;
    p.a_col = g.in;
    p.batch[2].a = g.out * g.in;
  } else {
    p.pack_a = EPL_CPU_CHOOSE(pack_flipped_weights);
  }
  if (g.strided()) {  // C is compact, and in the workspace
    p.n = p.c_row = g.batch * patches.columns();
    p.c_run = p.c_jump = 0;
    p.batch[2].c = g.in * p.n;
  }
  return c;
}

Convolutions grad_input(const KernelQuery& q) {
  const Geometry g = geometry_of(q.attributes, q.out(0).shape, q.in(1).shape, q.in(0).shape);
  Convolutions all;
  ConvPhases& p = all.phases;
  p.images = g.batch;
  p.channels = g.groups * g.in;
  std::copy_n(g.x, conv_dims, p.sizes);
  std::copy_n(g.strides, conv_dims, p.strides);
  int64_t phase[conv_dims];
  for (phase[0] = 0; phase[0] < g.strides[0]; ++phase[0])
    for (phase[1] = 0; phase[1] < g.strides[1]; ++phase[1])
      for (phase[2] = 0; phase[2] < g.strides[2]; ++phase[2]) {
        Convolution c = grad_input_phase(g, phase);
        ConvPhases::Phase own;
        std::copy_n(c.patches.positions, conv_dims, own.positions);
        p.phases.push_back(own);
        if (g.strided()) {
          if (c.gemm.k == 0 || c.gemm.n == 0) continue;
          c.c_at = p.phases.back().at = p.elements;
          p.elements += p.channels * c.gemm.n;
        }
        all.products.push_back(c);
      }
  return all;
}

Convolutions grad_weight(const KernelQuery& q) {
  const Geometry g = geometry_of(q.attributes, q.in(0).shape, q.out(0).shape, q.in(1).shape);
  Convolution c;
  c.patches = patches_of_x(g);
  c.images = {nullptr, g.groups * g.out * g.y_pixels, g.out * g.y_pixels, g.y_pixels};
  c.plain_patches = {nullptr, g.groups * g.in * g.x_pixels, g.in * g.x_pixels, g.x_pixels};
  GemmProblem& p = c.gemm;
  p.m = g.out;
  p.n = g.in * g.taps;
  p.k = g.batch * g.y_pixels;
  p.units = q.units.count;
  c.units = q.units;
  p.c_row = p.n;
  p.batch[2].count = g.groups;
  p.batch[2].c = p.m * p.n;
  p.pack_a = EPL_CPU_CHOOSE(pack_images);
  p.pack_b = g.plain ? EPL_CPU_CHOOSE(pack_images) : EPL_CPU_CHOOSE(pack_patches_across);
  // C is small beside k. Tiles of it would pack its operands once each, or leave threads idle, but parts of k do not.
  constexpr int64_t most_elements = 1 << 18;
  const int64_t size = g.groups * p.m * p.n;
  while (c.parts < p.units && 2 * c.parts * size <= most_elements) c.parts *= 2;
  p.k /= c.parts;
  p.units /= c.parts;
  p.batch[1].count = c.parts;
  p.batch[1].c = size;
  if (c.parts > 1) c.c_at = 0;
  return {{c}, {}, c.parts > 1 ? size : 0};
}

// What is put together in the end comes first in the workspace.
int64_t front_bytes(const Convolutions& all) { return (all.elements() * 4 + 63) / 64 * 64; }

// A pack of a product whose number counts parts of k, and of those the groups.
struct PartPack {
  GemmPack pack;
  const void* context;
  int64_t groups, k;
};
void pack_part(const void* context, int64_t product, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
               int64_t stride) {
  const PartPack& p = *static_cast<const PartPack*>(context);
  p.pack(p.context, product % p.groups, first, count, product / p.groups * p.k + k, depth, to, stride);
}

template <Convolutions make(const KernelQuery&)> Result<Prepared> prepare(const KernelQuery& q) {
  const int dims = q.in(0).ndim() - 2;
  EPL_TRY(require(dims >= 1 && dims <= conv_dims, "more than three spatial dimensions"));
  EPL_TRY(require(q.units.divide(q.in(0).shape[0]), "units that do not divide the batch"));
  auto all = std::make_shared<const Convolutions>(make(q));
  int64_t of_products = 0;
  for (const Convolution& c : all->products)
    of_products = std::max(of_products, gemm_workspace_bytes(c.gemm, q.threads));
  return Prepared{.state = all, .workspace_bytes = front_bytes(*all) + of_products};
}

// `a` and `b` of the arguments are what the packs, if any, read instead.
void run(const KernelCall& call, const Convolutions& all, Convolution c, const float* a, const float* b) {
  c.weights.data = c.images.data = a;
  c.patches.data = c.plain_patches.data = b;
  GemmArguments arguments;
  arguments.a = a;
  arguments.b = b;
  arguments.c = c.c_at < 0 ? call.out<float>(0) : static_cast<float*>(call.workspace) + c.c_at;
  if (c.gemm.bias != GemmBias::none) arguments.bias = call.in<float>(2);
  const GemmPack images = EPL_CPU_CHOOSE(pack_images);
  arguments.a_context = c.gemm.pack_a == images ? static_cast<const void*>(&c.images) : &c.weights;
  arguments.b_context = c.gemm.pack_b == images ? static_cast<const void*>(&c.plain_patches) : &c.patches;
  const int64_t k = c.gemm.k * c.parts;
  const UnitOrder a_order{c.gemm.pack_a, arguments.a_context, k, c.units},
      b_order{c.gemm.pack_b, arguments.b_context, k, c.units};
  if (c.units.outer > 1) {  // of grad_weight, which has both packs
    c.gemm.pack_a = c.gemm.pack_b = pack_in_unit_order;
    arguments.a_context = &a_order;
    arguments.b_context = &b_order;
  }
  const int64_t groups = c.gemm.batch[2].count;
  const PartPack a_part{c.gemm.pack_a, arguments.a_context, groups, c.gemm.k},
      b_part{c.gemm.pack_b, arguments.b_context, groups, c.gemm.k};
  if (c.parts > 1) {
    c.gemm.pack_a = c.gemm.pack_b = pack_part;
    arguments.a_context = &a_part;
    arguments.b_context = &b_part;
  }
  gemm(c.gemm, arguments, static_cast<std::byte*>(call.workspace) + front_bytes(all), call.threads());
}

// The gradient by few weights is a small product over many positions: tiles of it would each pack an operand again, and
// leave threads idle. So runs of units are products of their own, the parts, which are subtrees of the tree over units.
void join_parts(const KernelCall& call, int64_t parts, int64_t size) {
  constexpr int64_t block = 1024;  // elements of a part that stay in the first-level cache
  float* sums = static_cast<float*>(call.workspace);
  const ReduceLoops& loops = EPL_CPU_CHOOSE(reduce_loops)(Reducer::sum);
  call.threads().run_ranges((size + block - 1) / block, 16, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin * block; at < std::min(end * block, size); at += block) {
      const int64_t count = std::min(block, size - at);
      for (int64_t step = 1; step < parts; step *= 2)
        for (int64_t i = 0; i < parts; i += 2 * step)
          loops.join_rows(sums + i * size + at, sums + (i + step) * size + at, count);
      std::copy_n(sums + at, count, call.out<float>(0) + at);
    }
  });
}

void join_phases(const KernelCall& call, const ConvPhases& p) {
  const int64_t pixels = p.sizes[0] * p.sizes[1] * p.sizes[2];
  constexpr int64_t task_pixels = 32768;  // what is worth waking a thread for
  call.threads().run_ranges(p.images * p.channels, std::max<int64_t>(1, task_pixels / std::max<int64_t>(pixels, 1)),
                            [&](int64_t begin, int64_t end) {
                              for (int64_t i = begin; i < end; ++i)
                                EPL_CPU_CHOOSE(join_phases)(p, static_cast<const float*>(call.workspace),
                                                            i / p.channels, i % p.channels,
                                                            call.out<float>(0) + i * pixels);
                            });
}

// In all three ops the second operand plays A and the first plays B.
void launch(const KernelCall& call) {
  const Convolutions& all = *static_cast<const Convolutions*>(call.state);
  for (const Convolution& c : all.products) run(call, all, c, call.in<float>(1), call.in<float>(0));
  if (all.phases.phases.size() > 1) join_phases(call, all.phases);
  if (all.part_size > 0) join_parts(call, all.products[0].parts, all.part_size);
}

template <Convolutions make(const KernelQuery&)> void add_row(KernelTable& table, const char* op, const char* name) {
  const KernelRow row{.op = op, .name = name, .dtypes = {DType::f32}, .prepare = prepare<make>, .launch = launch};
  table.add(row);
  table.add(of_narrow_operands(row));
}

}  // namespace

EPL_KERNELS(cpu, conv) {
  add_winograd_row(table, "conv", false);
  add_row<forward>(table, "conv", "conv_ordered");
}

EPL_KERNELS(cpu, conv_grad_input) {
  add_winograd_row(table, "conv_grad_input", true);
  add_row<grad_input>(table, "conv_grad_input", "conv_grad_input_ordered");
}

EPL_KERNELS(cpu, conv_grad_weight) {
  add_winograd_weight_row(table);
  add_row<grad_weight>(table, "conv_grad_weight", "conv_grad_weight_ordered");
}

}  // namespace epl::cpu
