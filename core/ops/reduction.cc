// Reductions along axes, and running sums. A mean is a sum times 1/n, written out where it is used.
#include <algorithm>
#include <limits>

#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

namespace {
Result<OutputTypes> reduced_type(const OpQuery& q) {
  const TensorType& x = q.in(0);
  if (x.dtype == DType::boolean) return misfit(q, "needs numbers");
  EPL_ASSIGN(auto mask, checked_axes(q, q.attributes().ints("axes"), x.ndim()));
  TensorType type{x.dtype, {}};
  for (int d = 0; d < x.ndim(); ++d) {
    if (!mask[d])
      type.shape.push_back(x.shape[d]);
    else if (q.attributes().flag("keep"))
      type.shape.push_back(1);
  }
  return OutputTypes{type};
}

Shape kept_shape(const Shape& shape, const std::vector<bool>& mask) {
  Shape kept = shape;
  for (size_t d = 0; d < shape.size(); ++d)
    if (mask[d]) kept[d] = 1;
  return kept;
}

// The elements that reduce to each output element, in logical order.
class ReductionRuns {
 public:
  explicit ReductionRuns(const Reference& r) : sizes_(r.in(0).shape()), reduced_(sizes_.size()) {
    for (int64_t axis : r.attributes().ints("axes")) reduced_[axis < 0 ? axis + sizes_.size() : axis] = 1;
    for (size_t d = 0; d < sizes_.size(); ++d) (reduced_[d] ? length_ : outputs_) *= sizes_[d];
  }
  int64_t outputs() const { return outputs_; }
  int64_t length() const { return length_; }
  // Element k of those that reduce to output o.
  int64_t at(int64_t o, int64_t k) const {
    int64_t linear = 0, stride = 1;
    for (size_t d = sizes_.size(); d-- > 0; stride *= sizes_[d]) {
      int64_t& rest = reduced_[d] ? k : o;
      linear += rest % sizes_[d] * stride;
      rest /= sizes_[d];
    }
    return linear;
  }

 private:
  Dims sizes_, reduced_;
  int64_t outputs_ = 1, length_ = 1;
};

template <bool maximum> void extremum_reference(const Reference& r) {
  const ReductionRuns runs(r);
  for (int64_t o = 0; o < runs.outputs(); ++o) {
    if (is_float(r.in(0).dtype())) {
      double best = maximum ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
      for (int64_t k = 0; k < runs.length(); ++k)
        best = evaluate_scalar(maximum ? ScalarOp::max : ScalarOp::min, best, r.in(0).get(runs.at(o, k)), 0.0);
      r.out(0).set(o, best);
    } else if (r.in(0).dtype() == DType::u64) {
      uint64_t best = maximum ? 0 : std::numeric_limits<uint64_t>::max();
      for (int64_t k = 0; k < runs.length(); ++k) {
        const auto value = static_cast<uint64_t>(r.in(0).get_int(runs.at(o, k)));
        best = maximum ? std::max(best, value) : std::min(best, value);
      }
      r.out(0).set_int(o, static_cast<int64_t>(best));
    } else {
      int64_t best = maximum ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
      for (int64_t k = 0; k < runs.length(); ++k) {
        const int64_t value = r.in(0).get_int(runs.at(o, k));
        best = maximum ? std::max(best, value) : std::min(best, value);
      }
      r.out(0).set_int(o, best);
    }
  }
}

// The output, or a gradient of its shape, with reduced dimensions of size one put back.
Var with_kept_dims(Grad& g, const Var& v) {
  return g.b.reshape(v, kept_shape(g.in(0).shape(), axis_mask(g.attributes().ints("axes"), g.in(0).ndim())));
}

// Ties share the gradient evenly, as PyTorch's amax does.
void extremum_reduction_gradient(Grad& g) {
  const Var x = g.in(0), dy = with_kept_dims(g, g.upstream(0));
  const Var hit = g.b.cast(g.b.equal(x, with_kept_dims(g, g.out(0))), x.dtype());
  const Var count = g.b.sum(hit, g.attributes().ints("axes"), true);
  g.set(0, hit * (dy / count));
}

// The product divided by an element is that of the others. A zero takes the product of the others as it is, which is
// zero as well where there is another zero.
void product_gradient(Grad& g) {
  const Ints axes = g.attributes().ints("axes");
  const Var x = g.in(0), zero = g.b.like(x, 0), one = g.b.like(x, 1), is_zero = g.b.equal(x, zero);
  const Var divided = with_kept_dims(g, g.upstream(0) * g.out(0)) / g.b.select(is_zero, one, x);
  const Var zeros = g.b.sum(g.b.cast(is_zero, x.dtype()), axes);
  const Var others = g.b.emit("prod_reduce", {g.b.select(is_zero, one, x)}, {{"axes", axes}, {"keep", true}});
  const Var alone = g.b.select(g.b.equal(zeros, one), with_kept_dims(g, g.upstream(0)) * others, zero);
  g.set(0, g.b.select(is_zero, alone, divided));
}

Result<ShardingRule> reduction_rule(const OpQuery& q, ShardingRule::Reduce reduce, bool unshardable) {
  const TensorType& x = q.in(0);
  const std::vector<bool> mask = axis_mask(q.attributes().ints("axes"), x.ndim());
  const bool keep = q.attributes().flag("keep");
  RuleWriter rule(q);
  int o = 0;
  for (int d = 0; d < x.ndim(); ++d) {
    const int factor = rule.factor(x.shape[d], mask[d] && unshardable);
    rule.rule().factors[factor].reduce = reduce;
    rule.input(0, d, factor);
    if (!mask[d]) rule.output(0, o, factor);
    if (!mask[d] || keep) ++o;
  }
  return rule.done();
}

std::vector<std::string> reduction_samples() {
  return {"f32[4,7] {axes=[1]}", "f32[4,7] {axes=[0],keep=false}", "f32[4,3,6] {axes=[0,2]}",
          "f32[4,6] {axes=[0,1],keep=false}", "f64[2,3,4] {axes=[-2],keep=false}"};
}
std::vector<Option> reduction_attributes() { return {{"axes", Ints{}, true}, {"keep", true}}; }
}  // namespace

