// Resizing: along every dimension each result is a weighted sum of a few elements, so that a dimension is resized by a
// product with a constant matrix, or by a gather where only one element counts.
#include <algorithm>
#include <cmath>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"

namespace epl::onnx {
namespace {

struct Options {
  std::string mode, transform, nearest;
  double cubic = -0.75;
  bool exclude = false, antialias = false;
};

// Where element `i` of the result lies in the operand.
double source_of(const Options& o, double i, double scale, int64_t from, int64_t to, double roi_start, double roi_end) {
  const double n = static_cast<double>(from), m = static_cast<double>(to);
  if (o.transform == "asymmetric") return i / scale;
  if (o.transform == "align_corners") return to == 1 ? 0 : i * (n - 1) / (n * scale - 1);   // before rounding to whole elements
  if (o.transform == "pytorch_half_pixel") return to == 1 ? -0.5 : (i + 0.5) / scale - 0.5;
  if (o.transform == "half_pixel_symmetric") {
    const double adjustment = m / (n * scale), centre = n / 2;
    return centre * (1 - adjustment) + (i + 0.5) / scale - 0.5;
  }
  if (o.transform == "tf_crop_and_resize") {
    return to > 1 ? roi_start * (n - 1) + i * (roi_end - roi_start) * (n - 1) / (m - 1) : 0.5 * (roi_start + roi_end) * (n - 1);
  }
  return (i + 0.5) / scale - 0.5;   // half_pixel
}

int64_t nearest_of(const Options& o, double x) {
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
  epl::Tensor weights, nearest, outside;   // nearest i64[to] instead of weights, where one element counts
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
      axis.nearest.set_int(i, std::clamp<int64_t>(nearest_of(o, x), 0, from - 1));
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

// The sizes wanted for the listed axes, or the scales. `policy` keeps the proportions.
bool read_sizes(Import& i, const Ints& axes, Shape& to, Doubles& scales) {
  const Shape from = i.type(0).shape;
  const epl::Tensor* given = i.has(2) && i.type(2).elements() > 0 ? i.constant(2) : nullptr;
  if (given) {
    if (given->elements() != static_cast<int64_t>(axes.size())) return false;
    for (size_t k = 0; k < axes.size(); ++k) {
      scales[axes[k]] = given->get(static_cast<int64_t>(k));
      to[axes[k]] = static_cast<int64_t>(std::floor(static_cast<double>(from[axes[k]]) * scales[axes[k]]));
    }
    return true;
  }
  if (!i.has(3)) return false;
  const Ints sizes = i.ints(3);
  if (sizes.size() != axes.size()) return false;
  const std::string policy = i.text("keep_aspect_ratio_policy", "stretch");
  double common = 0;
  for (size_t k = 0; k < axes.size(); ++k) {
    const double scale = static_cast<double>(sizes[k]) / static_cast<double>(std::max<int64_t>(from[axes[k]], 1));
    common = k == 0 ? scale : policy == "not_larger" ? std::min(common, scale) : std::max(common, scale);
    scales[axes[k]] = scale;
    to[axes[k]] = sizes[k];
  }
  if (policy == "stretch") return true;
  for (int64_t axis : axes) {
    scales[axis] = common;
    to[axis] = static_cast<int64_t>(std::floor(common * static_cast<double>(from[axis]) + 0.5));
  }
  return true;
}

}  // namespace

EPL_ONNX_OP(Resize) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    Var x = i.in(0);
    const Shape from = x.shape();
    Options o{i.text("mode", "nearest"), i.text("coordinate_transformation_mode", "half_pixel"), i.text("nearest_mode", "round_prefer_floor"),
              i.number("cubic_coeff_a", -0.75), i.integer("exclude_outside", 0) != 0, i.integer("antialias", 0) != 0};
    if (o.mode != "nearest" && o.mode != "linear" && o.mode != "cubic") return i.fail(unsupported("mode ", o.mode));
    Ints axes = i.ints("axes", {});
    if (!i.has_attribute("axes")) {
      for (int d = 0; d < x.ndim(); ++d) axes.push_back(d);
    }
    for (int64_t& axis : axes) {
      axis = axis < 0 ? axis + x.ndim() : axis;
      if (axis < 0 || axis >= x.ndim()) return i.fail(cat("axes ", axes, " of ", x.type().text()));
    }
    Shape to = from;
    Doubles scales(from.size(), 1.0), roi(2 * axes.size(), 0.0);
    if (!read_sizes(i, axes, to, scales)) return i.fail("its sizes or scales must be known when the model is bound, one for each axis");
    const epl::Tensor* region = o.transform == "tf_crop_and_resize" ? i.constant(1) : nullptr;
    if (o.transform == "tf_crop_and_resize" && (!region || region->elements() != static_cast<int64_t>(roi.size()))) {
      return i.fail("its region must be known when the model is bound, two numbers for each axis");
    }
    for (size_t k = 0; region && k < roi.size(); ++k) roi[k] = region->get(static_cast<int64_t>(k));
    Var y = x, outside;
    for (size_t k = 0; k < axes.size(); ++k) {
      const int d = static_cast<int>(axes[k]);
      if (to[d] < 0 || from[d] < 1 || to[d] > (int64_t{1} << 24) || to[d] * from[d] > (int64_t{1} << 28)) return i.fail(cat("from ", from, " to ", to));
      if (to[d] == from[d] && scales[d] == 1.0 && !region) continue;
      const Axis axis = resized_axis(o, scales[d], from[d], to[d], roi[k], roi[k + axes.size()]);
      y = resize_axis(b, y, d, axis);
      if (!axis.any_outside) continue;
      Shape lane(from.size(), 1);
      lane[d] = to[d];
      Var here = b.reshape(b.constant(axis.outside), lane);
      outside = outside ? b.emit("logical_or", {outside, here}) : here;
    }
    if (outside) y = b.select(outside, b.like(y, i.number("extrapolation_value", 0)), y);
    i.set(0, y.value() == x.value() ? b.unary("identity", x) : y);
  }};
}

}  // namespace epl::onnx
