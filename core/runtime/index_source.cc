#include "core/runtime/index_source.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/ir/index_range.h"
#include "core/ir/op.h"

namespace epl {
namespace {

// Keeps the order of numbers, or turns it round.
bool is_monotone(const OpDef& op) {
  return op.name == "add" || op.name == "sub" || op.name == "neg" || op.moves == Moves::converted;
}

// A larger element gives no smaller result.
bool grows(const Node& node, size_t operand) {
  return node.op->name == "add" || (node.op->name == "sub" && operand == 0) || node.op->moves == Moves::converted;
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

bool ElementArithmetic::monotone() const {
  return std::ranges::all_of(steps_, [](const Step& step) {
    const auto elements = std::ranges::count_if(step.operands, [](const Operand& o) { return !o.is_constant(); });
    const auto single = [](const Operand& o) { return !o.is_constant() || o.constant.type().ndim() == 0; };
    return is_monotone(*step.op) && elements == 1 && std::ranges::all_of(step.operands, single);
  });
}

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
  const OpDef& op = *node.op;
  const TensorType& result = graph_.type(node.outputs[0]);
  if (op.elementwise() && !op.view) {
    Step step{.op = &op, .attributes = node.attributes, .operands = {}};
    Found out;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i] || !add_operand(node, node.inputs[i], result, step, out)) return {};
      if (out.largest_only && !step.operands.back().is_constant() && !grows(node, i)) return {};
    }
    out.truth = result.dtype == DType::boolean;
    if (out.input < 0 || op.random || node.outputs.size() != 1 || out.needs.size() >= most_steps) return {};
    out.in_order = out.in_order && result.elements() == graph_.type(inputs_[static_cast<size_t>(out.input)]).elements();
    out.step = static_cast<int>(steps_.size());
    out.needs.push_back(out.step);
    steps_.push_back(std::move(step));
    return out;
  }
  return move(node);
}

// Of an op that brings elements elsewhere, or takes the largest.
IndexSources::Found IndexSources::move(const Node& node) const {
  const OpDef& op = *node.op;
  if (!node.inputs[0]) return {};
  Found out = found(node.inputs[0]);
  if (op.name == "max_reduce") {
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
  const Shape sample(result.shape.begin() + 1, result.shape.end());
  Shape own = info.type.shape;
  if (info.type.ndim() == result.ndim()) own.erase(own.begin());
  auto spread = evaluate_op(op_named("broadcast_to"), {{"shape", Ints(sample)}}, {info.data.reshaped(own)});
  if (!spread.ok()) return {};
  return spread->front().reshaped({element_count(sample)});
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
