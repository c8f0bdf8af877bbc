// Convolution over any number of spatial dimensions, and its two gradients; a transposed convolution is
// conv_grad_input used forward. Layout: x [batch, channels, spatial...], w [out, channels/groups, kernel...].
#include "core/ir/partition_rule.h"
#include "core/ir/sums.h"
#include "core/ops/window.h"

namespace epl {
using namespace ops;

namespace {
// The three tensors of a convolution whichever of them is asked for.
struct ConvShape {
  Window window;
  int64_t batch, groups, in_per_group, out_per_group;
  std::span<const int64_t> in, out;  // spatial sizes
  int64_t in_elements, out_elements, taps;

  int64_t x_index(int64_t n, int64_t g, int64_t c, int64_t at) const {
    return ((n * groups + g) * in_per_group + c) * in_elements + at;
  }
  int64_t y_index(int64_t n, int64_t g, int64_t o, int64_t at) const {
    return ((n * groups + g) * out_per_group + o) * out_elements + at;
  }
  int64_t w_index(int64_t g, int64_t o, int64_t c, int64_t tap) const {
    return ((g * out_per_group + o) * in_per_group + c) * taps + tap;
  }
};

ConvShape conv_shape(const Attributes& attributes, const Shape& x, const Shape& w, const Shape& y) {
  ConvShape s;
  s.window = window_of(attributes, spatial(w));
  s.groups = attributes.integer("groups");
  s.batch = x[0];
  s.in_per_group = w[1];
  s.out_per_group = w[0] / s.groups;
  s.in = spatial(x);
  s.out = spatial(y);
  s.in_elements = product_of(s.in);
  s.out_elements = product_of(s.out);
  s.taps = product_of(s.window.kernel);
  return s;
}

// The shape of y for x and w, or why they do not fit.
Result<Shape> conv_output(const OpQuery& q, const Shape& x, const Shape& w) {
  const int64_t groups = q.attributes().integer("groups");
  if (x.size() < 3 || w.size() != x.size())
    return misfit(q, "x and w need batch, channels and the same spatial dimensions");
  if (groups < 1 || w[0] % groups != 0)
    return misfit(q, "groups ", groups, " does not divide ", w[0], " output channels");
  if (x[1] != w[1] * groups)
    return misfit(q, "x has ", x[1], " channels and w takes ", w[1] * groups, " in ", groups, " groups");
  EPL_ASSIGN(const Window window, window_of(q, spatial(w)));
  Shape y = {x[0], w[0]};
  for (size_t d = 0; d + 2 < x.size(); ++d) {
    y.push_back(window_output(window, d, x[d + 2], false));
    if (y.back() == 0) return misfit(q, "the window is larger than spatial dimension ", d);
  }
  return y;
}

void conv_reference(const Reference& r) {
  const ConvShape s = conv_shape(r.attributes(), r.in(0).shape(), r.in(1).shape(), r.out(0).shape());
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t o = 0; o < s.out_per_group; ++o)
        for_each_index(s.out, [&](int64_t at, const Dims& position) {
          double sum = r.has(2) ? r.in(2).get(g * s.out_per_group + o) : 0.0;
          for_each_tap(s.window, s.in, position, [&](int64_t in, int64_t tap) {
            for (int64_t c = 0; c < s.in_per_group; ++c)
              sum += r.in(0).get(s.x_index(n, g, c, in)) * r.in(1).get(s.w_index(g, o, c, tap));
          });
          r.out(0).set(s.y_index(n, g, o, at), sum);
        });
}

void conv_grad_input_reference(const Reference& r) {
  const ConvShape s = conv_shape(r.attributes(), r.out(0).shape(), r.in(1).shape(), r.in(0).shape());
  const std::span<double> sums = r.room<double>(r.out(0).elements());
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t o = 0; o < s.out_per_group; ++o)
        for_each_index(s.out, [&](int64_t at, const Dims& position) {
          const double dy = r.in(0).get(s.y_index(n, g, o, at));
          for_each_tap(s.window, s.in, position, [&](int64_t in, int64_t tap) {
            for (int64_t c = 0; c < s.in_per_group; ++c)
              sums[s.x_index(n, g, c, in)] += dy * r.in(1).get(s.w_index(g, o, c, tap));
          });
        });
  for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, sums[i]);
}

