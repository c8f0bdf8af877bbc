// The proof of every sharding rule: cutting any factor that may be cut in two, computing each shard by the op itself
// with localised attributes, and putting the shards together (or summing them) gives the uncut result. A factor is cut
// as a whole, and in each of `outer` equal parts, as it is where samples are not the major part of a dimension.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ir/evaluate.h"
#include "core/strategy/batch_cut.h"
#include "tests/ops/cut.h"

namespace epl::sharding_test {
namespace {

void expect_near(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.type(), expected.type());
  for (int64_t i = 0; i < got.elements(); ++i) {
    if (!is_float(got.dtype())) {
      ASSERT_EQ(got.get_int(i), expected.get_int(i)) << "element " << i;
    } else {
      const double x = got.get(i), want = expected.get(i);
      ASSERT_TRUE(std::isnan(want)   ? std::isnan(x)
                  : std::isinf(want) ? x == want
                                     : std::abs(x - want) <= 1e-12 * (1 + std::abs(want)))
          << "element " << i << " is " << x << ", expected " << want;
    }
  }
}

// One sample of an op with its uncut result.
struct Case {
  const OpDef& op;
  Sample sample;
  std::vector<Tensor> inputs, outputs;
  ShardingRule rule;

  static Result<Case> make(const OpDef& op, Sample sample) {
    Case c{op, std::move(sample)};
    c.inputs = c.sample.values(1);
    EPL_ASSIGN(c.outputs, evaluate_op(op, c.sample.attributes, c.inputs));
    std::vector<const TensorType*> types;
    for (const Tensor& output : c.outputs) types.push_back(&output.type());
    EPL_ASSIGN(c.rule, sharding_rule(OpQuery(op, c.sample.attributes, c.sample.types(), types)));
    return c;
  }

  Result<std::vector<Tensor>> compute(const Cut& cut) const {
    const Shard shard = cut.of(op, sample.attributes, inputs, outputs);
    return evaluate_op(op, shard.attributes, shard.inputs, {}, 0,
                       op.random ? static_cast<int64_t>(shard.first_element) : 0);
  }
};

// Two shards of a factor give, put together or summed, the full tensor.
void expect_full(const Case& c, const Cut& first, const Cut& second) {
  auto a = c.compute(first), b = c.compute(second);
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  const ShardingRule::Reduce reduce = c.rule.factors[first.factor].reduce;
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    SCOPED_TRACE(cat("output ", i));
    if (first.cuts(c.rule.outputs[i])) {
      expect_near((*a)[i], first.shard(c.rule.outputs[i], c.outputs[i]));
      expect_near((*b)[i], second.shard(c.rule.outputs[i], c.outputs[i]));
      continue;
    }
    Tensor combined(c.outputs[i].type());
    for (int64_t k = 0; k < combined.elements(); ++k) {
      const double x = (*a)[i].get(k), y = (*b)[i].get(k);
      combined.set(k, reduce == ShardingRule::Reduce::sum   ? x + y
                      : reduce == ShardingRule::Reduce::max ? std::max(x, y)
                                                            : std::min(x, y));
    }
    expect_near(combined, c.outputs[i]);
  }
}

// Units in one computation round exactly as shards that are added afterwards, by the binary tree. `shards` cuts the
// factor into so many.
void expect_unit_bits(const Case& c, int factor, int64_t outer, int64_t shards) {
  const BatchCut cut = follow_batch(c.rule, std::vector<CutPosition>(c.inputs.size()), shards, {factor, outer});
  if (cut.couples) return;
  const int64_t part = c.rule.factors[factor].size / outer;
  auto full = evaluate_op(c.op, c.sample.attributes, c.inputs, {shards, cut.sum_outer});
  ASSERT_TRUE(full.ok()) << full.status().to_string();
  std::vector<std::vector<Tensor>> results;
  for (int64_t p = 0; p < shards; ++p) {
    auto result = c.compute({c.rule, factor, p * part / shards, part / shards, outer});
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    results.push_back(*result);
  }
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    if (cut.outputs[i] || !is_float(c.outputs[i].dtype())) continue;
    for (int64_t step = 1; step < shards; step *= 2)
      for (int64_t p = 0; p + step < shards; p += 2 * step)
        for (int64_t k = 0; k < c.outputs[i].elements(); ++k)
          results[p][i].set(k, results[p][i].get(k) + results[p + step][i].get(k));
    EXPECT_TRUE(identical((*full)[i], results[0][i])) << "output " << i << " in " << shards << " shards";
  }
}

bool sums(const Case& c, int factor) {
  const Cut cut{c.rule, factor, 0, c.rule.factors[factor].size};
  return c.rule.factors[factor].reduce == ShardingRule::Reduce::sum &&
         std::ranges::any_of(c.rule.outputs, [&](const auto& dims) { return !cut.cuts(dims); });
}

class Sharding : public testing::TestWithParam<const OpDef*> {
 protected:
  // Calls f(case, factor, outer) for every way to cut every sample, generated ones included.
  template <class F> int each_cut(DType floats, F f) {
    const OpDef& op = *GetParam();
    if (op.boundary) return 1;
    int cuts = 0;
    for (const Variant& variant : variants(op, {1, 2, 4, 3}, false, 100)) {
      SCOPED_TRACE(variant.text);
      auto made = Case::make(op, variant.sample.with_floats(floats));
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      if (!made.ok()) continue;
      for (size_t at = 0; at < made->rule.factors.size(); ++at) {
        const ShardingRule::Factor& factor = made->rule.factors[at];
        // What joins a complete sum is partition's to add; without it the same factor is cut here.
        if (factor.unshardable || factor.size < 2 || factor.added >= 0) continue;
        for (int64_t outer : {1, 2, 3}) {
          if (factor.size % (2 * outer) != 0 && outer > 1) continue;
          if (op.random && outer > 1) continue;  // elements are numbered: partition asks for leading samples
          SCOPED_TRACE(cat("factor ", at, " of size ", factor.size, " in ", outer, " parts"));
          f(*made, static_cast<int>(at), outer);
          ++cuts;
        }
      }
    }
    return cuts;
  }
};

TEST_P(Sharding, ShardsMakeTheFullTensor) {
  const int cuts = each_cut(DType::f64, [](const Case& c, int factor, int64_t outer) {
    const int64_t part = c.rule.factors[factor].size / outer;
    expect_full(c, {c.rule, factor, 0, part / 2, outer}, {c.rule, factor, part / 2, part - part / 2, outer});
  });
  if (GetParam()->name == "first_not_finite") return;  // looks at full tensors alone: gradients are complete by then
  EXPECT_GT(cuts, 0) << "no sample has a factor that may be cut";
}

// The bits of a sum over the batch do not depend on how many shards it is made in, wherever the batch stands among the
// dimensions that are summed over.
TEST_P(Sharding, UnitsRoundLikeShards) {
  each_cut(DType::f32, [](const Case& c, int factor, int64_t outer) {
    if (!sums(c, factor)) return;
    for (int64_t shards : {2, 4})
      if (c.rule.factors[factor].size % (shards * outer) == 0) expect_unit_bits(c, factor, outer, shards);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, Sharding, testing::ValuesIn(op_table().all()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace epl::sharding_test
