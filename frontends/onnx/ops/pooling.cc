// Pooling, by windows and over all of space.
#include <algorithm>

#include "core/ir/op.h"
#include "core/ir/sums.h"
#include "frontends/onnx/ops/axes.h"
#include "frontends/onnx/ops/window.h"

namespace epl::onnx {
namespace {

Attributes pool_attributes(Import& i) {
  Ints kernel = i.ints("kernel_shape", {});
  Ints strides = i.ints("strides", Ints(kernel.size(), 1)), dilations = i.ints("dilations", Ints(kernel.size(), 1));
  if (static_cast<int>(kernel.size()) + 2 != i.type(0).ndim() || strides.size() != kernel.size() ||
      dilations.size() != kernel.size()) {
    i.fail("kernel, strides and input do not fit");
    return {};
  }
  return {{"kernel", kernel},
          {"strides", strides},
          {"pads", window_pads(i, i.type(0).shape, kernel, strides, dilations)},
          {"dilations", dilations},
          {"ceil", i.integer("ceil_mode", 0) != 0}};
}

}  // namespace

EPL_ONNX_OP(GlobalAveragePool) {
  return {.run = [](Import& i) { i.set(0, i.b.mean(i.in(0), spatial_axes(i.type(0).ndim()), true)); }};
}
EPL_ONNX_OP(GlobalMaxPool) {
  return {.run = [](Import& i) { i.set(0, i.b.max_along(i.in(0), spatial_axes(i.type(0).ndim()), true)); }};
}
EPL_ONNX_OP(GlobalLpPool) {
  return {.run = [](Import& i) {
    Builder& b = i.b;
    double p = static_cast<double>(i.integer("p", 2));
    i.set(0, in_type_of_sums(b, i.in(0), [&](const Var& given) {
            Var x = b.unary("abs", given);
            return b.pow(b.sum(b.pow(x, b.like(x, p)), spatial_axes(x.ndim()), true), b.like(x, 1 / p));
          }));
  }};
}

EPL_ONNX_OP(MaxPool) {
  return {.run = [](Import& i) {
    auto results = i.b.emit_all("max_pool", {i.in(0)}, pool_attributes(i));
    i.set(0, results[0]);
    if (!i.wants(1)) return;
    if (i.integer("storage_order", 0) != 0)
      return i.fail(
          unsupported("it counts positions by columns (storage_order 1), which is not supported; by rows (0) it is"));
    i.set(1, i.b.cast(results[1], DType::i64));
  }};
}
EPL_ONNX_OP(AveragePool) {
  return {.run = [](Import& i) {
    Attributes attributes = pool_attributes(i);
    attributes.set("count_include_pad", i.integer("count_include_pad", 0) != 0);
    i.set(0, i.b.emit("avg_pool", {i.in(0)}, attributes));
  }};
}

EPL_ONNX_OP(LpPool) {
  return {.run = [](Import& i) {
    Attributes attributes = pool_attributes(i);
    if (!i.b.status().ok()) return;
    double p = static_cast<double>(i.integer("p", 2)), size = 1;
    for (int64_t k : attributes.ints("kernel")) size *= static_cast<double>(k);
    attributes.set("count_include_pad", true);
    i.set(0, in_type_of_sums(i.b, i.in(0), [&](const Var& given) {
            Var x = i.b.unary("abs", given);
            Var mean = i.b.emit("avg_pool", {p == 2 ? x * x : i.b.pow(x, i.b.like(x, p))}, attributes);
            return i.b.pow(mean * size, i.b.like(x, 1 / p));
          }));
  }};
}

}  // namespace epl::onnx