void conv_grad_weight_reference(const Reference& r) {
  const ConvShape s = conv_shape(r.attributes(), r.in(0).shape(), r.out(0).shape(), r.in(1).shape());
  const Units units = r.units();
  EPL_CHECK(units.divide(s.batch), "batch ", s.batch, " in ", units.count, " units");
  const int64_t elements = r.out(0).elements();
  const std::span<double> parts = r.room<double>(units.count * elements);
  for (int64_t n = 0; n < s.batch; ++n)
    for (int64_t g = 0; g < s.groups; ++g)
      for (int64_t o = 0; o < s.out_per_group; ++o)
        for_each_index(s.out, [&](int64_t at, const Dims& position) {
          const double dy = r.in(1).get(s.y_index(n, g, o, at));
          for_each_tap(s.window, s.in, position, [&](int64_t in, int64_t tap) {
            for (int64_t c = 0; c < s.in_per_group; ++c)
              parts[units.of(n, s.batch) * elements + s.w_index(g, o, c, tap)] +=
                  dy * r.in(0).get(s.x_index(n, g, c, in));
          });
        });
  store_unit_sums(parts, units.count, r.out(0));
}

// Ties the dimensions of x, w and y (given as setters) to the factors of a convolution. Spatial dimensions are the
// partition rules' below, since a shard reads over its borders. With groups only full groups can be cut. Without groups
// both channels can be cut. Those that the op sums over are the partition rules' below: that sum is one chain, not a
// sum of units.
enum class Summed { in, out, batch };
template <class X, class W, class Y, class B>
ShardingRule conv_rule(const OpQuery& q, const Shape& x, const Shape& w, Summed summed, X tie_x, W tie_w, Y tie_y,
                       B tie_bias) {
  RuleWriter rule(q);
  const int batch = rule.factor(x[0]);
  tie_x(rule, 0, std::vector<int>{batch});
  tie_y(rule, 0, std::vector<int>{batch});
  const int64_t groups = q.attributes().integer("groups");
  if (groups == 1) {
    const int c = rule.factor(x[1], summed == Summed::in), o = rule.factor(w[0], summed == Summed::out);
    tie_x(rule, 1, std::vector<int>{c});
    tie_w(rule, 1, std::vector<int>{c});
    tie_w(rule, 0, std::vector<int>{o});
    tie_y(rule, 1, std::vector<int>{o});
    tie_bias(rule, std::vector<int>{o});
  } else {
    const int g = rule.factor(groups), c = rule.factor(w[1], true), o = rule.factor(w[0] / groups, true);
    tie_x(rule, 1, std::vector<int>{g, c});
    tie_w(rule, 0, std::vector<int>{g, o});
    tie_w(rule, 1, std::vector<int>{c});
    tie_y(rule, 1, std::vector<int>{g, o});
    tie_bias(rule, std::vector<int>{g, o});
  }
  return rule.done();
}
auto as_input(int i) {
  return [i](RuleWriter& rule, int d, const std::vector<int>& f) { rule.input(i, d, f); };
}
auto as_output() {
  return [](RuleWriter& rule, int d, const std::vector<int>& f) { rule.output(0, d, f); };
}
void no_bias(RuleWriter&, const std::vector<int>&) {}

