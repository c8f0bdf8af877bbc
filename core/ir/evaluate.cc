#include "core/ir/evaluate.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/ir/op.h"

namespace epl {
namespace {

// Walks the output's elements and, beside them, the elements of operands that broadcast to it.
class BroadcastIndex {
 public:
  BroadcastIndex(const Shape& output, const std::vector<const Tensor*>& operands)
      : output_(output), index_(output.size(), 0), at_(operands.size(), 0) {
    for (const Tensor* operand : operands) {
      Shape strides(output.size(), 0);
      if (operand) {
        Shape own = row_major_strides(operand->shape());
        size_t extra = output.size() - own.size();
        for (size_t i = 0; i < own.size(); ++i) strides[extra + i] = operand->shape()[i] == 1 ? 0 : own[i];
      }
      strides_.push_back(std::move(strides));
    }
  }
  int64_t at(size_t operand) const { return at_[operand]; }
  void next() {
    for (size_t d = output_.size(); d-- > 0;) {
      for (size_t k = 0; k < at_.size(); ++k) at_[k] += strides_[k][d];
      if (++index_[d] < output_[d]) return;
      for (size_t k = 0; k < at_.size(); ++k) at_[k] -= strides_[k][d] * output_[d];
      index_[d] = 0;
    }
  }

 private:
  const Shape& output_;
  Shape index_;
  std::vector<Shape> strides_;
  std::vector<int64_t> at_;
};

void evaluate_elementwise(const ScalarExpr& expr, const std::vector<const Tensor*>& inputs,
                          std::vector<Tensor>& outputs) {
  bool integral = true;
  for (const Tensor* in : inputs) integral &= !in || !is_float(in->dtype());
  for (const Tensor& out : outputs) integral &= !is_float(out.dtype());
  for (const auto& instruction : expr.code) {
    integral &= instruction.op != ScalarOp::cast || !is_float(instruction.type);
  }
  BroadcastIndex index(outputs[0].shape(), inputs);
  std::vector<double> in(inputs.size()), out(outputs.size()), values(expr.code.size());
  std::vector<int64_t> int_in(inputs.size()), int_out(outputs.size()), int_values(expr.code.size());
  for (int64_t i = 0; i < outputs[0].elements(); ++i, index.next()) {
    if (integral) {
      for (size_t k = 0; k < inputs.size(); ++k) int_in[k] = inputs[k] ? inputs[k]->get_int(index.at(k)) : 0;
      expr.evaluate(int_in.data(), int_out.data(), int_values.data());
      for (size_t k = 0; k < outputs.size(); ++k) outputs[k].set_int(i, int_out[k]);
    } else {
      for (size_t k = 0; k < inputs.size(); ++k) in[k] = inputs[k] ? inputs[k]->get(index.at(k)) : 0;
      expr.evaluate(in.data(), out.data(), values.data());
      for (size_t k = 0; k < outputs.size(); ++k) outputs[k].set(i, out[k]);
    }
  }
}

Result<std::vector<Tensor>> evaluate_body(const OpDef& op, const Attributes& attributes,
                                          const std::vector<Tensor>& inputs, uint64_t seed) {
  Graph graph;
  Builder builder(graph);
  std::vector<Var> leaves;
  std::map<Value, Tensor> data;
  for (const Tensor& input : inputs) {
    if (input.empty()) {
      leaves.emplace_back();
      continue;
    }
    Value leaf = graph.add_input("x", input.type());
    data[leaf] = input;
    leaves.push_back(builder.var(leaf));
  }
  std::vector<Var> outputs = expand_body(builder, op, attributes, leaves);
  EPL_TRY(builder.status());
  EPL_ASSIGN(std::vector<Tensor> values, evaluate_graph(graph, data, seed));
  std::vector<Tensor> results;
  for (const Var& output : outputs) results.push_back(output ? values[output.value().index] : Tensor());
  return results;
}

}  // namespace

Result<std::vector<Tensor>> evaluate_op(const OpDef& op, const Attributes& attributes,
                                        const std::vector<Tensor>& inputs, Units units, uint64_t seed,
                                        uint64_t first_element) {
  std::vector<const TensorType*> input_types, output_types;
  std::vector<const Tensor*> input_tensors;
  for (const Tensor& input : inputs) {
    input_types.push_back(input.empty() ? nullptr : &input.type());
    input_tensors.push_back(input.empty() ? nullptr : &input);
  }
  EPL_ASSIGN(OutputTypes types, infer_types(op, attributes, input_types));
  // The body first: a record with both gives its reference for units' sake or for speed.
  if (!op.elementwise() && !op.reference) return evaluate_body(op, attributes, inputs, seed);
  std::vector<Tensor> outputs;
  std::vector<Tensor*> output_tensors;
  for (const TensorType& type : types) outputs.emplace_back(type);
  for (Tensor& output : outputs) {
    output_tensors.push_back(&output);
    output_types.push_back(&output.type());
  }
  OpQuery query(op, attributes, input_types, output_types);
  if (op.elementwise()) {
    evaluate_elementwise(scalar_expression(query), input_tensors, outputs);
  } else {
    op.reference(Reference(query, input_tensors, output_tensors, units, seed, first_element));
  }
  return outputs;
}

Result<std::vector<Tensor>> evaluate_graph(const Graph& graph, const std::map<Value, Tensor>& leaves, uint64_t seed) {
  std::vector<Tensor> values(graph.value_count());
  for (int i = 0; i < graph.value_count(); ++i) {
    const ValueInfo& info = graph.value(Value{i});
    auto given = leaves.find(Value{i});
    if (given != leaves.end()) {
      if (given->second.type() != info.type) {
        return invalid(info.name, " is ", info.type.text(), ", got ", given->second.type().text());
      }
      values[i] = given->second;
    } else if (info.kind != ValueKind::result) {
      EPL_ASSIGN(values[i], info.data.load());
    }
  }
  for (const Node& node : graph.nodes()) {
    std::vector<Tensor> inputs;
    for (Value input : node.inputs) {
      if (input && values[input.index].empty()) return invalid("no value for ", graph.value(input).name).at(node.name);
      inputs.push_back(input ? values[input.index] : Tensor());
    }
    auto outputs = evaluate_op(*node.op, node.attributes, inputs, node.units, random_key(seed, 0, node.name));
    if (!outputs.ok()) return outputs.status().with_context(cat("node ", node.name)).at(node.name);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i]) values[node.outputs[i].index] = (*outputs)[i];
    }
  }
  return values;
}

}  // namespace epl
