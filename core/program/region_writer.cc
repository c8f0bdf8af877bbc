#include "core/program/region_writer.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/ir/op.h"

namespace epl {

ScalarExpr expression_of(const Graph& graph, const Node& node) {
  std::vector<const TensorType*> inputs, outputs;
  for (Value input : node.inputs) inputs.push_back(input ? &graph.type(input) : nullptr);
  for (Value output : node.outputs) outputs.push_back(output ? &graph.type(output) : nullptr);
  return scalar_expression(OpQuery(*node.op, node.attributes, inputs, std::move(outputs)));
}

void RegionWriter::add(const Node& node) {
  node_ = {node.name, node.op->name, node.source};
  const ScalarExpr own = expression_of(graph_, node);
  std::vector<int> now;
  for (const ScalarExpr::Instruction& x : own.code) {
    if (x.op == ScalarOp::input) {
      now.push_back(operand(node.inputs[x.a]));
    } else if (x.op == ScalarOp::constant) {
      now.push_back(expression_.constant(x.value));
    } else if (x.op == ScalarOp::cast) {
      now.push_back(expression_.cast(now[x.a], x.type));
    } else {
      const auto argument = [&](int k) { return k < 0 ? -1 : now[k]; };
      now.push_back(expression_.emit(x.op, argument(x.a), argument(x.b), argument(x.c)));
    }
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i]) at_[node.outputs[i]] = now[own.outputs[i]];
  }
  nodes_.resize(expression_.code.size(), node_);
}

int RegionWriter::operand(Value value) {
  if (!value) return expression_.constant(0);  // as the reference has it
  int& at = at_[value];
  if (at < 0) {
    at = outside(value);
  } else if (const NodeId producer = graph_.value(value).producer; producer && is_member(producer)) {
    return rounded(at, graph_.type(value).dtype);
  }
  return at;
}

int RegionWriter::rounded(int at, DType type) {
  const ScalarExpr::Instruction& x = expression_.code[at];
  if (type == DType::f64 || x.op == ScalarOp::input || (x.op == ScalarOp::cast && x.type == type)) return at;
  if (type == DType::boolean && scalar_op_info(x.op).truth()) return at;
  nodes_.resize(expression_.code.size(), node_);
  const DoneNode producer = nodes_[at];
  const int rounds = expression_.cast(at, type);
  nodes_.resize(expression_.code.size(), producer);
  return rounds;
}

int RegionWriter::outside(Value value) {
  const ValueInfo& info = graph_.value(value);
  if (info.kind == ValueKind::constant && info.type.elements() == 1 && !is_integer(info.type.dtype)) {
    numbers_.push_back(value);
    return expression_.constant(info.data.get(0));
  }
  // What is only broadcast is read where it comes from.
  if (info.producer) {
    const Node& producer = graph_.node(info.producer);
    if (producer.op->moves == Moves::repeated && producer.region == graph_.node(NodeId{members_[0]}).region) {
      broadcast_.push_back(value);
      return expression_.input(input(producer.inputs[0]));
    }
  }
  return expression_.input(input(value));
}

int RegionWriter::input(Value value) {
  const auto found = std::ranges::find(inputs_, value);
  if (found != inputs_.end()) return static_cast<int>(found - inputs_.begin());
  inputs_.push_back(value);
  return static_cast<int>(inputs_.size()) - 1;
}

void RegionWriter::restore_shape() {
  if (reaches_shape()) return;
  for (const std::vector<Value>* dropped : {&broadcast_, &numbers_}) {
    for (Value value : *dropped) {
      input(value);
      if (reaches_shape()) return;
    }
  }
  EPL_CHECK(false, "a region of shape ", shape_, " has no operands of this shape");
}

bool RegionWriter::reaches_shape() const {
  if (inputs_.empty()) return false;
  Shape shape;
  for (Value value : inputs_) {
    auto joined = broadcast_shapes(shape, graph_.type(value).shape);
    if (!joined.ok()) return false;
    shape = *std::move(joined);
  }
  return shape == shape_;
}

ScalarExpr RegionWriter::finish() {
  restore_shape();
  expression_.inputs = std::ssize(inputs_);
  return expression_;
}

}  // namespace epl