std::vector<Option> conv_attributes(bool shape) {
  std::vector<Option> specs = {
      {"strides", Ints{}}, {"pads", Ints{}}, {"dilations", Ints{}}, {"groups", int64_t{1}}, wide_option()};
  if (shape) specs.push_back({"shape", Ints{}, true});
  return specs;
}
Attributes conv_attributes(const Attributes& a, bool wide, const Shape* shape = nullptr) {
  Attributes result = {{"strides", a.ints("strides")},
                       {"pads", a.ints("pads")},
                       {"dilations", a.ints("dilations")},
                       {"groups", a.integer("groups")},
                       {"wide", wide}};
  if (shape) result.set("shape", *shape);
  return result;
}
// A cut of the channels takes full groups; without channels there are as many as before.
void set_groups(Attributes& attributes, int64_t channels, int64_t per_group) {
  if (per_group > 0) attributes.set("groups", channels / per_group);
}
double conv_flops(const Shape& w, const Shape& y) {
  return 2.0 * static_cast<double>(element_count(y) * elements_from(w, 1));
}
}  // namespace

EPL_OP(conv) {
  return {
      .doc =
          "Convolution (cross-correlation): x[b,c,spatial...] with w[o,c/groups,kernel...] plus bias[o] -> y[b,o,...]; "
          "pads are "
          "all beginnings, then all ends.",
      .signature = "x, w, bias? -> y",
      .attributes = conv_attributes(false),
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_TRY(product_dtypes(q, true));
        EPL_ASSIGN(Shape y, conv_output(q, q.in(0).shape, q.in(1).shape));
        EPL_TRY(expect_shape(q, 2, {y[1]}, "bias"));
        return OutputTypes{{product_dtype(q), y}};
      },
      .reference = conv_reference,
      .gradient =
          [](Grad& g) {
            const Var x = g.in(0), w = g.in(1);
            const ProductGradient p(g);
            const Attributes& a = g.attributes();
            if (g.needs(0)) g.set(0, g.b.emit("conv_grad_input", {p.dy, w}, conv_attributes(a, p.wide, &x.shape())));
            if (g.needs(1))
              g.set(1, g.b.emit("conv_grad_weight", {x, p.dy}, conv_attributes(a, p.wide_weight, &w.shape())));
            if (g.needs(2)) {
              const Var dy = g.b.cast(g.upstream(0), type_of_sums(g.upstream(0).dtype()));
              Ints axes = {0};
              for (int d = 2; d < dy.ndim(); ++d) axes.push_back(d);
              g.set(2, g.b.sum(dy, axes, false));
            }
          },
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        return conv_rule(q, q.in(0).shape, q.in(1).shape, Summed::in, as_input(0), as_input(1), as_output(),
                         [](RuleWriter& rule, const std::vector<int>& f) { rule.input(2, 0, f); });
      },
      .localize = [](Attributes& attributes, const std::vector<TensorType>& in,
                     const std::vector<TensorType>&) { set_groups(attributes, in[0].shape[1], in[1].shape[1]); },
      .flops = [](const OpQuery& q) { return conv_flops(q.in(1).shape, q.out(0).shape); },
      .weight_product = WeightProduct::convolution,
      .narrow_inputs = {0, 1},
      .samples = {"f32[4,2,5,6], f32[4,2,3,3], f32[4] {pads=[1,1,1,1]}", "f32[2,4,7,5], f32[6,4,3,2] {strides=[2,1]}",
                  "f32[2,4,8], f32[6,2,3], f32[6] {groups=2,pads=[1,0]}",
                  "f32[2,4,6,6], f32[4,1,3,3] {groups=4,pads=[1,1,1,1],strides=[2,2]}",
                  "f32[2,2,9], f32[2,2,3] {dilations=[2],pads=[2,2]}", "f32[2,2,4,4,3], f32[2,2,2,2,2]",
                  "f32[4,2,4,4], f32[4,2,1,1], f32[4]", "bf16[2,2,4,4], bf16[4,2,3,3] {pads=[1,1,1,1],wide=true}"}};
}

