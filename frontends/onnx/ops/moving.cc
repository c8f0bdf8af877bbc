// Operators that lay elements out anew: padding, tiling, depth and space, sequences.
#include <algorithm>

#include "core/ir/op.h"
#include "frontends/onnx/onnx_op.h"
#include "frontends/onnx/ops/axes.h"

namespace epl::onnx {
namespace {

// `value`, a scalar or empty, fills what is new.
void pad(Import& i, const Ints& pads, Ints axes, const Var& value, const std::string& mode) {
  Var x = i.in(0);
  axes = i.axes(std::move(axes), x.ndim());
  if (pads.size() != 2 * axes.size()) return i.fail(cat("pads ", pads, " do not fit the axes ", axes));
  Ints begin(x.ndim(), 0), end(x.ndim(), 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    begin[axes[k]] = pads[k];
    end[axes[k]] = pads[k + axes.size()];
  }
  std::vector<Var> operands = {x};
  if (value) operands.push_back(value);
  i.set(0, i.b.emit("pad", operands, {{"mode", mode}, {"begin", begin}, {"end", end}}));
}

}  // namespace

EPL_ONNX_OP(Pad) {
  return {.run = [](Import& i) {
    Var value = i.has_attribute("value") ? i.b.like(i.in(0), i.number("value", 0)) : Var();
    pad(i, i.ints("pads", {}), all_axes(i.type(0).ndim()), value, i.choice("mode", {"constant", "edge", "reflect"}));
  }};
}
EPL_ONNX_OP(Pad, 11) {
  return {.run = [](Import& i) {
    Var value = i.has(2) && i.type(2).elements() == 1 ? i.b.reshape(i.in(2), {}) : Var();
    pad(i, i.ints(1), i.has(3) ? i.ints(3) : all_axes(i.type(0).ndim()), value,
        i.choice("mode", {"constant", "edge", "reflect", "wrap"}));
  }};
}

EPL_ONNX_OP(Tile) {
  return {.run = [](Import& i) { i.set(0, i.b.emit("tile", {i.in(0)}, {{"repeats", i.ints(1)}})); }};
}

EPL_ONNX_OP(DepthToSpace) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    int64_t s = i.integer("blocksize", 0);
    if (x.ndim() != 4 || s < 1 || s > 65536 || x.dim(1) % (s * s) != 0)
      return i.fail(cat("blocks of ", s, " do not fit ", x.type().text()));
    int64_t n = x.dim(0), c = x.dim(1) / (s * s), h = x.dim(2), w = x.dim(3);
    bool depth_first = i.choice("mode", {"DCR", "CRD"}) == "DCR";
    Var parts = i.b.reshape(x, depth_first ? Shape{n, s, s, c, h, w} : Shape{n, c, s, s, h, w});
    i.set(0, i.b.reshape(i.b.transpose(parts, depth_first ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3}),
                         {n, c, h * s, w * s}));
  }};
}

EPL_ONNX_OP(SpaceToDepth) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    int64_t s = i.integer("blocksize", 0);
    if (x.ndim() != 4 || s < 1 || s > 65536 || x.dim(2) % s != 0 || x.dim(3) % s != 0)
      return i.fail(cat("blocks of ", s, " do not fit ", x.type().text()));
    int64_t n = x.dim(0), c = x.dim(1), h = x.dim(2) / s, w = x.dim(3) / s;
    bool depth_first = i.choice("mode", {"DCR", "CRD"}) == "DCR";
    Var parts = i.b.transpose(i.b.reshape(x, {n, c, h, s, w, s}),
                              depth_first ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4});
    i.set(0, i.b.reshape(parts, {n, c * s * s, h, w}));
  }};
}

// Cut or padded around the middle; the odd element goes to the end.
EPL_ONNX_OP(CenterCropPad) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    Ints sizes = i.ints(1), axes = i.axes(i.ints("axes", all_axes(x.ndim())), x.ndim()), begin(x.ndim(), 0),
         end(x.ndim(), 0);
    if (sizes.size() != axes.size()) return i.fail(cat("sizes ", sizes, " do not fit the axes ", axes));
    for (size_t k = 0; k < axes.size(); ++k) {
      int64_t d = axes[k], more = sizes[k] - x.dim(static_cast<int>(d));
      begin[d] = more >= 0 ? more / 2 : -(-more / 2);
      end[d] = more - begin[d];
    }
    i.set(0, i.b.emit("pad", {x}, {{"mode", std::string("constant")}, {"begin", begin}, {"end", end}}));
  }};
}

// The first elements along the time axis in reverse, as many as each sample is long.
EPL_ONNX_OP(ReverseSequence) {
  return {.run = [](Import& i) {
    Var x = i.in(0);
    Ints lengths = i.ints(1);
    int64_t time = i.axis("time_axis", 0, 2), batch = i.axis("batch_axis", 1, 2);
    if (x.ndim() < 2 || time == batch || static_cast<int64_t>(lengths.size()) != x.dim(static_cast<int>(batch))) {
      return i.fail("lengths, axes and operand do not fit");
    }
    Shape index_shape = x.shape();
    epl::Tensor indices({DType::i64, index_shape});
    Shape strides = row_major_strides(index_shape);
    for (int64_t k = 0; k < indices.elements(); ++k) {
      int64_t t = k / strides[time] % index_shape[time], length = lengths[k / strides[batch] % index_shape[batch]];
      indices.set_int(k, t < length ? length - 1 - t : t);
    }
    i.set(0, i.b.emit("gather_elements", {x, i.b.constant(indices)}, {{"axis", time}}));
  }};
}

}  // namespace epl::onnx
