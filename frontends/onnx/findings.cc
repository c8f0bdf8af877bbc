// What the owner of a file should know before training it: signs that an exporter has spoilt it.
#include <map>

#include "frontends/onnx/importer.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

using Level = ModelFinding::Level;

// The opset that first had an operator, for those that exporters use under an older header.
const std::map<std::string_view, int64_t>& first_opsets() {
  static const std::map<std::string_view, int64_t> table = {{"LayerNormalization", 17}, {"GroupNormalization", 18}, {"Gelu", 20},
                                                            {"Attention", 23},          {"RMSNormalization", 23},   {"RotaryEmbedding", 23},
                                                            {"Swish", 24},              {"BitwiseAnd", 18},         {"Mish", 18},
                                                            {"CenterCropPad", 18},      {"Col2Im", 18},             {"GridSample", 16}};
  return table;
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
    bool dotted = tensor.name.find('.') != std::string_view::npos;
    if (dotted) ++named;
    if (!dotted && rule.judge(tensor).parameter && type->ndim() >= 2) {
      ++nameless;
      nameless_elements += type->elements();
      example = tensor.name;
    }
  }
  if (named > 0 && nameless > 0) {
    out.push_back({Level::warning, example,
                   cat(nameless, " weights (", grouped(nameless_elements), " numbers) have lost their names, so the exporter has folded parameters into constants. "
                       "Export again with torch.onnx.export(..., dynamo=True, optimize=False), or dynamo=False with do_constant_folding=False")});
  }
  bool dropout = false;
  int frozen = 0;
  std::string frozen_name;
  for (const Node& node : file_.graph.nodes) {
    std::string name(node.name.empty() ? (node.outputs.empty() ? node.op_type : node.outputs[0]) : node.name);
    dropout = dropout || node.op_type == "Dropout";
    if (node.op_type == "BatchNormalization") {
      int64_t training = 0;
      for (const Attribute& a : node.attributes) training = a.name == "training_mode" ? a.i : training;
      if (training == 0) {
        ++frozen;
        frozen_name = name;
      }
    }
    auto first = first_opsets().find(node.op_type);
    if (first != first_opsets().end() && node.domain.empty() && opset("") < first->second) {
      out.push_back({Level::note, name, cat(node.op_type, " exists since opset ", first->second, ", the file says ", opset(""), "; it is read as the newer operator")});
    }
  }
  if (frozen > 0) {
    out.push_back({Level::warning, frozen_name,
                   cat(frozen, " BatchNormalization node(s) are frozen: they use running statistics and never learn them. To train them export with "
                       "torch.onnx.export(..., dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)")});
  }
  if (file_.graph.nodes.empty()) out.push_back({Level::error, "", "the graph has no node"});
  for (const ModelPort& port : inputs_) {
    bool fixed = !port.dims.empty();
    for (const ModelDim& dim : port.dims) fixed = fixed && dim.size >= 0;
    if (fixed) out.push_back({Level::note, port.name, "every dimension is fixed in the file, the batch included"});
  }
  return out;
}

}  // namespace epl::onnx