EPL_OP(conv_grad_input) {
  return {
      .doc =
          "Gradient of conv's x, of `shape` [b,c,spatial...]: dy[b,o,...], w[o,c/groups,kernel...] -> dx; also the "
          "transposed convolution of dy.",
      .signature = "dy, w -> dx",
      .attributes = conv_attributes(true),
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_TRY(product_dtypes(q, true));
        const Shape& x = q.attributes().ints("shape");
        EPL_ASSIGN(Shape y, conv_output(q, x, q.in(1).shape));
        EPL_TRY(expect_shape(q, 0, y, "dy"));
        return OutputTypes{{product_dtype(q), x}};
      },
      .reference = conv_grad_input_reference,
      .room = room_for_sums,
      .gradient =
          [](Grad& g) {
            const ProductGradient p(g);
            const Attributes& a = g.attributes();
            if (g.needs(0)) g.set(0, g.b.emit("conv", {p.dy, g.in(1)}, conv_attributes(a, p.wide)));
            if (g.needs(1)) {
              g.set(1,
                    g.b.emit("conv_grad_weight", {p.dy, g.in(0)}, conv_attributes(a, p.wide_weight, &g.in(1).shape())));
            }
          },
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        return conv_rule(q, q.out(0).shape, q.in(1).shape, Summed::out, as_output(), as_input(1), as_input(0), no_bias);
      },
      .localize =
          [](Attributes& attributes, const std::vector<TensorType>& in, const std::vector<TensorType>& out) {
            attributes.set("shape", out[0].shape);
            set_groups(attributes, out[0].shape[1], in[1].shape[1]);
          },
      .flops = [](const OpQuery& q) { return conv_flops(q.in(1).shape, q.in(0).shape); },
      .narrow_inputs = {0, 1},
      .samples = {"f32[4,4,5,6], f32[4,2,3,3] {pads=[1,1,1,1],shape=[4,2,5,6]}",
                  "f32[2,6,3,4], f32[6,4,3,2] {strides=[2,1],shape=[2,4,8,5]}",
                  "f32[2,6,7], f32[6,2,3] {groups=2,pads=[1,0],shape=[2,4,8]}",
                  "bf16[2,4,4,4], bf16[4,2,3,3] {pads=[1,1,1,1],shape=[2,2,4,4],wide=true}"}};
}

EPL_OP(conv_grad_weight) {
  return {.doc =
              "Gradient of conv's w, of `shape` [o,c/groups,kernel...]: x[b,c,spatial...], dy[b,o,...] -> dw; sums the "
              "batch.",
          .signature = "x, dy -> dw",
          .attributes = conv_attributes(true),
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(product_dtypes(q, true));
            const Shape& w = q.attributes().ints("shape");
            EPL_ASSIGN(Shape y, conv_output(q, q.in(0).shape, w));
            EPL_TRY(expect_shape(q, 1, y, "dy"));
            return OutputTypes{{product_dtype(q), w}};
          },
          .reference = conv_grad_weight_reference,
          .room = room_for_unit_sums,
          .gradient =
              [](Grad& g) {
                const ProductGradient p(g);
                const Attributes& a = g.attributes();
                if (g.needs(0))
                  g.set(0, g.b.emit("conv_grad_input", {g.in(1), p.dy}, conv_attributes(a, p.wide, &g.in(0).shape())));
                if (g.needs(1)) g.set(1, g.b.emit("conv", {g.in(0), p.dy}, conv_attributes(a, p.wide)));
              },
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            return conv_rule(q, q.in(0).shape, q.out(0).shape, Summed::batch, as_input(0), as_output(), as_input(1),
                             no_bias);
          },
          .localize =
              [](Attributes& attributes, const std::vector<TensorType>& in, const std::vector<TensorType>& out) {
                attributes.set("shape", out[0].shape);
                set_groups(attributes, in[0].shape[1], out[0].shape[1]);
              },
          .flops = [](const OpQuery& q) { return conv_flops(q.out(0).shape, q.in(1).shape); },
          .samples = {"f32[4,2,5,6], f32[4,4,5,6] {pads=[1,1,1,1],shape=[4,2,3,3]}",
                      "f32[2,4,8,5], f32[2,6,3,4] {strides=[2,1],shape=[6,4,3,2]}",
                      "f32[2,4,8], f32[2,6,7] {groups=2,pads=[1,0],shape=[6,2,3]}",
                      "bf16[2,2,4,4], bf16[2,4,4,4] {pads=[1,1,1,1],shape=[4,2,3,3],wide=true}"}};
}

