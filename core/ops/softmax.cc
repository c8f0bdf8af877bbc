// Softmax and its logarithm along one axis, with gradients as ops of their own.
#include "core/ir/partition_rule.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
Result<OutputTypes> axis_infer(const OpQuery& q) {
  EPL_TRY(same_dtypes(q, true));
  EPL_TRY(checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()).status());
  EPL_TRY(expect_shape(q, 1, q.in(0).shape, "y"));
  return same_as_first(q);
}
double several_per_element(const OpQuery& q) { return 8.0 * static_cast<double>(q.in(0).elements()); }
// Cut along the axis itself.
PartitionRule along_axis() {
  return {.ties = [](Ties& t) {
    const int axis = t.q.axis("axis", t.q.in(0).ndim()), factor = t.factor(t.q.in(0).shape[static_cast<size_t>(axis)]);
    for (int i = 0; i < t.q.inputs(); ++i) t.input(i, axis, factor);
    t.output(0, axis, factor);
  }};
}
std::vector<std::string> one(const char* attributes = "") {
  return {"f32[4,7]", "f32[4,3,5] {axis=1}", "f32[6,4] {axis=0}", "bf16[2,3,5]", attributes};
}
}  // namespace

EPL_OP(softmax) {
  return {.doc = "y = exp(x) / sum(exp(x)) along `axis`.",
          .signature = "x -> y",
          .attributes = {{"axis", int64_t{-1}}},
          .infer = axis_infer,
          .body =
              [](Body& b) {
                const Var x = b.in(0);
                const int64_t axis = b.axis("axis", x.ndim());
                const Var e = b.b.exp(x - b.b.max_along(x, {axis}));
                b.set(0, e / b.b.sum(e, {axis}));
              },
          .gradient = [](Grad& g) { g.set(0, g.b.emit("softmax_grad", {g.upstream(0), g.out(0)}, g.attributes())); },
          .sharding_of = unshardable_axis_rule,
          .flops = several_per_element,
          .written_over = 0,
          .probabilities = true,
          .samples = one("f64[3,4] {axis=-1}")};
}

EPL_PARTITION(softmax) { return along_axis(); }

EPL_OP(softmax_grad) {
  return {.doc = "Gradient of softmax from its result: dx = y * (dy - sum(y * dy)) along `axis`.",
          .signature = "dy, y -> dx",
          .attributes = {{"axis", int64_t{-1}}},
          .infer = axis_infer,
          .body =
              [](Body& b) {
                const Var dy = b.in(0), y = b.in(1);
                b.set(0, y * (dy - b.b.sum(y * dy, {b.axis("axis", y.ndim())})));
              },
          .sharding_of = unshardable_axis_rule,
          .flops = several_per_element,
          .written_over = 0,
          .samples = {"f32[4,7], f32[4,7]", "f32[4,3,5], f32[4,3,5] {axis=1}"}};
}

EPL_PARTITION(softmax_grad) { return along_axis(); }

EPL_OP(log_softmax) {
  return {
      .doc = "y = x - log(sum(exp(x))) along `axis`.",
      .signature = "x -> y",
      .attributes = {{"axis", int64_t{-1}}},
      .infer = axis_infer,
      .body =
          [](Body& b) {
            const Var x = b.in(0);
            const int64_t axis = b.axis("axis", x.ndim());
            const Var shifted = x - b.b.max_along(x, {axis});
            b.set(0, shifted - b.b.log(b.b.sum(b.b.exp(shifted), {axis})));
          },
      .gradient = [](Grad& g) { g.set(0, g.b.emit("log_softmax_grad", {g.upstream(0), g.out(0)}, g.attributes())); },
      .sharding_of = unshardable_axis_rule,
      .flops = several_per_element,
      .written_over = 0,
      .probabilities = true,
      .samples = one("f64[3,4] {axis=-1}")};
}

EPL_PARTITION(log_softmax) { return along_axis(); }

EPL_OP(log_softmax_grad) {
  return {.doc = "Gradient of log_softmax from its result: dx = dy - exp(y) * sum(dy) along `axis`.",
          .signature = "dy, y -> dx",
          .attributes = {{"axis", int64_t{-1}}},
          .infer = axis_infer,
          .body =
              [](Body& b) {
                const Var dy = b.in(0), y = b.in(1);
                b.set(0, dy - b.b.exp(y) * b.b.sum(dy, {b.axis("axis", y.ndim())}));
              },
          .sharding_of = unshardable_axis_rule,
          .flops = several_per_element,
          .written_over = 0,
          .samples = {"f32[4,7], f32[4,7]", "f32[4,3,5], f32[4,3,5] {axis=1}"}};
}

EPL_PARTITION(log_softmax_grad) { return along_axis(); }

}  // namespace epl