EPL_OP(sum) {
  return {.doc = "Sum along `axes`; reduced dimensions stay with size one if `keep`.",
          .signature = "x -> y",
          .attributes = reduction_attributes(),
          .infer = reduced_type,
          .reference =
              [](const Reference& r) {
                const ReductionRuns runs(r);
                for (int64_t o = 0; o < runs.outputs(); ++o) {
                  if (!is_float(r.in(0).dtype())) {
                    uint64_t total = 0;  // which wraps
                    for (int64_t k = 0; k < runs.length(); ++k)
                      total += static_cast<uint64_t>(r.in(0).get_int(runs.at(o, k)));
                    r.out(0).set_int(o, static_cast<int64_t>(total));
                    continue;
                  }
                  r.out(0).set(o, unit_sum(runs.length(), r.units(), r.out(0).dtype(),
                                           [&](int64_t k) { return r.in(0).get(runs.at(o, k)); }));
                }
              },
          .gradient = [](Grad& g) { g.set(0, g.b.broadcast_to(with_kept_dims(g, g.upstream(0)), g.in(0).shape())); },
          .sharding_of = [](const OpQuery& q) { return reduction_rule(q, ShardingRule::Reduce::sum, false); },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .with_region = "fused_sum",
          .samples = reduction_samples()};
}

EPL_OP(max_reduce) {
  return {.doc = "Largest element along `axes`; NaN if any is NaN.",
          .signature = "x -> y",
          .attributes = reduction_attributes(),
          .infer = reduced_type,
          .reference = extremum_reference<true>,
          .gradient = extremum_reduction_gradient,
          .sharding_of = [](const OpQuery& q) { return reduction_rule(q, ShardingRule::Reduce::max, false); },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .samples = reduction_samples()};
}

EPL_OP(min_reduce) {
  return {.doc = "Smallest element along `axes`; NaN if any is NaN.",
          .signature = "x -> y",
          .attributes = reduction_attributes(),
          .infer = reduced_type,
          .reference = extremum_reference<false>,
          .gradient = extremum_reduction_gradient,
          .sharding_of = [](const OpQuery& q) { return reduction_rule(q, ShardingRule::Reduce::min, false); },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .samples = reduction_samples()};
}

EPL_OP(prod_reduce) {
  return {.doc = "Product along `axes`.",
          .signature = "x -> y",
          .attributes = reduction_attributes(),
          .infer = reduced_type,
          .reference =
              [](const Reference& r) {
                const ReductionRuns runs(r);
                for (int64_t o = 0; o < runs.outputs(); ++o) {
                  double product = 1;
                  uint64_t integers = 1;  // which wrap
                  for (int64_t k = 0; k < runs.length(); ++k) {
                    const int64_t i = runs.at(o, k);
                    is_float(r.in(0).dtype()) ? void(product *= r.in(0).get(i))
                                              : void(integers *= static_cast<uint64_t>(r.in(0).get_int(i)));
                  }
                  is_float(r.in(0).dtype()) ? r.out(0).set(o, product)
                                            : r.out(0).set_int(o, static_cast<int64_t>(integers));
                }
              },
          .gradient = product_gradient,
          .sharding_of = [](const OpQuery& q) { return reduction_rule(q, ShardingRule::Reduce::sum, true); },
          .flops = [](const OpQuery& q) { return static_cast<double>(q.in(0).elements()); },
          .samples = {"f32[4,5](0.5..1.5) {axes=[1]}", "f32[4,3,2](0.5..1.5) {axes=[0,2],keep=false}",
                      "i64[2,3](1..4) {axes=[1]}"}};
}

