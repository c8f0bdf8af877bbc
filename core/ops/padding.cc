// Padding by a constant or by elements of the operand itself, and its adjoint.
#include "core/base/shown.h"
#include "core/ops/common.h"

namespace epl {
using namespace ops;

namespace {
Result<Shape> padded_shape(const OpQuery& q, const Shape& shape, int sign) {
  const Ints &begin = q.attributes().ints("begin"), &end = q.attributes().ints("end");
  const std::string& mode = q.attributes().text("mode");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap")
    return misfit(q, "mode ", shown(mode, 200), " is not one of constant, reflect, edge, wrap");
  if (begin.size() != shape.size() || end.size() != shape.size())
    return misfit(q, "begin ", begin, " and end ", end, " need one number per dimension");
  Shape result = shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t both = 0;
    if (__builtin_add_overflow(begin[d], end[d], &both) ||
        (sign > 0 ? __builtin_add_overflow(shape[d], both, &result[d])
                  : __builtin_sub_overflow(shape[d], both, &result[d])))
      return misfit(q, "padding of ", begin[d], " and ", end[d], " is impossible in dimension ", d);
    const int64_t from = sign > 0 ? shape[d] : result[d];
    const int64_t reach = std::max(begin[d], end[d]);
    const bool fits = mode == "constant" || (mode == "edge" && (from > 0 || reach <= 0)) ||
                      (mode == "reflect" && reach < from) || (mode == "wrap" && reach <= from);
    if (result[d] < 0 || from < 0 || !fits || (mode != "constant" && std::min(begin[d], end[d]) < 0))
      return misfit(q, mode, " padding of ", begin[d], " and ", end[d], " does not fit dimension ", d);
  }
  return result;
}

// Where element `index` of the padded dimension comes from, -1 for the constant.
int64_t pad_source(const std::string& mode, int64_t index, int64_t begin, int64_t size) {
  const int64_t i = index - begin;
  if (i >= 0 && i < size) return i;
  if (mode == "edge") return i < 0 ? 0 : size - 1;
  if (mode == "reflect") return i < 0 ? -i : 2 * (size - 1) - i;
  if (mode == "wrap") return i < 0 ? i + size : i - size;
  return -1;
}

// The linear index in the unpadded tensor, -1 for the constant.
int64_t pad_source(const Attributes& attributes, const Shape& shape, const Dims& index) {
  int64_t linear = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t i = pad_source(attributes.text("mode"), index[d], attributes.ints("begin")[d], shape[d]);
    if (i < 0) return -1;
    linear = linear * shape[d] + i;
  }
  return linear;
}

Result<ShardingRule> pad_rule(const OpQuery& q) {
  const Ints &begin = q.attributes().ints("begin"), &end = q.attributes().ints("end");
  std::vector<bool> unshardable(begin.size());
  for (size_t d = 0; d < unshardable.size(); ++d) unshardable[d] = begin[d] != 0 || end[d] != 0;
  return aligned_rule(q, unshardable);
}
}  // namespace

EPL_OP(pad) {
  return {
      .doc =
          "x with begin[d] and end[d] elements added along each dimension d: the scalar `value` (default 0), or by "
          "`mode` reflect, edge or wrap; constant padding may be negative, which crops.",
      .signature = "x, value? -> y",
      .attributes = {{"mode", "constant"}, {"begin", Ints{}, true}, {"end", Ints{}, true}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        EPL_TRY(same_dtypes(q));
        if (q.has(1) && q.in(1).elements() != 1) return misfit(q, "value must be a scalar");
        EPL_ASSIGN(Shape shape, padded_shape(q, q.in(0).shape, 1));
        return OutputTypes{{q.in(0).dtype, shape}};
      },
      .reference =
          [](const Reference& r) {
            for_each_index(r.out(0).shape(), [&](int64_t o, const Dims& index) {
              const int64_t i = pad_source(r.attributes(), r.in(0).shape(), index);
              if (i >= 0)
                copy_element(r.in(0), i, r.out(0), o);
              else if (r.has(1))
                copy_element(r.in(1), 0, r.out(0), o);
            });
          },
      .gradient = [](Grad& g) { g.set(0, g.b.emit("pad_grad", {g.upstream(0)}, g.attributes())); },
      .no_gradient_inputs = {1},
      .sharding_of = pad_rule,
      .samples = {"f32[4,6] {begin=[0,2],end=[0,1]}", "f32[4,6], f32[] {begin=[1,0],end=[0,0]}",
                  "f32[4,6] {begin=[0,-1],end=[0,2]}", "f32[2,4,5] {mode=\"reflect\",begin=[0,2,1],end=[0,3,2]}",
                  "f32[4,5] {mode=\"edge\",begin=[0,2],end=[0,3]}", "f32[4,5] {mode=\"wrap\",begin=[0,2],end=[0,5]}"}};
}

EPL_OP(pad_grad) {
  return {.doc = "The adjoint of pad with the same attributes: every element of dy added where it came from.",
          .signature = "dy -> dx",
          .attributes = {{"mode", "constant"}, {"begin", Ints{}, true}, {"end", Ints{}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(Shape shape, padded_shape(q, q.in(0).shape, -1));
            return OutputTypes{{q.in(0).dtype, shape}};
          },
          .reference =
              [](const Reference& r) {
                const std::span<double> sums = r.room<double>(r.out(0).elements());
                for_each_index(r.in(0).shape(), [&](int64_t o, const Dims& index) {
                  const int64_t i = pad_source(r.attributes(), r.out(0).shape(), index);
                  if (i >= 0) sums[i] += r.in(0).get(o);
                });
                for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, sums[i]);
              },
          .room = room_for_sums,
          .gradient = [](Grad& g) { g.set(0, g.b.emit("pad", {g.upstream(0)}, g.attributes())); },
          .sharding_of = pad_rule,
          .samples = {"f32[4,9] {begin=[0,2],end=[0,1]}", "f32[4,7] {begin=[0,-1],end=[0,2]}",
                      "f32[2,9,8] {mode=\"reflect\",begin=[0,2,1],end=[0,3,2]}",
                      "f32[4,10] {mode=\"edge\",begin=[0,2],end=[0,3]}",
                      "f32[4,12] {mode=\"wrap\",begin=[0,2],end=[0,5]}"}};
}

}  // namespace epl
