// What guards a step: whether there is a NaN or an infinity in tensors that are about to change the state.
#include <cmath>

#include "core/ops/common.h"

namespace epl {
using namespace ops;

EPL_OP(first_not_finite) {
  return {
      .doc =
          "The number (i64[]) of the first operand that holds a NaN or an infinity, -1 if none does; operands may "
          "have any shapes and float types, and may be absent. If `counted`, the last operand says how much counts: "
          "it is not looked at so, and where it is 0 the number is 0.",
      .signature = "x* -> index",
      .attributes = {{"counted", false}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        for (int i = 0; i < q.inputs(); ++i)
          if (q.has(i) && !is_float(q.in(i).dtype)) return misfit(q, "operand ", i, " is not floating-point");
        const int last = q.inputs() - 1;
        if (q.attributes().flag("counted") && (last < 0 || (q.has(last) && q.in(last).elements() != 1)))
          return misfit(q, "what counts is not one number");
        return OutputTypes{{DType::i64, {}}};
      },
      .reference =
          [](const Reference& r) {
            const bool counted = r.attributes().flag("counted");
            const int checked = r.query().inputs() - (counted ? 1 : 0);
            if (counted && r.query().has(checked) && r.in(checked).get(0) == 0) return r.out(0).set_int(0, 0);
            for (int i = 0; i < checked; ++i)
              for (int64_t k = 0; r.query().has(i) && k < r.in(i).elements(); ++k)
                if (!std::isfinite(r.in(i).get(k))) return r.out(0).set_int(0, i);
            r.out(0).set_int(0, -1);
          },
      .no_gradient = "a position is an integer",
      .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> { return RuleWriter(q).done(); },
      .flops =
          [](const OpQuery& q) {
            double elements = 0;
            for (int i = 0; i < q.inputs(); ++i)
              if (q.has(i)) elements += static_cast<double>(q.in(i).elements());
            return elements;
          },
      .takes_any_operands = true,
      .samples = {"f32[4,7], f64[3], f32[]", "f32[0], bf16[2,3]", "f32[4], f32[3], f32[] {counted=true}"}};
}

}  // namespace epl
