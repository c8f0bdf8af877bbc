#include "core/ir/evaluate.h"

#include <cstddef>

#include "core/base/check.h"
#include "core/base/philox.h"
#include "core/ir/host_op.h"
#include "core/ir/meaning.h"
#include "core/ir/op.h"

namespace epl {
Result<std::vector<Tensor>> evaluate_op(const OpDef& op, const Attributes& attributes,
                                        const std::vector<Tensor>& inputs, Units units, uint64_t seed,
                                        const LogicalElements& elements) {
  std::vector<const TensorType*> input_types, output_types;
  std::vector<const void*> sources;
  for (const Tensor& input : inputs) {
    input_types.push_back(input.empty() ? nullptr : &input.type());
    sources.push_back(input.empty() ? nullptr : input.data());
  }
  EPL_ASSIGN(OutputTypes types, infer_types(op, attributes, input_types));
  for (const TensorType& type : types) output_types.push_back(&type);
  EPL_ASSIGN(auto meaning, Meaning::make(op, attributes, input_types, output_types, units));
  std::vector<Tensor> outputs;
  std::vector<void*> targets;
  for (size_t o = 0; o < types.size(); ++o) {
    outputs.push_back(meaning->writes(static_cast<int>(o)) ? Tensor(types[o]) : Tensor());
    targets.push_back(outputs.back().empty() ? nullptr : outputs.back().data());
  }
  std::vector<std::max_align_t> room(static_cast<size_t>(meaning->room_bytes()) / sizeof(std::max_align_t) + 1);
  try {
    meaning->run(sources.data(), targets.data(), seed, elements, room.data());
  } catch (const HostFailure& failure) {
    return failure.status;
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
    auto outputs = evaluate_op(*node.op, node.attributes, inputs, node.units, random_key(seed, 0, node.key_name()));
    if (!outputs.ok()) return outputs.status().with_context(cat("node ", node.name)).at(node.name);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i]) values[node.outputs[i].index] = (*outputs)[i];
    }
  }
  return values;
}

}  // namespace epl
