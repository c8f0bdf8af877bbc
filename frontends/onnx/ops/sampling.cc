// Reading an image between its pixels, the grids to read at, and windows of signals.
#include <cmath>
#include <numbers>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/types.h"

namespace epl::onnx {
namespace {

// What lies outside the image.
struct Outside {
  std::string mode;  // zeros, border or reflection
  bool corners = false;

  double low() const { return corners ? 0 : -0.5; }
  double high(int64_t size) const { return static_cast<double>(size) - (corners ? 1 : 0.5); }
};

Var clamp(Builder& b, const Var& p, double low, double high) {
  return b.minimum(b.maximum(p, b.like(p, low)), b.like(p, high));
}

// Folds positions back into [low, high], as between two mirrors.
Var reflect(Builder& b, const Var& p, double low, double high) {
  double range = high - low;
  if (range <= 0) return p * 0.0;
  Var t = b.unary("abs", p - low);
  t = b.emit("fmod", {t, b.like(t, 2 * range)});
  return b.minimum(t, 2 * range - t) + low;
}

Var inside(Builder& b, const Var& p, int64_t size, const Outside& outside) {
  if (outside.mode == "border") return clamp(b, p, 0, static_cast<double>(size - 1));
  if (outside.mode == "reflection") return reflect(b, p, outside.low(), outside.high(size));
  return p;
}

// A neighbour along one dimension: its position, an integer, and its weight; a weight of zero where it lies outside,
// and does not exist (absent: it does).
struct Neighbour {
  Var at, weight, exists;
};

Neighbour neighbour(Builder& b, const Var& at, const Var& weight, int64_t size, const Outside& outside) {
  double last = static_cast<double>(size - 1);
  if (outside.mode != "zeros") return {clamp(b, b.unary("round", inside(b, at, size, outside)), 0, last), weight, {}};
  Var exists = b.emit("logical_and", {at >= 0.0, at <= last});
  return {clamp(b, at, 0, last), b.select(exists, weight, b.like(weight, 0)), exists};
}

// Keys' kernel with a = -0.75 at the four neighbours of a point that lies t after the second one.
std::vector<Var> cubic_weights(const Var& t) {
  constexpr double a = -0.75;
  auto near = [&](const Var& d) { return ((a + 2) * d - (a + 3)) * d * d + 1.0; };
  auto far = [&](const Var& d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  Var rest = 1.0 - t;
  return {far(t + 1.0), near(t), near(rest), far(rest + 1.0)};
}

std::vector<Neighbour> neighbours(Builder& b, Var p, int64_t size, const std::string& mode, const Outside& outside) {
  std::vector<Neighbour> found;
  if (mode == "nearest") {
    p = b.unary("round", p);
    found.push_back(neighbour(b, inside(b, p, size, outside), p * 0.0 + 1.0, size, outside));
    return found;
  }
  p = inside(b, p, size, outside);
  Var below = b.unary("floor", p), t = p - below;
  if (mode == "linear") {
    found.push_back(neighbour(b, below, 1.0 - t, size, outside));
    found.push_back(neighbour(b, below + 1.0, t, size, outside));
    return found;
  }
  std::vector<Var> weights = cubic_weights(t);
  for (int k = 0; k < 4; ++k)
    found.push_back(neighbour(b, below + static_cast<double>(k - 1), weights[k], size, outside));
  return found;
}

}  // namespace

// x[n,c,spatial...] read at grid[n,out...,dims], whose numbers run from -1 to 1 over each dimension, the last one
// first.
EPL_ONNX_OP(GridSample) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    const DType as = i.in(0).dtype();
    const Var x = is_float(as) ? i.in(0) : b.cast(i.in(0), real_type(as, i.in(1).dtype()));
    // Positions need more digits than 16 bits have, and weights those of what they weigh.
    const Var grid = b.cast(i.in(1), at_least_f32(real_type(i.in(1).dtype(), x.dtype())));
    int dims = x.ndim() - 2;
    if (dims < 1 || dims > 3 || grid.ndim() != dims + 2 || grid.dim(-1) != dims || grid.dim(0) != x.dim(0)) {
      return i.fail(cat("a grid of ", grid.type().text(), " does not fit ", x.type().text()));
    }
    std::string mode = i.choice("mode", {"linear", "nearest", "cubic", "bilinear", "bicubic"});
    if (mode == "bilinear") mode = "linear";
    if (mode == "bicubic") mode = "cubic";
    Outside outside{i.choice("padding_mode", {"zeros", "border", "reflection"}), i.integer("align_corners", 0) != 0};
    Shape out = grid.shape();
    out.pop_back();
    const int64_t n = x.dim(0), points = n > 0 ? element_count(out) / n : 0;
    Shape strides = row_major_strides(Shape(x.shape().begin() + 2, x.shape().end()));
    Var flat = b.reshape(x, {n, x.dim(1), element_count(Shape(x.shape().begin() + 2, x.shape().end()))});
    // Sums over the neighbours along one dimension after the other: partial positions and products of weights.
    std::vector<Neighbour> corners = {{}};
    for (int d = 0; d < dims; ++d) {
      int64_t size = x.dim(d + 2), column = dims - 1 - d;
      Var g = b.reshape(b.slice(grid, {dims + 1}, {column}, {column + 1}), {n, 1, points});
      Var p = outside.corners ? (g + 1.0) * (static_cast<double>(size - 1) / 2)
                              : ((g + 1.0) * static_cast<double>(size) - 1.0) * 0.5;
      std::vector<Neighbour> next;
      for (const Neighbour& along : neighbours(b, p, size, mode, outside)) {
        for (const Neighbour& before : corners) {
          Var at = b.cast(along.at, DType::i64) * static_cast<double>(strides[d]);
          next.push_back({before.at ? before.at + at : at, before.weight ? before.weight * along.weight : along.weight,
                          before.exists ? b.emit("logical_and", {before.exists, along.exists}) : along.exists});
        }
      }
      corners = std::move(next);
    }
    Var total;
    for (const Neighbour& corner : corners) {
      Var value = b.emit("gather_elements", {flat, b.broadcast_to(corner.at, {n, x.dim(1), points})}, {{"axis", 2}});
      // 0 times an infinity at the border would be NaN.
      if (corner.exists) value = b.select(corner.exists, value, b.like(value, 0));
      Var part = value * b.cast(corner.weight, x.dtype());
      total = total ? total + part : part;
    }
    Shape shape = {n, x.dim(1)};
    shape.insert(shape.end(), out.begin() + 1, out.end());
    i.set(0, b.cast(b.reshape(total, shape), as));
  }};
}

