#include "core/compile/index_source.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>

#include "core/ir/index_range.h"
#include "core/ir/op.h"

namespace epl {
namespace {

using Slope = std::optional<int>;

// Whether an elementwise result grows (1) or falls (-1) with one operand, or does not follow it (0). Nothing: not
// known.
Slope slope(const ScalarExpr& expression, int operand) {
  std::vector<Slope> of;
  const auto sum = [](Slope a, Slope b) -> Slope {
    if (!a || !b || *a * *b < 0) return std::nullopt;
    return *a != 0 ? a : b;
  };
  const auto negated = [](Slope a) -> Slope { return a ? Slope(-*a) : a; };
  for (const ScalarExpr::Instruction& x : expression.code) {
    const auto at = [&](int k) -> Slope { return k < 0 ? Slope(0) : of[static_cast<size_t>(k)]; };
    if (x.op == ScalarOp::input || x.op == ScalarOp::constant) {
      of.push_back(x.op == ScalarOp::input && x.a == operand ? 1 : 0);
    } else if (x.op == ScalarOp::add || x.op == ScalarOp::sub) {
      of.push_back(sum(at(x.a), x.op == ScalarOp::add ? at(x.b) : negated(at(x.b))));
    } else if (x.op == ScalarOp::neg || x.op == ScalarOp::cast) {
      of.push_back(x.op == ScalarOp::neg ? negated(at(x.a)) : at(x.a));
    } else {
      const bool follows = at(x.a) != Slope(0) || at(x.b) != Slope(0) || at(x.c) != Slope(0);
      of.push_back(follows ? Slope() : Slope(0));
    }
  }
  return of[static_cast<size_t>(expression.outputs.front())];
}

OpQuery query_of(const Graph& graph, const Node& node) {
  std::vector<const TensorType*> inputs, outputs;
  for (Value v : node.inputs) inputs.push_back(v ? &graph.type(v) : nullptr);
  for (Value v : node.outputs) outputs.push_back(v ? &graph.type(v) : nullptr);
  return OpQuery(*node.op, node.attributes, std::move(inputs), std::move(outputs));
}

// Its results are each the largest of some elements of its only operand.
bool takes_largest(const Graph& graph, const Node& node) {
  if (node.op->elementwise() || node.inputs.size() != 1 || node.outputs.size() != 1) return false;
  const auto rule = sharding_rule(query_of(graph, node));
  const auto is_largest = [](const ShardingRule::Factor& f) { return f.reduce == ShardingRule::Reduce::max; };
  return rule.ok() && std::ranges::any_of(rule->factors, is_largest);
}

}  // namespace

Tensor ElementArithmetic::of(const Tensor& elements) const {
  const int64_t count = elements.elements();
  std::vector<Tensor> results;
  for (const Step& step : steps_) {
    std::vector<Tensor> operands;
    for (const Operand& operand : step.operands) {
      if (!operand.is_constant()) {
        operands.push_back(operand.step < 0 ? elements.reshaped({count}) : results[static_cast<size_t>(operand.step)]);
        continue;
      }
      const int64_t period = operand.constant.elements();
      if (operand.constant.type().ndim() == 0 || period == count) {
        operands.push_back(operand.constant);
        continue;
      }
      if (count % period != 0) return {};
      Tensor all({operand.constant.dtype(), {count}});
      const auto bytes = static_cast<size_t>(operand.constant.bytes());
      for (int64_t i = 0; i < count / period; ++i)
        std::memcpy(static_cast<std::byte*>(all.data()) + static_cast<size_t>(i) * bytes, operand.constant.data(),
                    bytes);
      operands.push_back(std::move(all));
    }
    auto made = evaluate_op(*step.op, step.attributes, operands);
    if (!made.ok()) return {};
    results.push_back(std::move(made->front()));
  }
  return steps_.empty() ? elements : results.back();
}

bool ElementArithmetic::monotone() const { return std::ranges::all_of(steps_, &Step::monotone); }

IndexSources::IndexSources(const Graph& graph)
    : graph_(graph), inputs_(graph.leaves(ValueKind::input)), found_(static_cast<size_t>(graph.value_count())) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (graph.type(inputs_[i]).dtype != DType::boolean) found(inputs_[i]).input = static_cast<int>(i);
  }
  for (const Node& node : graph.nodes()) {
    if (!node.inputs.empty() && !node.outputs.empty() && node.outputs[0]) found(node.outputs[0]) = compute(node);
  }
}

IndexSources::Found IndexSources::compute(const Node& node) {
  return node.op->elementwise() && !node.op->view ? arithmetic(node) : move(node);
}

