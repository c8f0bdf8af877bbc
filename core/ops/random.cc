// Random ops. A draw is keyed by (seed, step, stable node name) and counted by the global logical element, so it does
// not depend on how the work is cut.
#include <algorithm>

#include "core/base/philox.h"
#include "core/ir/partition_rule.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

EPL_OP(dropout) {
  return {
      .doc =
          "y = x / (1 - ratio) where kept, else 0; each element is dropped with probability `ratio`. mask (bool) "
          "says which "
          "were kept: element i where philox_uniform(key, i) >= ratio. Elements are counted over the global batch, "
          "where x is not the full tensor. Of a shard, the first element is number first, and others follow in runs of "
          "`run`, of which each begins `stride` behind the one before.",
      .signature = "x, first? -> y, mask",
      .attributes = {{"ratio", 0.5}, {std::string(draws_in_full), false}, {"run", int64_t{0}}, {"stride", int64_t{0}}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        if (!is_float(q.in(0).dtype)) return misfit(q, "x is ", q.in(0).text());
        if (q.has(1) && q.in(1) != TensorType{DType::i64, {1}}) return misfit(q, "first is ", q.in(1).text());
        if (q.has(1) && q.attributes().integer("run") < 1) return misfit(q, "runs of no elements");
        const double ratio = q.attributes().number("ratio");
        if (!(ratio >= 0 && ratio < 1)) return misfit(q, "ratio ", ratio, " is outside [0, 1)");
        return OutputTypes{q.in(0), {DType::boolean, q.in(0).shape}};
      },
      .reference =
          [](const Reference& r) {
            const double ratio = r.attributes().number("ratio"), scale = 1 / (1 - ratio);
            const int64_t run = r.attributes().integer("run"), stride = r.attributes().integer("stride");
            for (int64_t i = 0; i < r.in(0).elements(); ++i) {
              int64_t element = r.element(i);
              if (r.has(1)) element = r.in(1).get_int(0) + element / run * stride + element % run;
              const bool keep = philox_uniform(r.seed(), static_cast<uint64_t>(element)) >= ratio;
              r.out(0).set(i, keep ? r.in(0).get(i) * scale : 0.0);
              if (r.has_output(1)) r.out(1).set_int(i, keep);
            }
          },
      .gradient =
          [](Grad& g) {
            if (!g.out(1)) {
              g.b.fail(invalid("dropout: its output mask is needed by its gradient"));
              return;
            }
            const Var scaled = g.upstream(0) * (1 / (1 - g.attributes().number("ratio")));
            g.set(0, g.b.select(g.out(1), scaled, g.b.like(scaled, 0)));
          },
      .no_gradient_inputs = {1},
      // Only a cut along the first dimension that has more than one element keeps local elements consecutive.
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
        const Shape& shape = q.in(0).shape;
        std::vector<bool> unshardable(shape.size(), true);
        for (size_t d = 0; d < shape.size() && !q.attributes().flag(draws_in_full); ++d) {
          unshardable[d] = false;
          if (shape[d] != 1) break;
        }
        return aligned_rule(q, unshardable);
      },
      .random = true,
      .samples = {"f32[4,7]", "f32[4,3,5] {ratio=0.1}", "f32[1,6,2] {ratio=0.25}"}};
}

EPL_PARTITION(dropout) {
  return {.ties =
              [](Ties& t) {
                const Shape& shape = t.q.in(0).shape;
                const auto first = std::ranges::find_if(shape, [](int64_t size) { return size != 1; });
                for (auto d = static_cast<int>(first - shape.begin()) + 1; d < static_cast<int>(shape.size()); ++d) {
                  const int factor = t.factor(shape[static_cast<size_t>(d)]);
                  t.input(0, d, factor);
                  for (int o = 0; o < 2; ++o) t.output(o, d, factor);
                }
              },
          .counts = 1};
}

}  // namespace epl