// theta[n,dims,dims+1] times the positions of every pixel of an image of the given size.
EPL_ONNX_OP(AffineGrid) {
  return {.run = [](Import& i) {
    Var theta = i.in(0);
    Ints size = i.ints(1);
    const int64_t dims = static_cast<int64_t>(size.size()) - 2;
    if (dims < 1 || theta.ndim() != 3 || theta.dim(1) != dims || theta.dim(2) != dims + 1)
      return i.fail("theta and the size do not fit");
    Shape spatial(size.begin() + 2, size.end());
    int64_t points = 1;
    for (int64_t side : spatial) {
      if (side < 1 || side > (int64_t{1} << 24) / points) return i.fail(cat("a grid over an image of ", spatial));
      points *= side;
    }
    Shape strides = row_major_strides(spatial);
    const bool corners = i.integer("align_corners", 0) != 0;
    epl::Tensor base(TensorType{theta.dtype(), {points, dims + 1}});
    for (int64_t p = 0; p < points; ++p) {
      for (int64_t d = 0; d < dims; ++d) {
        const double at = static_cast<double>(p / strides[d] % spatial[d]), size = static_cast<double>(spatial[d]);
        base.set(p * (dims + 1) + dims - 1 - d,
                 corners ? (size > 1 ? 2 * at / (size - 1) - 1 : -1) : (2 * at + 1) / size - 1);
      }
      base.set(p * (dims + 1) + dims, 1);
    }
    Shape shape = {theta.dim(0)};
    shape.insert(shape.end(), spatial.begin(), spatial.end());
    shape.push_back(dims);
    i.set(0, i.b.reshape(i.b.matmul(i.b.constant(base), theta, false, true), shape));
  }};
}

namespace {

// a - b cos(2 pi k / n) + c cos(4 pi k / n), where n is the size, or one less for a window that is symmetric.
void cosine_window(Import& i, double a, double b, double c) {
  Ints size = i.ints(0);
  if (size.size() != 1 || size[0] < 0 || size[0] > (int64_t{1} << 24)) return i.fail("its size must be one number");
  auto dtype = dtype_of(static_cast<int32_t>(i.integer("output_datatype", 1)));
  if (!dtype.ok()) return i.fail(dtype.status());
  epl::Tensor window(TensorType{*dtype, {size[0]}});
  const double n = static_cast<double>(i.integer("periodic", 1) ? size[0] : size[0] - 1);
  for (int64_t k = 0; k < size[0]; ++k) {
    const double angle = n > 0 ? 2 * std::numbers::pi * static_cast<double>(k) / n : 0;
    window.set(k, a - b * std::cos(angle) + c * std::cos(2 * angle));
  }
  i.set_constant(0, std::move(window));
}

}  // namespace

EPL_ONNX_OP(HannWindow) {
  return {.run = [](Import& i) { cosine_window(i, 0.5, 0.5, 0); }};
}
EPL_ONNX_OP(HammingWindow) {
  return {.run = [](Import& i) { cosine_window(i, 25.0 / 46, 21.0 / 46, 0); }};
}
EPL_ONNX_OP(BlackmanWindow) {
  return {.run = [](Import& i) { cosine_window(i, 0.42, 0.5, 0.08); }};
}

}  // namespace epl::onnx
