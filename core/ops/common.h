// What the records of core/ops share: checks of operands, walks over elements for references, sums in the canonical
// order of units, and a writer for sharding rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/function_ref.h"
#include "core/ir/op.h"

namespace epl::ops {

// --- types ---

// The operands as text for messages: "f32[4,7], i64[3]".
std::string operand_text(const OpQuery& query);
// `node` of an error is added by the caller; the message names the op and the operands.
template <class... Args> Status misfit(const OpQuery& query, const Args&... args) {
  return invalid(query.op().name, ": ", cat(args...), "; operands are ", operand_text(query));
}
Result<OutputTypes> same_as_first(const OpQuery& query);
// All present operands have the element type of the first, which must be a float type where `floating`.
Status same_dtypes(const OpQuery& query, bool floating = false);
// Of products: operands 0 and 1 have one type, and what is added to their sums (operand 2) has the type of these.
Status product_dtypes(const OpQuery& query, bool floating = false);
// Of their sums: that of the operands, or float32 where these have 16 bits and the attribute `wide` is set.
DType product_dtype(const OpQuery& query);
// The attribute `wide` of a product.
Option wide_option();
// What the gradient of a product is made of. Gradients by a weight are sums over the batch, and never of 16 bits.
struct ProductGradient {
  explicit ProductGradient(Grad& g);
  Var dy;                    // in the type of the operands
  bool wide = false;         // whether gradients by operands are
  bool wide_weight = false;  // whether those by weights are
};
// An axis in [-ndim, ndim) made non-negative, or an error.
Result<int> checked_axis(const OpQuery& query, int64_t axis, int ndim);
Result<std::vector<bool>> checked_axes(const OpQuery& query, const Ints& axes, int ndim);
// A mask of dimensions from axes that are known to be right.
std::vector<bool> axis_mask(const Ints& axes, int ndim);
Status expect_shape(const OpQuery& query, int input, const Shape& shape, std::string_view what);

// Operand types with f32[] in the place of absent ones, as the rules of core/ir/sharding_rule.h take them.
std::vector<TensorType> input_types(const OpQuery& query);
std::vector<TensorType> output_types(const OpQuery& query);

// --- gradients at singular points ---

// `product`, the gradient of upstream output 0 times a slope that may be infinite, but zero where it is NaN because the
// upstream gradient is zero: nothing flows back through what was selected away, however steep it is there.
Var unless_cut(Grad& g, const Var& product);
// Whether the value is zero only where the gradients of all that it is made of are zero as well: a sum of squares, of
// powers above 1 or of magnitudes. A root of it is a norm, whose gradient at zero is zero, though the root has none.
bool is_base_of_norm(const Graph& graph, Value value);

// An output that the forward node keeps for its gradient; computed again where the graph did not ask for it.
Var saved_output(Grad& g, int output);

// --- elements ---

// A shape seen from one axis: `outer` runs of `size` steps of `inner` elements.
struct AxisSpan {
  int64_t outer = 1, size = 1, inner = 1;
};
AxisSpan span_at(const Shape& shape, int axis);
// Product of the sizes before `end`, or from `begin` on.
int64_t elements_before(const Shape& shape, int end);
int64_t elements_from(const Shape& shape, int begin);

inline int64_t product_of(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) product *= size;
  return product;
}
// Calls f(linear, index) for every element in row-major order.
template <class F> void for_each_index(std::span<const int64_t> shape, F f) {
  const int64_t n = product_of(shape);
  Dims index(shape.size());
  for (int64_t linear = 0; linear < n; ++linear) {
    f(linear, static_cast<const Dims&>(index));
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}
int64_t linear_index(std::span<const int64_t> shape, const Dims& index);
// An index in [-size, size) made non-negative; -1 if it is out of range.
inline int64_t wrapped_index(int64_t index, int64_t size) {
  if (index < -size || index >= size) return -1;
  return index < 0 ? index + size : index;
}
void copy_element(const TensorView& source, int64_t i, const TensorView& target, int64_t o);
// What reading outside a tensor gives: NaN, which the step's check for finite values reports; 0 for integers.
void store_out_of_range(const TensorView& target, int64_t o);
// `value` as an element of `type` holds it.
double rounded(DType type, double value);

// The sum of term(0..n-1): unit by unit in double, each rounded to `type`, then by the binary tree with every
// addition rounded. One unit: a single sum in double.
double unit_sum(int64_t n, Units units, DType type, FunctionRef<double(int64_t)> term);
// The same for full tensors: parts holds the sums of unit 0, then those of unit 1, ...; the result is stored into
// `out`.
void store_unit_sums(std::span<const double> parts, int64_t units, const TensorView& out);
// Room for a double of each element of output 0, once, or once for each unit.
int64_t room_for_sums(const OpQuery& query, Units units);
int64_t room_for_unit_sums(const OpQuery& query, Units units);

// --- sharding rules ---

// Dimensions that are tied to no factor become unshardable.
class RuleWriter {
 public:
  explicit RuleWriter(const OpQuery& query);
  int factor(int64_t size, bool unshardable = false) { return rule_.add_factor(size, unshardable); }
  // Ties a dimension to a factor; nothing to do for absent operands and for dimensions of size one.
  void input(int i, int dim, int factor);
  void output(int i, int dim, int factor);
  // A dimension that is the product of several factors, major first.
  void input(int i, int dim, const std::vector<int>& factors);
  void output(int i, int dim, const std::vector<int>& factors);
  ShardingRule& rule() { return rule_; }
  ShardingRule done();

 private:
  const OpQuery& query_;
  ShardingRule rule_;
};

// Operands of equal ndim correspond dimension by dimension, except where `unshardable`; other operands are not cut.
ShardingRule aligned_rule(const OpQuery& query, const std::vector<bool>& unshardable);
// The same, unshardable along the attribute `axis`.
Result<ShardingRule> unshardable_axis_rule(const OpQuery& query);

}  // namespace epl::ops
