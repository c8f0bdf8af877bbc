// What the owner of a file should know before training it: signs that an exporter has spoilt it.
#include "frontends/onnx/importer.h"
#include "frontends/onnx/operators.h"
#include "frontends/onnx/schema.h"
#include "frontends/onnx/weight_findings.h"

namespace epl::onnx {
namespace {

using Level = ModelFinding::Level;

void add_quantization_findings(const OnnxModel& model, std::vector<ModelFinding>& out) {
  const auto& weights = model.quantized().all();
  if (!weights.empty()) {
    int64_t elements = 0;
    for (const auto& [name, type] : weights) elements += type.elements();
    out.push_back({Level::note, std::string(weights[0].first),
                   cat(weights.size(), " weights (", grouped(elements),
                       " numbers), this one the first, are stored as integers; they are trained as the real numbers "
                       "that these stand for, and a "
                       "trained file holds real numbers")});
  }
  int64_t rounded = 0;
  std::string_view first, op;
  for (const Node& node : model.file().graph.nodes) {
    const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, model.opset(node.domain));
    if (row == nullptr || row->quantizes != Quantizes::gives || rounded++ > 0) continue;
    first = node.name.empty() ? node.outputs[0] : node.name;
    op = node.op_type;
  }
  if (rounded > 0) {
    out.push_back({Level::note, std::string(first),
                   cat(rounded, " ", op,
                       " node(s), this one the first, round what the model computes to the ranges that "
                       "the file has; training keeps both, and lets the gradient through "
                       "where a number is in range")});
  }
}

}  // namespace

std::vector<ModelFinding> OnnxModel::findings() const {
  std::vector<ModelFinding> out;
  ParameterRule rule(*this);
  int64_t named = 0, nameless = 0, nameless_elements = 0;
  std::string example;
  for (const Tensor& tensor : file_.graph.initializers) {
    auto type = tensor_type(tensor);
    if (!type.ok() || !is_float(type->dtype) || type->elements() <= 1) continue;
    const bool dotted = tensor.name.find('.') != std::string_view::npos;
    const bool lost = rule.keeps_names() ? rule.made_by_exporter(tensor.name) : !dotted;
    if (dotted) ++named;
    if (lost && rule.judge(tensor).parameter && type->ndim() >= 2) {
      ++nameless;
      nameless_elements += type->elements();
      example = tensor.name;
    }
  }
  if ((named > 0 || !rule.said_parameters().empty()) && nameless > 0) {
    out.push_back({Level::warning, example,
                   cat(nameless, " weights (", grouped(nameless_elements),
                       " numbers) have lost their names, so the exporter has folded parameters into constants. "
                       "Export again with torch.onnx.export(..., dynamo=True, optimize=False), or dynamo=False with "
                       "do_constant_folding=False")});
  }
  int frozen = 0;
  std::string frozen_name, frozen_op;
  for (const Node& node : file_.graph.nodes) {
    std::string name(node.name.empty() ? (node.outputs.empty() ? node.op_type : node.outputs[0]) : node.name);
    const OnnxOpRow* row = onnx_op_table().find(node.domain, node.op_type, opset(node.domain));
    if (row && row->learns && !row->learns(node, opset(node.domain))) {
      ++frozen;
      frozen_name = name;
      frozen_op = node.op_type;
    }
    const OperatorVersion* version = find_operator(node.domain, node.op_type, opset(node.domain));
    if (version && version->since > opset(node.domain)) {
      out.push_back({Level::note, name,
                     cat(node.op_type, " exists since opset ", version->since, ", the file says ", opset(node.domain),
                         "; it is read as the newer operator")});
    }
  }
  if (frozen > 0) {
    out.push_back({Level::warning, frozen_name,
                   cat(frozen, " ", frozen_op,
                       " node(s) are frozen: they use running statistics and never learn them. To "
                       "train them export with "
                       "torch.onnx.export(..., dynamo=False, training=torch.onnx.TrainingMode.TRAINING, "
                       "do_constant_folding=False)")});
  }
  add_weight_findings(*this, rule, out);
  add_quantization_findings(*this, out);
  if (file_.graph.nodes.empty()) out.push_back({Level::error, "", "the graph has no node"});
  for (const ModelPort& port : inputs_) {
    bool fixed = !port.dims.empty();
    for (const ModelDim& dim : port.dims) fixed = fixed && dim.size >= 0;
    if (fixed)
      out.push_back({Level::note, port.name,
                     "every dimension is fixed in the file, the batch included; --free-batch trains with another batch "
                     "where the graph allows it"});
  }
  return out;
}

}  // namespace epl::onnx
