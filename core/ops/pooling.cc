// Pools over the spatial dimensions of x [batch, channels, spatial...]. A global pool is a sum along the spatial axes.
#include <cmath>
#include <limits>

#include "core/ir/partition_rule.h"
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

// Of max_pool_grad, which needs no window to compute.
std::vector<Option> scattered_attributes() {
  std::vector<Option> specs = pool_attributes(false, true);
  specs[0] = {"kernel", Ints{}};
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

// x and y of a pool, and of its gradient.
struct PoolTypes {
  const Shape &x, &y;
};
PoolTypes pool_types(const OpQuery& q) { return {q.in(0).shape, q.out(0).shape}; }
PoolTypes gradient_types(const OpQuery& q) { return {q.out(0).shape, q.in(0).shape}; }

template <PoolTypes (*types_of)(const OpQuery&)> void tie_windows(Ties& t) {
  if (t.q.attributes().ints("kernel").empty() || !is_float(t.q.in(0).dtype)) return;
  const PoolTypes types = types_of(t.q);
  for (int d = 2; d < static_cast<int>(types.x.size()); ++d) {
    const int f = t.window(d, types.x[static_cast<size_t>(d)], types.y[static_cast<size_t>(d)]);
    for (int i = 0; f >= 0 && i < t.q.inputs(); ++i) t.input(i, d, f);
    for (int o = 0; f >= 0 && o < t.q.outputs(); ++o) t.output(o, d, f);
  }
}

Window window_of_pool(const OpQuery& q) { return window_of(q.attributes(), q.attributes().ints("kernel")); }
template <PoolTypes (*types_of)(const OpQuery&)>
std::optional<Halo> elements_of_shards(const OpQuery& q, int dim, int64_t shards) {
  const PoolTypes types = types_of(q);
  const auto d = static_cast<size_t>(dim);
  return elements_of_windows(window_of_pool(q), d - 2, types.x[d], types.y[d], shards, q.attributes().flag("ceil"));
}
std::optional<Halo> pools_of_shards(const OpQuery& q, int dim, int64_t shards) {
  const auto d = static_cast<size_t>(dim);
  return windows_of_elements(window_of_pool(q), d - 2, q.out(0).shape[d], shards, q.attributes().flag("ceil"));
}

// Where padding takes part in a window of a dilated kernel, its index is no neighbour's.
bool every_window_has_elements(const Window& w) {
  for (size_t d = 0; d < w.dims(); ++d) {
    if (w.dilations[d] > 1) return false;
  }
  return true;
}
// Whether all averages along a dimension divide by the same number.
bool counts_alike(const OpQuery& q, const PoolTypes& types, int dim) {
  const Window w = window_of_pool(q);
  const auto d = static_cast<size_t>(dim);
  const auto padded = [&](size_t i) { return w.begin[i] > 0 || w.end[i] > 0; };
  bool pads = false;
  for (size_t i = 0; i < w.dims(); ++i) pads = pads || padded(i);
  const int64_t reach = (types.y[d] - 1) * w.strides[d - 2] + (w.kernel[d - 2] - 1) * w.dilations[d - 2] + 1;
  return (!pads || q.attributes().flag("count_include_pad")) && reach <= types.x[d] + w.begin[d - 2] + w.end[d - 2];
}
// The padding along the cut dimension is an operand's elements then, and so counts.
void count_padding(Attributes& attributes) { attributes.set("count_include_pad", true); }

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
                Attributes attributes = g.attributes();
                attributes.set("shape", g.in(0).shape());
                g.set(0, g.b.emit("max_pool_grad", {g.upstream(0), saved_output(g, 1)}, attributes));
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
          "dimensions; an index outside adds nothing. The window, if `kernel` tells, says where indices can lie.",
      .signature = "dy, indices -> dx",
      .attributes = scattered_attributes(),
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

EPL_PARTITION(max_pool) {
  return {.ties = tie_windows<pool_types>,
          .halo = {.of = [](const OpQuery& q, int dim, int64_t shards) -> std::optional<Halo> {
                     if (!every_window_has_elements(window_of_pool(q))) return std::nullopt;
                     return elements_of_shards<pool_types>(q, dim, shards);
                   },
                   .operands = {0},
                   .lowest = true,
                   .numbers_result = 1}};
}

EPL_PARTITION(max_pool_grad) {
  return {.ties = tie_windows<gradient_types>,
          .halo = {.of = pools_of_shards, .operands = {0, 1}, .numbers_operand = 1}};
}

EPL_PARTITION(avg_pool) {
  return {.ties = tie_windows<pool_types>,
          .halo = {.of = [](const OpQuery& q, int dim, int64_t shards) -> std::optional<Halo> {
                     if (!counts_alike(q, pool_types(q), dim)) return std::nullopt;
                     return elements_of_shards<pool_types>(q, dim, shards);
                   },
                   .operands = {0},
                   .adapt = count_padding}};
}

EPL_PARTITION(avg_pool_grad) {
  return {.ties = tie_windows<gradient_types>,
          .halo = {.of = [](const OpQuery& q, int dim, int64_t shards) -> std::optional<Halo> {
                     if (!counts_alike(q, gradient_types(q), dim)) return std::nullopt;
                     return pools_of_shards(q, dim, shards);
                   },
                   .operands = {0},
                   .adapt = count_padding}};
}

}  // namespace epl
