// Pools over the spatial dimensions of x [batch, channels, spatial...]. A global pool is a sum along the spatial axes.
#include <cmath>
#include <limits>

#include "core/ops/window.h"

namespace epl {
using namespace ops;

namespace {
Result<OutputTypes> pooled_types(const OpQuery& q, const Shape& x, bool indices) {
  if (x.size() < 3) return misfit(q, "needs batch, channels and spatial dimensions");
  const Ints& kernel = q.attributes().ints("kernel");
  if (kernel.size() + 2 != x.size()) return misfit(q, "kernel ", kernel, " needs one size per spatial dimension");
  EPL_ASSIGN(const Window window, window_of(q, kernel));
  Shape y = {x[0], x[1]};
  for (size_t d = 0; d < kernel.size(); ++d) {
    y.push_back(window_output(window, d, x[d + 2], q.attributes().flag("ceil")));
    if (y.back() == 0) return misfit(q, "the window is larger than spatial dimension ", d);
    if (window.begin[d] >= (kernel[d] - 1) * window.dilations[d] + 1 ||
        window.end[d] >= (kernel[d] - 1) * window.dilations[d] + 1)
      return misfit(q, "pads must be smaller than the window");
  }
  OutputTypes types = {{q.in(0).dtype, y}};
  if (indices) types.push_back({DType::i32, y});
  return types;
}

std::vector<Option> pool_attributes(bool average, bool shape) {
  std::vector<Option> specs = {
      {"kernel", Ints{}, true}, {"strides", Ints{}}, {"pads", Ints{}}, {"dilations", Ints{}}, {"ceil", false}};
  if (average) specs.push_back({"count_include_pad", false});
  if (shape) specs.push_back({"shape", Ints{}, true});
  return specs;
}

// How many elements an average at `position` divides by: those inside, or also the padding that was asked for (what
// hangs over because of `ceil` never counts).
double average_count(const Window& w, std::span<const int64_t> size, const Dims& position, bool include_pad) {
  int64_t inside = 0;
  if (!include_pad) {
    for_each_tap(w, size, position, [&](int64_t, int64_t) { ++inside; });
    return static_cast<double>(inside);
  }
  Dims padded(size);
  Window shifted = w;
  for (size_t d = 0; d < size.size(); ++d) {
    padded[d] += w.begin[d] + w.end[d];
    shifted.begin[d] = 0;
  }
  for_each_tap(shifted, padded, position, [&](int64_t, int64_t) { ++inside; });
  return static_cast<double>(inside);
}

Result<ShardingRule> pool_rule(const OpQuery& q) {
  std::vector<bool> unshardable(q.in(0).ndim(), true);
  unshardable[0] = unshardable[1] = false;
  return aligned_rule(q, unshardable);
}
void local_shape(Attributes& attributes, const std::vector<TensorType>&, const std::vector<TensorType>& out) {
  attributes.set("shape", out[0].shape);
}
}  // namespace

EPL_OP(max_pool) {
  return {.doc =
              "Largest element of each window of x[b,c,spatial...]; indices (i32) hold its row-major position within "
              "the spatial "
              "dimensions, the first of equals.",
          .signature = "x -> y, indices?",
          .attributes = pool_attributes(false, false),
          .infer = [](const OpQuery& q) { return pooled_types(q, q.in(0).shape, true); },
          .reference =
              [](const Reference& r) {
                const Window w = window_of(r.attributes(), r.attributes().ints("kernel"));
                const std::span<const int64_t> in = spatial(r.in(0).shape()), out = spatial(r.out(0).shape());
                const int64_t planes = r.in(0).shape()[0] * r.in(0).shape()[1], in_n = product_of(in),
                              out_n = product_of(out);
                for (int64_t plane = 0; plane < planes; ++plane)
                  for_each_index(out, [&](int64_t at, const Dims& position) {
                    int64_t best = -1;
                    double largest = 0;
                    for_each_tap(w, in, position, [&](int64_t i, int64_t) {
                      const double value = r.in(0).get(plane * in_n + i);
                      if (best < 0 || value > largest || (std::isnan(value) && !std::isnan(largest)))
                        best = i, largest = value;
                    });
                    if (best < 0) {  // every tap of a dilated window fell into the padding
                      r.out(0).set(plane * out_n + at, -std::numeric_limits<double>::infinity());
                      best = 0;
                    } else {
                      copy_element(r.in(0), plane * in_n + best, r.out(0), plane * out_n + at);
                    }
                    if (r.has_output(1)) r.out(1).set_int(plane * out_n + at, best);
                  });
              },
          .gradient =
              [](Grad& g) {
                g.set(0, g.b.emit("max_pool_grad", {g.upstream(0), saved_output(g, 1)}, {{"shape", g.in(0).shape()}}));
              },
          .sharding_of = pool_rule,
          .flops =
              [](const OpQuery& q) {
                return static_cast<double>(q.out(0).elements() * element_count(q.attributes().ints("kernel")));
              },
          .samples = {"f32[4,2,6,6] {kernel=[2,2],strides=[2,2]}",
                      "f32[2,4,7,5] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1]}",
                      "f32[2,2,8] {kernel=[3],strides=[2],ceil=true}", "f32[2,2,7,7] {kernel=[2,2],dilations=[2,3]}"}};
}

EPL_OP(max_pool_grad) {
  return {
      .doc =
          "Gradient of max_pool's x, of `shape`: every element of dy[b,c,...] added at its index within the spatial "
          "dimensions; an index outside adds nothing.",
      .signature = "dy, indices -> dx",
      .attributes = {{"shape", Ints{}, true}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        const Shape& x = q.attributes().ints("shape");
        EPL_TRY(expect_shape(q, 1, q.in(0).shape, "indices"));
        if (q.in(1).dtype != DType::i32) return misfit(q, "indices must be i32");
        if (x.size() != q.in(0).shape.size() || x.size() < 3 || x[0] != q.in(0).shape[0] || x[1] != q.in(0).shape[1])
          return misfit(q, "shape ", x, " differs in batch or channels");
        return OutputTypes{{q.in(0).dtype, x}};
      },
      .reference =
          [](const Reference& r) {
            const int64_t planes = r.in(0).shape()[0] * r.in(0).shape()[1];
            const int64_t in_n = elements_from(r.out(0).shape(), 2), out_n = elements_from(r.in(0).shape(), 2);
            const std::span<double> sums = r.room<double>(r.out(0).elements());
            for (int64_t i = 0; i < planes * out_n; ++i) {
              const int64_t at = r.in(1).get_int(i);
              if (at >= 0 && at < in_n) sums[i / out_n * in_n + at] += r.in(0).get(i);
            }
            for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, sums[i]);
          },
      .room = room_for_sums,
      .no_gradient = "a gradient of a gradient is not built",
      .no_gradient_inputs = {1},
      .sharding_of = pool_rule,
      .localize = local_shape,
      .samples = {"f32[4,2,3,3], i32[4,2,3,3](0..36) {shape=[4,2,6,6]}"}};
}

