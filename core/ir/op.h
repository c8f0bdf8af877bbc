// An op is one record: shape rule, meaning, gradient, sharding rule, cost, documentation, samples. From the record
// follow the text form, the verifier, autodiff, sharding propagation, a working CPU kernel, the documentation and the
// generated tests. Rows live in core/ops, one op family a file:
//
//   EPL_OP(relu) {
//     return {.doc = "y = max(x, 0).", .signature = "x -> y",
//             .scalar = [](ScalarExpr& s) { s.outputs = {s.emit(ScalarOp::max, s.input(0), s.constant(0))}; },
//             .gradient = [](Grad& g) { g.set(0, g.upstream(0) * (g.in(0) > 0)); },
//             .samples = {"f32[4,7]"}};
//   }
//
// Two kinds: a primitive gives `scalar` (elementwise) or `reference`; a composite gives `body` in other ops.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/options.h"
#include "core/base/table.h"
#include "core/ir/builder.h"
#include "core/ir/graph.h"
#include "core/ir/reference.h"
#include "core/ir/scalar.h"
#include "core/ir/sharding_rule.h"

namespace epl {

// What an op is asked about itself: its attributes and the types of its operands. An absent operand has no type.
class OpQuery {
 public:
  OpQuery(const OpDef& op, const Attributes& attributes, std::vector<const TensorType*> inputs,
          std::vector<const TensorType*> outputs = {})
      : op_(op), attributes_(attributes), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {}
  const OpDef& op() const { return op_; }
  const Attributes& attributes() const { return attributes_; }
  int inputs() const { return static_cast<int>(inputs_.size()); }
  int outputs() const { return static_cast<int>(outputs_.size()); }
  bool has(int i) const { return i < inputs() && inputs_[i] != nullptr; }
  bool has_output(int i) const { return i < outputs() && outputs_[i] != nullptr; }
  const TensorType& in(int i) const { return *inputs_[i]; }
  const TensorType& out(int i) const { return *outputs_[i]; }
  // An `axis`-like attribute made non-negative for an operand of `ndim` dimensions.
  int axis(std::string_view name, int ndim) const;

 private:
  const OpDef& op_;
  const Attributes& attributes_;
  std::vector<const TensorType*> inputs_, outputs_;
};

using OutputTypes = std::vector<TensorType>;

// A primitive's slow, readable meaning over host tensors. Floating sums run in double. Sums over the batch run per
// unit of the summed positions, each rounded to the output type, then by the binary tree. Outputs begin as zeros.
class Reference {
 public:
  Reference(const OpQuery& query, std::span<const TensorView> inputs, std::span<const TensorView> outputs, Units units,
            uint64_t seed, const LogicalElements& elements, Room& room)
      : query_(query),
        inputs_(inputs),
        outputs_(outputs),
        units_(units),
        seed_(seed),
        elements_(elements),
        room_(room) {}
  const OpQuery& query() const { return query_; }
  const Attributes& attributes() const { return query_.attributes(); }
  bool has(int i) const { return query_.has(i); }
  const TensorView& in(int i) const { return inputs_[i]; }
  const TensorView& out(int i) const { return outputs_[i]; }
  bool has_output(int i) const { return query_.has_output(i); }
  Units units() const { return units_; }
  uint64_t seed() const { return seed_; }                       // of this node and step, for random ops
  int64_t element(int64_t i) const { return elements_.of(i); }  // global logical index of a local element
  // Zeros, as many as the record's `room` accounts for.
  template <class T> std::span<T> room(int64_t count) const { return room_.take<T>(count); }

 private:
  const OpQuery& query_;
  std::span<const TensorView> inputs_, outputs_;
  Units units_;
  uint64_t seed_;
  LogicalElements elements_;
  Room& room_;
};

// What output 0 holds of input 0: each element once in any order, some of them (perhaps beside others), each of them
// perhaps several times, or each as an element of another type.
enum class Moves : uint8_t { none, all, some, repeated, converted };
// An op that multiplies by a weight, its operand 1, as a matrix or as the kernel of a convolution. An adapter can stand
// beside it.
enum class WeightProduct : uint8_t { none, matrix, convolution };

struct OpDef {
  std::string name;       // filled in from the row's name
  std::string doc;        // one sentence with shapes
  std::string signature;  // "x, w, bias? -> y, statistics?"; a trailing `*` marks the variadic last input
  std::vector<Option> attributes;

  // Types of the outputs, or why the operands do not fit. Elementwise ops may leave it out: broadcast of the inputs,
  // element type of the first input (`truth`: bool).
  Result<OutputTypes> (*infer)(const OpQuery&) = nullptr;
  bool truth = false;  // an elementwise op whose result is bool

