// Random ops. A draw is keyed by (seed, step, stable node name) and counted by the global logical element, so it does
// not depend on how the work is cut.
#include "core/base/philox.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

EPL_OP(dropout) {
  return {.doc =
              "y = x / (1 - ratio) where kept, else 0; each element is dropped with probability `ratio`. mask (bool) "
              "says which "
              "were kept: element i where philox_uniform(key, i) >= ratio. Elements are counted over the global batch, "
              "where x is not the full tensor.",
          .signature = "x -> y, mask",
          .attributes = {{"ratio", 0.5}, {std::string(draws_in_full), false}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(same_dtypes(q, true));
            const double ratio = q.attributes().number("ratio");
            if (!(ratio >= 0 && ratio < 1)) return misfit(q, "ratio ", ratio, " is outside [0, 1)");
            return OutputTypes{q.in(0), {DType::boolean, q.in(0).shape}};
          },
          .reference =
              [](const Reference& r) {
                const double ratio = r.attributes().number("ratio"), scale = 1 / (1 - ratio);
                for (int64_t i = 0; i < r.in(0).elements(); ++i) {
                  const bool keep = philox_uniform(r.seed(), static_cast<uint64_t>(r.element(i))) >= ratio;
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

}  // namespace epl