EPL_OP(cum_sum) {
  return {.doc = "Running sums along `axis`, from the end if `reverse`; `exclusive` leaves out the element itself.",
          .signature = "x -> y",
          .attributes = {{"axis", int64_t{0}, true}, {"exclusive", false}, {"reverse", false}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_TRY(checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()).status());
            return same_as_first(q);
          },
          .reference =
              [](const Reference& r) {
                const AxisSpan s = span_at(r.in(0).shape(), r.query().axis("axis", r.in(0).type().ndim()));
                const bool exclusive = r.attributes().flag("exclusive"), reverse = r.attributes().flag("reverse");
                for (int64_t slice = 0; slice < s.outer * s.inner; ++slice) {
                  double sum = 0;
                  uint64_t integers = 0;  // which wrap
                  for (int64_t k = 0; k < s.size; ++k) {
                    const int64_t at = reverse ? s.size - 1 - k : k;
                    const int64_t i = (slice / s.inner * s.size + at) * s.inner + slice % s.inner;
                    if (!is_float(r.in(0).dtype())) {
                      const uint64_t before = integers;
                      integers += static_cast<uint64_t>(r.in(0).get_int(i));
                      r.out(0).set_int(i, static_cast<int64_t>(exclusive ? before : integers));
                      continue;
                    }
                    const double value = r.in(0).get(i);
                    r.out(0).set(i, exclusive ? sum : sum + value);
                    sum += value;
                  }
                }
              },
          .gradient =
              [](Grad& g) {
                Attributes attributes = g.attributes();
                attributes.set("reverse", !attributes.flag("reverse"));
                g.set(0, g.b.emit("cum_sum", {g.upstream(0)}, attributes));
              },
          .sharding_of = unshardable_axis_rule,
          .samples = {"f32[4,6] {axis=1}", "f32[4,6] {axis=0,reverse=true}", "f32[4,6] {axis=-1,exclusive=true}",
                      "f32[2,3,4] {axis=1,exclusive=true,reverse=true}", "i64[6] {axis=0}"}};
}

// --- positions of extremes ---

namespace {
Result<OutputTypes> arg_type(const OpQuery& q) {
  EPL_ASSIGN(const int axis, checked_axis(q, q.attributes().integer("axis"), q.in(0).ndim()));
  Shape shape = q.in(0).shape;
  if (shape[axis] == 0) return misfit(q, "dimension ", axis, " is empty");
  if (q.attributes().flag("keep"))
    shape[axis] = 1;
  else
    shape.erase(shape.begin() + axis);
  return OutputTypes{{DType::i64, shape}};
}

template <bool maximum> void arg_reference(const Reference& r) {
  const AxisSpan s = span_at(r.in(0).shape(), r.query().axis("axis", r.in(0).type().ndim()));
  const bool last = r.attributes().flag("last");
  for (int64_t slice = 0; slice < s.outer * s.inner; ++slice) {
    int64_t best = 0;
    const auto at = [&](int64_t k) { return (slice / s.inner * s.size + k) * s.inner + slice % s.inner; };
    const auto below = [&x = r.in(0)](int64_t a, int64_t b) { return maximum ? less(x, a, b) : less(x, b, a); };
    for (int64_t k = 1; k < s.size; ++k) {
      const bool equal = r.in(0).get(at(k)) == r.in(0).get(at(best)) && !below(at(k), at(best)) &&
                         (is_float(r.in(0).dtype()) || r.in(0).get_int(at(k)) == r.in(0).get_int(at(best)));
      if (below(at(best), at(k)) || (last && equal)) best = k;
    }
    r.out(0).set_int(slice, best);
  }
}

Result<ShardingRule> arg_rule(const OpQuery& q) {
  const int ndim = q.in(0).ndim(), axis = q.axis("axis", ndim);
  const bool keep = q.attributes().flag("keep");
  RuleWriter rule(q);
  for (int d = 0; d < ndim; ++d) {
    if (d == axis) continue;
    const int factor = rule.factor(q.in(0).shape[d]);
    rule.input(0, d, factor);
    rule.output(0, d - (!keep && d > axis), factor);
  }
  return rule.done();
}
std::vector<Option> arg_attributes() { return {{"axis", int64_t{0}, true}, {"keep", true}, {"last", false}}; }
std::vector<std::string> arg_samples() {
  return {"f32[4,7] {axis=1}", "f32[4,7] {axis=0,keep=false}", "i64[4,3,2](0..3) {axis=1,keep=false,last=true}"};
}
}  // namespace

EPL_OP(arg_max) {
  return {.doc = "Position (i64) of the largest element along `axis`, the first of equals, or the last if `last`.",
          .signature = "x -> y",
          .attributes = arg_attributes(),
          .infer = arg_type,
          .reference = arg_reference<true>,
          .no_gradient = "positions are integers",
          .sharding_of = arg_rule,
          .samples = arg_samples()};
}
EPL_OP(arg_min) {
  return {.doc = "Position (i64) of the smallest element along `axis`, the first of equals, or the last if `last`.",
          .signature = "x -> y",
          .attributes = arg_attributes(),
          .infer = arg_type,
          .reference = arg_reference<false>,
          .no_gradient = "positions are integers",
          .sharding_of = arg_rule,
          .samples = arg_samples()};
}

}  // namespace epl