  void (*scalar)(ScalarExpr&) = nullptr;                     // elementwise primitive
  void (*scalar_of)(ScalarExpr&, const OpQuery&) = nullptr;  // the same where attributes or types matter
  void (*reference)(const Reference&) = nullptr;             // other primitives
  int64_t (*room)(const OpQuery&, Units) = nullptr;          // bytes that the reference takes of its room; absent: none
  void (*body)(Body&) = nullptr;                             // composite

  void (*gradient)(Grad&) = nullptr;    // absent: through the body, or not differentiable
  std::string no_gradient;              // why there is none, for ops that cut gradients on purpose
  std::vector<int> no_gradient_inputs;  // inputs that never receive gradient (indices, targets)

  std::string sharding;                                           // short form, or
  Result<ShardingRule> (*sharding_of)(const OpQuery&) = nullptr;  // a function; elementwise ops need neither
  // Attributes that hold output or slice shapes must follow a cut: rewrites them for the local types.
  void (*localize)(Attributes&, const std::vector<TensorType>& local_inputs,
                   const std::vector<TensorType>& local_outputs) = nullptr;

  double (*flops)(const OpQuery&) = nullptr;  // absent: one per output element
  bool view = false;                          // output 0 is input 0's bytes under another type: no kernel runs
  // The input over which kernels may write output 0, where both have as many bytes; -1: none. Elementwise ops may take
  // any.
  int written_over = -1;
  Moves moves = Moves::none;
  WeightProduct weight_product = WeightProduct::none;
  std::string transposes_weight;  // of a matrix product: the attribute that says that the weight is [out, in]
  // Mixed precision (core/train/mixed_precision.h) rounds these operands to 16 bits, and the result too, which is one
  // sum of products in float32: the attribute `wide`. Empty: the op stays in float32, or only moves elements.
  std::vector<int> narrow_inputs;
  bool probabilities = false;  // output 0 holds probabilities of the scores in input 0, or their logarithms
  // The sum of the gradients that nodes of this op give to one value, if it can be computed without adding; else Var{}.
  Var (*joined)(Builder&, const std::vector<Var>& parts) = nullptr;
  // The op of a region of elementwise nodes and of reductions of its results: which one computes both at once, with the
  // same bits. Attributes: those of `fused`, of the reduction, and their number.
  std::string with_region;
  bool boundary = false;  // only `partition` writes it and the executor carries it out: no meaning of its own
  bool adds = false;      // of these: its result is a sum; of others the sharding rule says so
  // Of a mean: the operand that holds how much counts, one number. Where that is 0 the result means nothing, and no
  // gradient flows back. -1: of none.
  int counts = -1;
  bool random = false;  // keyed by (seed, step, node name, element)
  // It looks at each operand by itself and skips absent ones: ranks that have only some operands look at those.
  bool takes_any_operands = false;
  std::vector<std::string> samples;  // "f32[4,7], f32[7,3] {axis=1}": tests are made from these

  bool elementwise() const { return scalar || scalar_of; }
  int min_inputs() const;
  int max_inputs() const;  // -1: variadic
  int output_count() const;
};

class OpTable {
 public:
  void add(std::string_view name, OpDef op);
  const OpDef* find(std::string_view name) const;
  const std::vector<const OpDef*>& all() const { return order_; }  // by name

 private:
  std::unordered_map<std::string, std::unique_ptr<OpDef>> ops_;
  std::vector<const OpDef*> order_;
};

// The op of joined elementwise nodes; its attribute `expression` is its meaning. Fusion and transfers make it.
inline constexpr std::string_view fused_op = "fused";

const OpTable& op_table();                     // every op; generated
const OpDef& op_named(std::string_view name);  // EPL_CHECKs that it exists

// Questions asked of a record, with the defaults applied.
Result<OutputTypes> infer_types(const OpDef& op, const Attributes& attributes,
                                const std::vector<const TensorType*>& inputs);
Result<ShardingRule> sharding_rule(const OpQuery& query);
ScalarExpr scalar_expression(const OpQuery& query);
double op_flops(const OpQuery& query);
// Fills in defaults and checks names and types of attributes.
Status complete_attributes(const OpDef& op, Attributes& attributes);
// Computes an op on host tensors by its reference, scalar expression or body. `seed` and `elements` as in
// Reference.
Result<std::vector<Tensor>> evaluate_op(const OpDef& op, const Attributes& attributes,
                                        const std::vector<Tensor>& inputs, Units units = {}, uint64_t seed = 0,
                                        const LogicalElements& elements = {});
// Replaces a composite by its body, in the builder's graph; returns the outputs.
std::vector<Var> expand_body(Builder& builder, const OpDef& op, const Attributes& attributes,
                             const std::vector<Var>& inputs);

#define EPL_OP(op_name) EPL_ROW(EPL_OP, op_name, ::epl::OpTable, ::epl::OpDef)

}  // namespace epl