namespace {
// Where a convolution's three shapes stand in a query of one of its ops.
struct ConvTypes {
  const Shape &x, &w, &y;
};
ConvTypes forward_types(const OpQuery& q) { return {q.in(0).shape, q.in(1).shape, q.out(0).shape}; }
ConvTypes grad_input_types(const OpQuery& q) { return {q.out(0).shape, q.in(1).shape, q.in(0).shape}; }
ConvTypes grad_weight_types(const OpQuery& q) { return {q.in(0).shape, q.out(0).shape, q.in(1).shape}; }

// The spatial dimensions of x and y, given as setters.
template <class X, class Y> void tie_windows(Ties& t, const ConvTypes& types, X tie_x, Y tie_y) {
  for (int d = 2; d < static_cast<int>(types.x.size()); ++d) {
    const int f = t.window(d, types.x[static_cast<size_t>(d)], types.y[static_cast<size_t>(d)]);
    if (f < 0) continue;
    tie_x(d, f);
    tie_y(d, f);
  }
}

template <ConvTypes (*types_of)(const OpQuery&)>
std::optional<Halo> elements_of_shards(const OpQuery& q, int dim, int64_t shards) {
  const ConvTypes types = types_of(q);
  const auto d = static_cast<size_t>(dim);
  return elements_of_windows(window_of(q.attributes(), spatial(types.w)), d - 2, types.x[d], types.y[d], shards, false);
}
std::optional<Halo> windows_of_shards(const OpQuery& q, int dim, int64_t shards) {
  const ConvTypes types = grad_input_types(q);
  const auto d = static_cast<size_t>(dim);
  return windows_of_elements(window_of(q.attributes(), spatial(types.w)), d - 2, types.x[d], shards, false);
}
}  // namespace

// The channels that are summed over, as a sum of what ranks make of theirs. With groups full groups are cut instead.
// And rows, over whose borders windows reach.
EPL_PARTITION(conv) {
  return {.ties =
              [](Ties& t) {
                if (t.q.attributes().integer("groups") == 1) {
                  const int channels = t.factor(t.q.in(0).shape[1]);
                  t.input(0, 1, channels);
                  t.input(1, 1, channels);
                  t.added(2, channels);
                }
                tie_windows(
                    t, forward_types(t.q), [&](int d, int f) { t.input(0, d, f); },
                    [&](int d, int f) { t.output(0, d, f); });
              },
          .sums = true,
          .halo = {.of = elements_of_shards<forward_types>, .operands = {0}}};
}

EPL_PARTITION(conv_grad_input) {
  return {.ties =
              [](Ties& t) {
                if (t.q.attributes().integer("groups") == 1) {
                  const int channels = t.factor(t.q.in(1).shape[0]);
                  t.input(0, 1, channels);
                  t.input(1, 0, channels);
                }
                tie_windows(
                    t, grad_input_types(t.q), [&](int d, int f) { t.output(0, d, f); },
                    [&](int d, int f) { t.input(0, d, f); });
              },
          .sums = true,
          .halo = {.of = windows_of_shards, .operands = {0}}};
}

EPL_PARTITION(conv_grad_weight) {
  return {.ties =
              [](Ties& t) {
                tie_windows(
                    t, grad_weight_types(t.q), [&](int d, int f) { t.input(0, d, f); },
                    [&](int d, int f) { t.input(1, d, f); });
              },
          .sums = true,
          .halo = {.of = elements_of_shards<grad_weight_types>, .operands = {0}}};
}

}  // namespace epl
