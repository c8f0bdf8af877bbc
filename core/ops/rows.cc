// Rows that go to slots by index and come back, as tokens to the slots of experts that have a capacity. Where tokens
// find no slot, exporters let them name a row more, which nobody reads: here such an index names no row.
// Indices may be negative and then count from the end; one out of range names no row: nothing is put, and zeros are
// taken.
#include "core/ir/partition_rule.h"
#include "core/ops/indexing.h"

namespace epl {
using namespace ops;

namespace {

int64_t row_elements(const TensorView& x) { return elements_from(x.shape(), 1); }

Result<OutputTypes> infer_rows(const OpQuery& q, int64_t size) {
  EPL_TRY(integer_operand(q, 1));
  if (q.in(0).ndim() < 1 || size < 0) return misfit(q, "there are no rows");
  if (q.in(1).ndim() != 1) return misfit(q, "indices need one dimension");
  Shape shape = q.in(0).shape;
  shape[0] = size;
  return OutputTypes{{q.in(0).dtype, shape}};
}

// Of dimensions behind the first, which all operands but the indices have.
void tie_the_rest(RuleWriter& rule, const OpQuery& q) {
  for (int d = 1; d < q.in(0).ndim(); ++d) {
    const int factor = rule.factor(q.in(0).shape[static_cast<size_t>(d)]);
    rule.input(0, d, factor);
    rule.output(0, d, factor);
  }
}

}  // namespace

EPL_OP(put_rows) {
  return {.doc =
              "Zeros with `size` rows, of which row indices[i] is row i of x: x[s,r...], indices[s] -> y[size,r...]; "
              "of several rows with one index the last, though each gets its gradient; an index out of range scatters "
              "nothing.",
          .signature = "x, indices -> y",
          .attributes = {{"size", int64_t{0}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            EPL_ASSIGN(OutputTypes types, infer_rows(q, q.attributes().integer("size")));
            EPL_TRY(expect_shape(q, 1, {q.in(0).shape[0]}, "indices"));
            return types;
          },
          .reference =
              [](const Reference& r) {
                const int64_t size = r.out(0).shape()[0], rest = row_elements(r.out(0));
                for (int64_t i = 0; i < r.out(0).elements(); ++i) r.out(0).set(i, 0);
                for (int64_t i = 0; i < r.in(1).elements(); ++i) {
                  const int64_t to = wrapped_index(r.in(1).get_int(i), size);
                  for (int64_t j = 0; j < rest && to >= 0; ++j)
                    copy_element(r.in(0), i * rest + j, r.out(0), to * rest + j);
                }
              },
          .gradient = [](Grad& g) { g.set(0, g.b.emit("take_rows", {g.upstream(0), g.in(1)})); },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            RuleWriter rule(q);
            const int rows = rule.factor(q.in(0).shape[0], true);
            rule.input(0, 0, rows);
            rule.input(1, 0, rows);
            tie_the_rest(rule, q);
            return rule.done();
          },
          .localize = [](Attributes& attributes, const std::vector<TensorType>&,
                         const std::vector<TensorType>& out) { attributes.set("size", out[0].shape[0]); },
          .moves = Moves::some,
          .samples = {"f32[1,6], i64[1](0..9) {size=9}", "f32[1,4,2], i32[1](-7..9) {size=5}"}};
}

EPL_PARTITION(put_rows) {
  return {.ties = [](Ties& t) { t.output(0, 0, t.factor(t.q.attributes().integer("size"))); }, .indices = 1};
}

EPL_OP(take_rows) {
  return {.doc = "Rows of x at the indices, zeros where one is out of range: x[n,r...], indices[s] -> y[s,r...].",
          .signature = "x, indices -> y",
          .infer = [](const OpQuery& q) { return infer_rows(q, q.in(1).ndim() == 1 ? q.in(1).shape[0] : 0); },
          .reference =
              [](const Reference& r) {
                const int64_t size = r.in(0).shape()[0], rest = row_elements(r.out(0));
                for (int64_t i = 0; i < r.in(1).elements(); ++i) {
                  const int64_t from = wrapped_index(r.in(1).get_int(i), size);
                  for (int64_t j = 0; j < rest; ++j) {
                    if (from < 0) r.out(0).set(i * rest + j, 0);
                    if (from >= 0) copy_element(r.in(0), from * rest + j, r.out(0), i * rest + j);
                  }
                }
              },
          .gradient =
              [](Grad& g) { g.set(0, g.b.emit("gather_grad", {g.upstream(0), g.in(1)}, {{"size", g.in(0).dim(0)}})); },
          .no_gradient_inputs = {1},
          .sharding_of = [](const OpQuery& q) -> Result<ShardingRule> {
            RuleWriter rule(q);
            const int rows = rule.factor(q.in(1).shape[0]);
            rule.input(1, 0, rows);
            rule.output(0, 0, rows);
            tie_the_rest(rule, q);
            return rule.done();
          },
          .moves = Moves::some,
          .samples = {"f32[9,6], i64[4](-12..12)", "f32[5,4,2], i32[6](0..5)"}};
}

EPL_PARTITION(take_rows) {
  return {.ties = [](Ties& t) { t.input(0, 0, t.factor(t.q.in(0).shape[0])); }, .indices = 1};
}

}  // namespace epl
