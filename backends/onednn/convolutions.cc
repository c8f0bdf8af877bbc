// The rows of convolution and its two gradients. oneDNN chooses the layouts; operands are copied into them, and the
// result out of them, in the workspace. That costs a pass over each tensor; the products gain far more.
#include <algorithm>

#include "backends/onednn/kernel.h"
#include "backends/onednn/rows.h"

namespace epl::onednn {
namespace {

using dnnl::algorithm;
using dnnl::prop_kind;

// x [batch, groups * in, spatial...], y [batch, groups * out, spatial...], bias [groups * out], and w [out, in,
// kernel...], or [groups, out, in, kernel...] where there are several groups.
struct Convolution {
  View x, w, y, bias;
  int64_t groups;
  Dims strides, dilations, begin, end;  // as oneDNN counts: a dilation of 0 is none
  Type factors, result;                 // of what is multiplied, and of what comes out

  int64_t batch() const { return x.dims[0]; }
  int64_t in() const { return x.dims[1] / groups; }
  int64_t out() const { return y.dims[1] / groups; }
  double multiplications() const {
    return static_cast<double>(count(y.dims)) * static_cast<double>(count(w.dims)) /
           static_cast<double>(out() * groups);
  }

  // A run of images.
  Convolution images(Run run) const {
    Convolution c = *this;
    c.x = x.part(0, run);
    c.y = y.part(0, run);
    return c;
  }
  // A run of groups.
  Convolution some_groups(Run run) const {
    Convolution c = *this;
    c.groups = run.count;
    c.w = w.part(0, run);
    c.x = x.part(1, {run.begin * in(), run.count * in()});
    c.y = y.part(1, {run.begin * out(), run.count * out()});
    c.bias = bias.part(0, {run.begin * out(), run.count * out()});
    return c;
  }
  // A run of the channels of y, or of x, of the only group.
  Convolution outputs(Run run) const {
    Convolution c = *this;
    c.w = w.part(0, run);
    c.y = y.part(1, run);
    c.bias = bias.part(0, run);
    return c;
  }
  Convolution inputs(Run run) const {
    Convolution c = *this;
    c.w = w.part(1, run);
    c.x = x.part(1, run);
    return c;
  }
};

Convolution convolution_of(const Query& q, const Dims& x, Dims w, const Dims& y) {
  const size_t dims = x.size() - 2;
  require(dims >= 1 && dims <= 3, "a number of spatial dimensions other than one, two and three");
  require(count(x) > 0 && count(w) > 0 && count(y) > 0, "an empty operand");
  Convolution c;
  c.strides = q.integers("strides");
  c.dilations = q.integers("dilations");
  Dims pads = q.integers("pads");
  if (c.strides.empty()) c.strides.assign(dims, 1);
  if (c.dilations.empty()) c.dilations.assign(dims, 1);
  if (pads.empty()) pads.assign(2 * dims, 0);
  for (int64_t& dilation : c.dilations) --dilation;
  c.begin.assign(pads.begin(), pads.end() - static_cast<int64_t>(dims));
  c.end.assign(pads.end() - static_cast<int64_t>(dims), pads.end());
  c.groups = q.integer("groups");
  if (c.groups > 1) {
    w[0] /= c.groups;
    w.insert(w.begin(), c.groups);
  }
  c.x = View::dense(x);
  c.w = View::dense(w);
  c.y = View::dense(y);
  c.bias = View::dense({y[1]});
  c.factors = q.factors();
  c.result = q.result();
  return c;
}

constexpr int64_t channels = 16;  // of a block of oneDNN's layouts, which a cut must not split

// By images, or, where those are fewer than the threads, by groups or by channels.
std::vector<Convolution> cut_result(const Convolution& c, int64_t shares, int64_t size,
                                    Convolution (Convolution::*by_channels)(Run) const) {
  std::vector<Convolution> out;
  if (c.batch() >= shares) {
    for (Run run : cut(c.batch(), shares, 1)) out.push_back(c.images(run));
  } else if (c.groups > 1) {
    for (Run run : cut(c.groups, shares, 1)) out.push_back(c.some_groups(run));
  } else {
    for (Run run : cut(size, shares, channels)) out.push_back((c.*by_channels)(run));
  }
  return out;
}

dnnl::convolution_forward::primitive_desc forward_primitive(const Convolution& c, bool biased, Type result) {
  using Forward = dnnl::convolution_forward;
  const Desc x = c.x.any(c.factors), w = c.w.any(c.factors), y = c.y.any(result), bias = c.bias.desc(result);
  const auto kind = prop_kind::forward_training;
  const auto method = algorithm::convolution_direct;
  const Forward::desc desc = biased ? Forward::desc(kind, method, x, w, bias, y, c.strides, c.dilations, c.begin, c.end)
                                    : Forward::desc(kind, method, x, w, y, c.strides, c.dilations, c.begin, c.end);
  return {desc, primitive_attributes(), cpu_engine()};
}
// From which a gradient's primitive takes its way.
dnnl::convolution_forward::primitive_desc hint(const Convolution& c) { return forward_primitive(c, false, c.factors); }

constexpr auto input = Location::Kind::input, output = Location::Kind::output;

Recipes conv(const Query& q) {
  const Convolution full = convolution_of(q, q.in(0), q.in(1), q.out());
  Recipes recipes;
  for (const Convolution& c :
       cut_result(full, shares_of(q, full.multiplications()), full.out(), &Convolution::outputs)) {
    const auto primitive = forward_primitive(c, q.has(2), c.result);
    std::vector<Operand> operands = {{DNNL_ARG_SRC, input, 0, c.x, primitive.src_desc()},
                                     {DNNL_ARG_WEIGHTS, input, 1, c.w, primitive.weights_desc()}};
    if (q.has(2)) operands.push_back({DNNL_ARG_BIAS, input, 2, c.bias, c.bias.desc(c.result)});
    operands.push_back({DNNL_ARG_DST, output, 0, c.y, primitive.dst_desc()});
    recipes.add(primitive, operands);
  }
  return recipes;
}

Recipes conv_grad_input(const Query& q) {
  const Convolution full = convolution_of(q, q.out(), q.in(1), q.in(0));
  Recipes recipes;
  for (const Convolution& c : cut_result(full, shares_of(q, full.multiplications()), full.in(), &Convolution::inputs)) {
    const dnnl::convolution_backward_data::desc desc(algorithm::convolution_direct, c.x.any(c.result),
                                                     c.w.any(c.factors), c.y.any(c.factors), c.strides, c.dilations,
                                                     c.begin, c.end);
    const dnnl::convolution_backward_data::primitive_desc primitive(desc, primitive_attributes(), cpu_engine(),
                                                                    hint(c));
    recipes.add(primitive, {{DNNL_ARG_DIFF_DST, input, 0, c.y, primitive.diff_dst_desc()},
                            {DNNL_ARG_WEIGHTS, input, 1, c.w, primitive.weights_desc()},
                            {DNNL_ARG_DIFF_SRC, output, 0, c.x, primitive.diff_src_desc()}});
  }
  return recipes;
}

// The images are what is summed, so they are not cut.
std::vector<Convolution> cut_weight(const Convolution& c, int64_t shares) {
  std::vector<Convolution> out;
  if (c.groups > 1) {
    for (Run run : cut(c.groups, shares, 1)) out.push_back(c.some_groups(run));
  } else {
    for (Run run : cut(c.out(), shares, channels)) out.push_back(c.outputs(run));
  }
  return out;
}

Recipes conv_grad_weight(const Query& q) {
  const Convolution full = convolution_of(q, q.in(0), q.out(), q.in(1));
  // With AVX-512 as Bochs emulates it, oneDNN 2.6.3 gets one column of a 7x7 kernel wrong, by complete summands, for 3
  // channels of 32x32 and 30x30 and a stride of 2; not so 33x33 and 64x64, strides of 1 or full blocks of channels.
  const bool strided = std::any_of(full.strides.begin(), full.strides.end(), [](int64_t s) { return s > 1; });
  require(full.factors != Type::bf16 || !strided || full.in() % channels == 0,
          "bf16 with strides and no full block of 16 channels, of which some come out wrong");
  Recipes recipes;
  for (const Convolution& c : cut_weight(full, shares_of(q, full.multiplications()))) {
    const dnnl::convolution_backward_weights::desc desc(algorithm::convolution_direct, c.x.any(c.factors),
                                                        c.w.any(c.result), c.y.any(c.factors), c.strides, c.dilations,
                                                        c.begin, c.end);
    const dnnl::convolution_backward_weights::primitive_desc primitive(desc, primitive_attributes(), cpu_engine(),
                                                                       hint(c));
    recipes.add(primitive, {{DNNL_ARG_SRC, input, 0, c.x, primitive.src_desc()},
                            {DNNL_ARG_DIFF_DST, input, 1, c.y, primitive.diff_dst_desc()},
                            {DNNL_ARG_DIFF_WEIGHTS, output, 0, c.w, primitive.diff_weights_desc()}});
  }
  return recipes;
}

}  // namespace

const epl_pack_kernel conv_row = row<conv>("conv", "conv_onednn");
const epl_pack_kernel conv_grad_input_row = row<conv_grad_input>("conv_grad_input", "conv_grad_input_onednn");
const epl_pack_kernel conv_grad_weight_row = row<conv_grad_weight>("conv_grad_weight", "conv_grad_weight_onednn");

}  // namespace epl::onednn