IndexSources::Found IndexSources::arithmetic(const Node& node) {
  const TensorType& result = graph_.type(node.outputs[0]);
  Step step{.op = node.op, .attributes = node.attributes, .operands = {}};
  Found out;
  for (Value v : node.inputs) {
    if (!v || !add_operand(node, v, result, step, out)) return {};
  }
  if (out.input < 0 || node.op->random || node.outputs.size() != 1 || out.needs.size() >= most_steps) return {};
  const ScalarExpr expression = scalar_expression(query_of(graph_, node));
  int elements = 0;
  step.monotone = true;
  for (size_t i = 0; i < step.operands.size(); ++i) {
    const Tensor& constant = step.operands[i].constant;
    const Slope along = constant.empty() ? slope(expression, static_cast<int>(i)) : Slope(0);
    if (constant.empty() && out.largest_only && along != Slope(1)) return {};
    elements += constant.empty();
    step.monotone = step.monotone && along && (constant.empty() || constant.type().ndim() == 0);
  }
  step.monotone = step.monotone && elements == 1;
  out.truth = result.dtype == DType::boolean;
  out.in_order = out.in_order && result.elements() == graph_.type(inputs_[static_cast<size_t>(out.input)]).elements();
  out.step = static_cast<int>(steps_.size());
  out.needs.push_back(out.step);
  steps_.push_back(std::move(step));
  return out;
}

// Of an op that brings elements elsewhere, or takes the largest.
IndexSources::Found IndexSources::move(const Node& node) const {
  const OpDef& op = *node.op;
  if (!node.inputs[0]) return {};
  Found out = found(node.inputs[0]);
  if (takes_largest(graph_, node)) {
    out.largest_only = true;
  } else if (!only_moves(op) && op.moves != Moves::repeated) {
    return {};
  }
  out.in_order = out.in_order && op.view;
  return out;
}

// Whether an operand is made of the same input's elements as the others, or is a constant for each of them.
bool IndexSources::add_operand(const Node& node, Value v, const TensorType& result, Step& step, Found& out) const {
  const ValueInfo& info = graph_.value(v);
  if (info.kind == ValueKind::constant) {
    if (info.type.elements() == 1) {
      step.operands.push_back({.constant = info.data.reshaped({})});
      return true;
    }
    int input = -1;
    for (Value other : node.inputs) {
      if (other && found(other).input >= 0 && found(other).in_order) input = found(other).input;
    }
    if (input < 0) return false;
    step.operands.push_back({.constant = repeated(v, result, input)});
    return step.operands.back().is_constant();
  }
  const Found& from = found(v);
  if (from.input < 0) return false;
  // Truth values say which of two numbers counts, and as numbers they are 0 and 1, which no input's element is.
  if (from.truth && node.op->moves == Moves::converted) return false;
  if (out.input >= 0) {
    const int64_t all = graph_.type(inputs_[static_cast<size_t>(from.input)]).elements();
    if (from.input != out.input || !from.in_order || !out.in_order || from.largest_only || out.largest_only ||
        result.elements() != all || info.type.elements() != all)
      return false;
  }
  std::vector<int> needs;
  std::ranges::set_union(out.needs, from.needs, std::back_inserter(needs));
  out = {.input = from.input, .needs = std::move(needs), .in_order = from.in_order, .largest_only = from.largest_only};
  step.operands.push_back({.step = from.step});
  return true;
}

// A constant that is the same for each sample, laid out as the elements of one sample. Empty where it is not, or where
// elements no longer stand where the input has them.
Tensor IndexSources::repeated(Value constant, const TensorType& result, int input) const {
  const ValueInfo& info = graph_.value(constant);
  const ValueInfo& from = graph_.value(inputs_[static_cast<size_t>(input)]);
  if (from.batch_dim > 0 || result.ndim() < 1 || from.type.ndim() < 1 || result.elements() != from.type.elements() ||
      result.shape[0] != from.type.shape[0] || info.type.ndim() > result.ndim() ||
      (info.type.ndim() == result.ndim() && info.type.shape[0] != 1))
    return {};
  // By dimension of a sample, how far apart the constant has its elements; 0 where it is repeated.
  const Shape sample(result.shape.begin() + 1, result.shape.end());
  Shape strides(sample.size(), 0);
  int64_t stride = 1;
  for (size_t d = sample.size(), own = info.type.shape.size(); d-- > 0 && own-- > 0;) {
    if (info.type.shape[own] != 1) strides[d] = stride;
    stride *= info.type.shape[own];
  }
  Tensor out({info.type.dtype, {element_count(sample)}});
  for (int64_t i = 0; i < out.elements(); ++i) {
    int64_t at = 0, left = i;
    for (size_t d = sample.size(); d-- > 0; left /= sample[d]) at += left % sample[d] * strides[d];
    std::memcpy(static_cast<std::byte*>(out.data()) + i * dtype_bytes(info.type.dtype),
                static_cast<const std::byte*>(info.data.data()) + at * dtype_bytes(info.type.dtype),
                static_cast<size_t>(dtype_bytes(info.type.dtype)));
  }
  return out;
}

IndexSource IndexSources::of(Value v) const {
  const Found& last = found(v);
  IndexSource out{.input = last.truth ? -1 : last.input, .largest_only = last.largest_only, .arithmetic = {}};
  // A cast alone keeps the number.
  if (std::ranges::all_of(last.needs,
                          [&](int n) { return steps_[static_cast<size_t>(n)].op->moves == Moves::converted; }))
    return out;
  for (int n : last.needs) {
    Step step = steps_[static_cast<size_t>(n)];
    for (ElementArithmetic::Operand& operand : step.operands) {
      if (operand.step >= 0)
        operand.step = static_cast<int>(std::ranges::lower_bound(last.needs, operand.step) - last.needs.begin());
    }
    out.arithmetic.steps_.push_back(std::move(step));
  }
  return out;
}

}  // namespace epl
