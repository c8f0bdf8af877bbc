// Resizing: along every dimension each result is a weighted sum of a few elements, so that a dimension is resized by a
// product with a constant matrix, or by a gather where only one element counts.
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/axes.h"
#include "frontends/onnx/ops/types.h"

namespace epl::onnx {
namespace {

struct Options {
  std::string mode, transform,
      nearest;  // nearest "simple": up where the dimension shrinks, else down, as before opset 11
  double cubic = -0.75;
  bool exclude = false, antialias = false;
};

// Where element `i` of the result lies in the operand.
double source_of(const Options& o, double i, double scale, int64_t from, int64_t to, double roi_start, double roi_end) {
  const double n = static_cast<double>(from), m = static_cast<double>(to);
  if (o.transform == "asymmetric") return i / scale;
  if (o.transform == "align_corners")
    return to == 1 ? 0 : i * (n - 1) / (n * scale - 1);  // before rounding to full elements
  if (o.transform == "pytorch_half_pixel") return to == 1 ? -0.5 : (i + 0.5) / scale - 0.5;
  if (o.transform == "half_pixel_symmetric") {
    const double adjustment = m / (n * scale), centre = n / 2;
    return centre * (1 - adjustment) + (i + 0.5) / scale - 0.5;
  }
  if (o.transform == "tf_crop_and_resize") {
    return to > 1 ? roi_start * (n - 1) + i * (roi_end - roi_start) * (n - 1) / (m - 1)
                  : 0.5 * (roi_start + roi_end) * (n - 1);
  }
  if (o.transform == "tf_half_pixel_for_nn") return (i + 0.5) / scale;
  return (i + 0.5) / scale - 0.5;  // half_pixel
}

int64_t nearest_of(const Options& o, double x, double scale) {
  if (o.nearest == "simple") return static_cast<int64_t>(scale < 1 ? std::ceil(x) : std::floor(x));
  const double down = std::floor(x), half = x - down;
  if (o.nearest == "floor") return static_cast<int64_t>(down);
  if (o.nearest == "ceil") return static_cast<int64_t>(std::ceil(x));
  if (o.nearest == "round_prefer_ceil") return static_cast<int64_t>(half >= 0.5 ? down + 1 : down);
  return static_cast<int64_t>(half > 0.5 ? down + 1 : down);
}

double weight_at(const Options& o, double distance) {
  const double d = std::fabs(distance), a = o.cubic;
  if (o.mode == "linear") return d < 1 ? 1 - d : 0;
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

// One dimension: the weights of the operand's elements in each result [to, from]; rows of results outside are zero.
struct Axis {
  epl::Tensor weights, nearest, outside;  // nearest i64[to] instead of weights, where one element counts
  bool any_outside = false;
};

Axis resized_axis(const Options& o, double scale, int64_t from, int64_t to, double roi_start, double roi_end) {
  Axis axis;
  axis.outside = epl::Tensor({DType::boolean, {to}});
  const bool one = o.mode == "nearest";
  if (one) axis.nearest = epl::Tensor({DType::i64, {to}});
  if (!one) axis.weights = epl::Tensor({DType::f32, {to, from}});
  const double stretch = o.antialias && scale < 1 ? scale : 1.0;
  const int64_t reach = static_cast<int64_t>(std::ceil((o.mode == "cubic" ? 2.0 : 1.0) / stretch)) + 1;
  std::vector<double> row(from);
  for (int64_t i = 0; i < to; ++i) {
    const double x = source_of(o, static_cast<double>(i), scale, from, to, roi_start, roi_end);
    if (o.transform == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(from - 1))) {
      axis.outside.set_int(i, 1);
      axis.any_outside = true;
    }
    if (one) {
      axis.nearest.set_int(i, std::clamp<int64_t>(nearest_of(o, x, scale), 0, from - 1));
      continue;
    }
    std::ranges::fill(row, 0.0);
    const int64_t middle = static_cast<int64_t>(std::floor(x));
    double total = 0;
    for (int64_t k = middle - reach; k <= middle + reach; ++k) {
      const double w = weight_at(o, (x - static_cast<double>(k)) * stretch);
      const bool inside = k >= 0 && k < from;
      if (w == 0 || (!inside && o.exclude)) continue;
      row[std::clamp<int64_t>(k, 0, from - 1)] += w;
      total += w;
    }
    for (int64_t k = 0; k < from; ++k) axis.weights.set(i * from + k, total != 0 ? row[k] / total : row[k]);
  }
  return axis;
}

// x with dimension d resized.
Var resize_axis(Builder& b, const Var& x, int d, const Axis& axis) {
  if (!axis.nearest.empty()) return b.emit("gather", {x, b.constant(axis.nearest)}, {{"axis", int64_t{d}}});
  Ints order;
  for (int k = 0; k < x.ndim(); ++k) {
    if (k != d) order.push_back(k);
  }
  order.push_back(d);
  Ints back(order.size());
  for (size_t k = 0; k < order.size(); ++k) back[order[k]] = static_cast<int64_t>(k);
  Var weights = b.cast(b.constant(axis.weights), x.dtype());
  return b.transpose(b.matmul(b.transpose(x, order), weights, false, true), back);
}

// What becomes of each dimension, and the part of the operand that is read, two numbers for each of `axes`.
struct Sizes {
  Ints axes;
  Shape to;
  Doubles scales, region;
};

// The sizes wanted for the listed axes, or the scales. `policy` keeps the proportions.
bool read_sizes(Import& i, Sizes& s) {
  const Shape from = i.type(0).shape;
  const epl::Tensor* given = i.has(2) && i.type(2).elements() > 0 ? i.constant(2) : nullptr;
  if (given) {
    if (given->elements() != static_cast<int64_t>(s.axes.size())) return false;
    for (size_t k = 0; k < s.axes.size(); ++k) {
      s.scales[s.axes[k]] = given->get(static_cast<int64_t>(k));
      s.to[s.axes[k]] = static_cast<int64_t>(std::floor(static_cast<double>(from[s.axes[k]]) * s.scales[s.axes[k]]));
    }
    return true;
  }
  if (!i.has(3)) return false;
  const Ints sizes = i.ints(3);
  if (sizes.size() != s.axes.size()) return false;
  const std::string policy = i.choice("keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  double common = 0;
  for (size_t k = 0; k < s.axes.size(); ++k) {
    const double scale = static_cast<double>(sizes[k]) / static_cast<double>(std::max<int64_t>(from[s.axes[k]], 1));
    common = k == 0 ? scale : policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
    s.scales[s.axes[k]] = scale;
    s.to[s.axes[k]] = sizes[k];
  }
  if (policy == "stretch") return true;
  for (int64_t axis : s.axes) {
    s.scales[axis] = common;
    s.to[axis] = static_cast<int64_t>(std::floor(common * static_cast<double>(from[axis]) + 0.5));
  }
  return true;
}

void resize(Import& i, const Options& o, const Sizes& s) {
  Builder& b = i.b;
  // Between integers lie real numbers; the nearest one is taken as it is.
  const DType as = i.in(0).dtype();
  const Var x = is_float(as) || o.mode == "nearest" ? i.in(0) : b.cast(i.in(0), real_type(as, DType::f32));
  const Shape from = x.shape();
  const bool cuts = o.transform == "tf_crop_and_resize";
  Var y = x, outside;
  for (size_t k = 0; k < s.axes.size(); ++k) {
    const int d = static_cast<int>(s.axes[k]);
    const int64_t to = s.to[d];
    if (to < 0 || from[d] < 1 || to > (int64_t{1} << 24) || to * from[d] > (int64_t{1} << 26))
      return i.fail(cat("from ", from, " to ", s.to));
    if (to == from[d] && s.scales[d] == 1.0 && !cuts) continue;
    const Axis axis = resized_axis(o, s.scales[d], from[d], to, s.region[k], s.region[k + s.axes.size()]);
    y = resize_axis(b, y, d, axis);
    if (!axis.any_outside) continue;
    Shape along(from.size(), 1);
    along[d] = to;
    Var here = b.reshape(b.constant(axis.outside), along);
    outside = outside ? b.emit("logical_or", {outside, here}) : here;
  }
  if (outside) y = b.select(outside, b.like(y, i.number("extrapolation_value", 0)), y);
  i.set(0, y.value() == i.in(0).value() ? b.unary("identity", y) : b.cast(y, as));
}

// The operators before opset 11: a scale for every dimension, and one way to find an element's place.
void resize_by(Import& i, const Doubles& scales) {
  const Shape from = i.type(0).shape;
  if (scales.size() != from.size()) return i.fail(cat(scales.size(), " scales for ", i.type(0).text()));
  Sizes sizes{all_axes(i.type(0).ndim()), from, scales, Doubles(2 * from.size(), 0.0)};
  for (size_t d = 0; d < from.size(); ++d) {
    const double to = std::floor(static_cast<double>(from[d]) * scales[d]);
    if (!(scales[d] > 0) || !(to < 1e9)) return i.fail(cat("a scale of ", scales[d], " for ", i.type(0).text()));
    sizes.to[d] = static_cast<int64_t>(to);
  }
  resize(i, {i.choice("mode", {"nearest", "linear"}), "asymmetric", "simple"}, sizes);
}

void resize_by_input(Import& i) {
  const epl::Tensor* scales = i.constant(1);
  if (!scales) return i.fail("its scales must be known when the model is bound");
  Doubles numbers(scales->elements());
  for (size_t k = 0; k < numbers.size(); ++k) numbers[k] = scales->get(static_cast<int64_t>(k));
  resize_by(i, numbers);
}

}  // namespace

EPL_ONNX_OP(Upsample) {
  return {.until = 9, .run = [](Import& i) { resize_by(i, i.numbers("scales", {})); }};
}
EPL_ONNX_OP(Upsample, 9) { return {.until = 9, .structural = {1}, .run = resize_by_input}; }
EPL_ONNX_OP(Resize) { return {.structural = {1}, .run = resize_by_input}; }
EPL_ONNX_OP(Resize, 11) {
  return {.structural = {1, 2}, .run = [](Import& i) {
            const TensorType type = i.type(0);
            const Options o{i.choice("mode", {"nearest", "linear", "cubic"}),
                            i.choice("coordinate_transformation_mode",
                                     {"half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel",
                                      "half_pixel_symmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"}),
                            i.choice("nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}),
                            i.number("cubic_coeff_a", -0.75),
                            i.integer("exclude_outside", 0) != 0,
                            i.integer("antialias", 0) != 0};
            Sizes sizes{i.axes(i.ints("axes", all_axes(type.ndim())), type.ndim()),
                        type.shape,
                        Doubles(type.shape.size(), 1.0),
                        {}};
            if (!i.b.status().ok()) return;
            sizes.region.assign(2 * sizes.axes.size(), 0.0);
            if (!read_sizes(i, sizes))
              return i.fail("its sizes or scales must be known when the model is bound, one for each axis");
            const epl::Tensor* region = o.transform == "tf_crop_and_resize" ? i.constant(1) : nullptr;
            if (o.transform == "tf_crop_and_resize" &&
                (!region || region->elements() != static_cast<int64_t>(sizes.region.size()))) {
              return i.fail("its region must be known when the model is bound, two numbers for each axis");
            }
            for (size_t k = 0; region && k < sizes.region.size(); ++k)
              sizes.region[k] = region->get(static_cast<int64_t>(k));
            resize(i, o, sizes);
          }};
}

}  // namespace epl::onnx
