// How the dimensions of an op's operands correspond: the op's side of sharding.
//
// Every dimension is a product of named factors, major first. A factor that appears in an output as well as in inputs
// is a `pass` factor: cutting it cuts the operands alike and the op stays itself. A factor that no output has (for the
// outputs that lack it) is a `reduce` factor: cutting it leaves a partial result to be summed. An `unshardable` factor
// cannot be cut. After Shardy's factor rules (OpenXLA), reduced to what the passes here need.
//
// Short form, for records: operand dimensions by letters, `...` for any leading dimensions that pass through (broadcast
// from the right), `(ab)` for a dimension that is the product a*b, `1` for a dimension of size one, `| unshardable c d`
// for factors that may not be cut, `| max m` / `| min m` for reductions that are not sums. For example
//   matmul          "... m k, ... k n -> ... m n"
//   layer norm grad "... k, ... k, ..., ..., k -> ... k, k, k | unshardable k"
// An absent optional operand still has its position in the text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/tensor_type.h"

namespace epl {

struct ShardingRule {
  // `owner`: no reduction; each part of a value is known to one rank. No rule says so, a plan does (passes/rows.cc).
  enum class Reduce : uint8_t { sum, max, min, owner };
  struct Factor {
    int64_t size = 1;
    bool unshardable = false;
    Reduce reduce = Reduce::sum;
    // An operand that is added to what is summed over this factor, broadcast from the right: each shard of the sum
    // would add it. -1: none.
    int added = -1;
  };
  using Dim = std::vector<int>;      // factors of one dimension, major first; empty for size one
  using Operand = std::vector<Dim>;  // one per dimension
  std::vector<Factor> factors;
  std::vector<Operand> inputs, outputs;

  int add_factor(int64_t size, bool unshardable = false);
};

// Expands a short form for concrete types (an absent operand has an empty optional type: pass ndim 0).
Result<ShardingRule> parse_sharding_rule(std::string_view text, const std::vector<TensorType>& inputs,
                                         const std::vector<TensorType>& outputs);
// Elementwise with NumPy broadcasting: every output dimension is a pass factor.
ShardingRule elementwise_rule(const std::vector<TensorType>& inputs, const std::vector<TensorType>& outputs);
// A reshape: the coarsest common factors of both shapes, found left to right.
ShardingRule reshape_rule(const TensorType& input, const TensorType& output);

}  // namespace epl