EPL_OP(avg_pool) {
  return {.doc =
              "Mean of each window of x[b,c,spatial...]: over the elements inside x, or also over the padding if "
              "`count_include_pad`.",
          .signature = "x -> y",
          .attributes = pool_attributes(true, false),
          .infer = [](const OpQuery& q) { return pooled_types(q, q.in(0).shape, false); },
          .reference =
              [](const Reference& r) {
                const Window w = window_of(r.attributes(), r.attributes().ints("kernel"));
                const bool include = r.attributes().flag("count_include_pad");
                const std::span<const int64_t> in = spatial(r.in(0).shape()), out = spatial(r.out(0).shape());
                const int64_t planes = r.in(0).shape()[0] * r.in(0).shape()[1], in_n = product_of(in),
                              out_n = product_of(out);
                for (int64_t plane = 0; plane < planes; ++plane)
                  for_each_index(out, [&](int64_t at, const Dims& position) {
                    double sum = 0;
                    for_each_tap(w, in, position, [&](int64_t i, int64_t) { sum += r.in(0).get(plane * in_n + i); });
                    r.out(0).set(plane * out_n + at, sum / average_count(w, in, position, include));
                  });
              },
          .gradient =
              [](Grad& g) {
                Attributes attributes = g.attributes();
                attributes.set("shape", g.in(0).shape());
                g.set(0, g.b.emit("avg_pool_grad", {g.upstream(0)}, attributes));
              },
          .sharding_of = pool_rule,
          .flops =
              [](const OpQuery& q) {
                return static_cast<double>(q.out(0).elements() * element_count(q.attributes().ints("kernel")));
              },
          .samples = {"f32[4,2,6,6] {kernel=[2,2],strides=[2,2]}",
                      "f32[2,4,7,5] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1]}",
                      "f32[2,4,7,5] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1],count_include_pad=true}",
                      "f32[2,2,8] {kernel=[3],strides=[2],ceil=true,pads=[1,1],count_include_pad=true}"}};
}

EPL_OP(avg_pool_grad) {
  return {
      .doc = "Gradient of avg_pool's x, of `shape`: every element of dy[b,c,...] spread over its window.",
      .signature = "dy -> dx",
      .attributes = pool_attributes(true, true),
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        const Shape& x = q.attributes().ints("shape");
        EPL_ASSIGN(OutputTypes y, pooled_types(q, x, false));
        EPL_TRY(expect_shape(q, 0, y[0].shape, "dy"));
        return OutputTypes{{q.in(0).dtype, x}};
      },
      .reference =
          [](const Reference& r) {
            const Window w = window_of(r.attributes(), r.attributes().ints("kernel"));
            const bool include = r.attributes().flag("count_include_pad");
            const std::span<const int64_t> in = spatial(r.out(0).shape()), out = spatial(r.in(0).shape());
            const int64_t planes = r.in(0).shape()[0] * r.in(0).shape()[1], in_n = product_of(in),
                          out_n = product_of(out);
            const std::span<double> sums = r.room<double>(r.out(0).elements());
            for (int64_t plane = 0; plane < planes; ++plane)
              for_each_index(out, [&](int64_t at, const Dims& position) {
                const double share = r.in(0).get(plane * out_n + at) / average_count(w, in, position, include);
                for_each_tap(w, in, position, [&](int64_t i, int64_t) { sums[plane * in_n + i] += share; });
              });
            for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, sums[i]);
          },
      .room = room_for_sums,
      .gradient =
          [](Grad& g) {
            Attributes attributes = g.attributes();
            attributes.erase("shape");
            g.set(0, g.b.emit("avg_pool", {g.upstream(0)}, attributes));
          },
      .sharding_of = pool_rule,
      .localize = local_shape,
      .samples = {"f32[4,2,3,3] {kernel=[2,2],strides=[2,2],shape=[4,2,6,6]}",
                  "f32[2,4,4,3] {kernel=[3,3],strides=[2,2],pads=[1,1,1,1],count_include_pad=true,shape=[2,4,7,5]}"}};
}

}  // namespace epl
