// The proof of every sharding rule: cutting any factor that may be cut in two, computing each piece by the op itself with
// localised attributes, and putting the pieces together (or summing them) gives the uncut result.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/ir/evaluate.h"
#include "core/ops/sample.h"

namespace epl {
namespace {

// The piece [begin, begin + count) of one factor.
struct Cut {
  const ShardingRule& rule;
  int factor;
  int64_t begin, count;

  bool cuts(const ShardingRule::Operand& dims) const {
    return std::ranges::any_of(dims, [&](const ShardingRule::Dim& dim) { return std::ranges::find(dim, factor) != dim.end(); });
  }
  TensorType type(const ShardingRule::Operand& dims, TensorType type) const {
    for (size_t d = 0; d < dims.size(); ++d)
      if (std::ranges::find(dims[d], factor) != dims[d].end()) type.shape[d] = type.shape[d] / rule.factors[factor].size * count;
    return type;
  }
  // Index in the whole dimension of local index i: dimensions are products of factors, major first.
  int64_t global_index(const ShardingRule::Dim& dim, int64_t i) const {
    int64_t index = 0, scale = 1;
    for (size_t k = dim.size(); k-- > 0;) {
      const int64_t size = rule.factors[dim[k]].size, local = dim[k] == factor ? count : size;
      index += (i % local + (dim[k] == factor ? begin : 0)) * scale;
      i /= local;
      scale *= size;
    }
    return index;
  }
  Tensor piece(const ShardingRule::Operand& dims, const Tensor& whole) const {
    if (!cuts(dims)) return whole;
    Tensor local(type(dims, whole.type()));
    const Shape& shape = local.shape();
    for (int64_t i = 0; i < local.elements(); ++i) {
      int64_t rest = i, at = 0, scale = 1;
      for (size_t d = shape.size(); d-- > 0;) {
        const int64_t index = rest % shape[d];
        rest /= shape[d];
        at += (dims[d].empty() ? index : global_index(dims[d], index)) * scale;
        scale *= whole.shape()[d];
      }
      is_float(whole.dtype()) ? local.set(i, whole.get(at)) : local.set_int(i, whole.get_int(at));
    }
    return local;
  }
};

void expect_near(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.type(), expected.type());
  for (int64_t i = 0; i < got.elements(); ++i) {
    if (!is_float(got.dtype())) {
      ASSERT_EQ(got.get_int(i), expected.get_int(i)) << "element " << i;
    } else {
      ASSERT_NEAR(got.get(i), expected.get(i), 1e-12 * (1 + std::abs(expected.get(i)))) << "element " << i;
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

  // A random op needs to know which global element its first local one is.
  uint64_t first_element(const Cut& cut) const {
    for (size_t d = 0; d < outputs[0].shape().size(); ++d) {
      const auto& dim = rule.outputs[0][d];
      if (std::ranges::find(dim, cut.factor) != dim.end())
        return static_cast<uint64_t>(cut.begin * element_count(Shape(outputs[0].shape().begin() + d + 1, outputs[0].shape().end())));
    }
    return 0;
  }

  Result<std::vector<Tensor>> compute(const Cut& cut) const {
    std::vector<Tensor> local;
    std::vector<TensorType> input_types, output_types;
    for (size_t i = 0; i < inputs.size(); ++i) {
      local.push_back(inputs[i].empty() ? Tensor() : cut.piece(rule.inputs[i], inputs[i]));
      input_types.push_back(local[i].type());
    }
    for (size_t i = 0; i < outputs.size(); ++i) output_types.push_back(cut.type(rule.outputs[i], outputs[i].type()));
    Attributes attributes = sample.attributes;
    if (op.localize) op.localize(attributes, input_types, output_types);
    return evaluate_op(op, attributes, local, 1, 0, op.random ? first_element(cut) : 0);
  }
};

class Sharding : public testing::TestWithParam<const OpDef*> {};

TEST_P(Sharding, PiecesMakeTheWhole) {
  const OpDef& op = *GetParam();
  if (op.seam) return;
  int cuts = 0;
  for (const std::string& text : op.samples) {
    SCOPED_TRACE(text);
    auto sample = parse_sample(op, text);
    ASSERT_TRUE(sample.ok()) << sample.status().to_string();
    auto made = Case::make(op, sample->with_floats(DType::f64));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const Case& c = *made;
    for (size_t f = 0; f < c.rule.factors.size(); ++f) {
      const ShardingRule::Factor& factor = c.rule.factors[f];
      if (factor.whole || factor.size < 2) continue;
      SCOPED_TRACE(cat("factor ", f, " of size ", factor.size));
      ++cuts;
      const Cut first{c.rule, static_cast<int>(f), 0, factor.size / 2};
      const Cut second{c.rule, static_cast<int>(f), factor.size / 2, factor.size - factor.size / 2};
      auto a = c.compute(first), b = c.compute(second);
      ASSERT_TRUE(a.ok()) << a.status().to_string();
      ASSERT_TRUE(b.ok()) << b.status().to_string();
      for (size_t i = 0; i < c.outputs.size(); ++i) {
        SCOPED_TRACE(cat("output ", i));
        if (first.cuts(c.rule.outputs[i])) {
          expect_near((*a)[i], first.piece(c.rule.outputs[i], c.outputs[i]));
          expect_near((*b)[i], second.piece(c.rule.outputs[i], c.outputs[i]));
          continue;
        }
        Tensor combined(c.outputs[i].type());
        for (int64_t k = 0; k < combined.elements(); ++k) {
          const double x = (*a)[i].get(k), y = (*b)[i].get(k);
          combined.set(k, factor.reduce == ShardingRule::Reduce::sum   ? x + y
                          : factor.reduce == ShardingRule::Reduce::max ? std::max(x, y)
                                                                       : std::min(x, y));
        }
        expect_near(combined, c.outputs[i]);
      }
    }
  }
  if (op.name == "first_not_finite") return;  // looks at whole tensors alone: gradients are complete by then
  EXPECT_GT(cuts, 0) << "no sample has a factor that may be cut";
}

// Where cutting the first dimension of the operands leaves partial sums, as cutting the batch does, two units in one
// computation round exactly as two pieces that are added afterwards.
TEST_P(Sharding, UnitsRoundLikePieces) {
  const OpDef& op = *GetParam();
  for (const std::string& text : op.samples) {
    SCOPED_TRACE(text);
    auto sample = parse_sample(op, text);
    ASSERT_TRUE(sample.ok());
    auto made = Case::make(op, sample->with_floats(DType::f32));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    const Case& c = *made;
    for (size_t f = 0; f < c.rule.factors.size(); ++f) {
      const ShardingRule::Factor& factor = c.rule.factors[f];
      const Cut whole{c.rule, static_cast<int>(f), 0, factor.size};
      const bool leads = std::ranges::all_of(c.rule.inputs, [&](const ShardingRule::Operand& dims) {
        return !whole.cuts(dims) || (!dims[0].empty() && dims[0][0] == static_cast<int>(f));
      });
      if (factor.whole || factor.size % 2 != 0 || factor.reduce != ShardingRule::Reduce::sum || !leads) continue;
      const Cut first{c.rule, static_cast<int>(f), 0, factor.size / 2};
      const Cut second{c.rule, static_cast<int>(f), factor.size / 2, factor.size / 2};
      const bool sums = std::ranges::any_of(c.rule.outputs, [&](const auto& dims) { return !first.cuts(dims); });
      if (!sums) continue;
      SCOPED_TRACE(cat("factor ", f, " of size ", factor.size));
      auto both = evaluate_op(op, c.sample.attributes, c.inputs, 2);
      auto a = c.compute(first), b = c.compute(second);
      ASSERT_TRUE(both.ok() && a.ok() && b.ok());
      for (size_t i = 0; i < c.outputs.size(); ++i) {
        if (first.cuts(c.rule.outputs[i])) continue;
        Tensor combined(c.outputs[i].type());
        for (int64_t k = 0; k < combined.elements(); ++k) combined.set(k, (*a)[i].get(k) + (*b)[i].get(k));
        EXPECT_TRUE(identical((*both)[i], combined)) << "output " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Sharding, testing::ValuesIn(op_table().all()), [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace epl
