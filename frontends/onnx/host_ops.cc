// Operators of the host's own (core/ir/host_op.h): nodes that no row of ours knows.
#include "frontends/onnx/host_ops.h"

#include <algorithm>

#include "core/base/json.h"
#include "core/ir/host_op.h"
#include "frontends/onnx/importer.h"
#include "frontends/onnx/model.h"
#include "frontends/onnx/operators.h"
#include "frontends/onnx/schema.h"

namespace epl::onnx {
namespace {

// Tensors and graphs have no place in JSON; a host that needs them takes them as inputs.
Result<std::string> attributes_text(const Node& node) {
  namespace f = schema::AttributeProto;
  Json out = Json::object();
  for (const Attribute& a : node.attributes) {
    EPL_TRY(check_attribute(a, a.type));
    Json& value = out[a.name];
    switch (a.type) {
      case f::AttributeType_FLOAT:
        value = a.f;
        break;
      case f::AttributeType_INT:
        value = a.i;
        break;
      case f::AttributeType_STRING:
        value = std::string(a.s);
        break;
      case f::AttributeType_FLOATS:
        value = std::vector<float>(a.floats);
        break;
      case f::AttributeType_INTS:
        value = std::vector<int64_t>(a.ints);
        break;
      case f::AttributeType_STRINGS:
        value = std::vector<std::string>(a.strings.begin(), a.strings.end());
        break;
      default:
        return unsupported("attribute ", a.name, " of an op of the host's is no number, text or list of these");
    }
  }
  return print_json(out);
}

}  // namespace

const OpDef* host_op(const OnnxModel& model, const Node& node) {
  return model.host_ops() ? model.host_ops()->find(node.domain, node.op_type) : nullptr;
}

const OnnxOpRow& host_op_row() {
  static const OnnxOpRow row = {.name = "host op", .run = [](Import& i) {
                                  const OpDef& op = *host_op(i.importer().model(), i.node());
                                  const auto attributes = attributes_text(i.node());
                                  if (!attributes.ok()) return i.fail(attributes.status());
                                  std::vector<Var> inputs;
                                  for (int k = 0; k < i.inputs(); ++k) inputs.push_back(i.has(k) ? i.in(k) : Var());
                                  const std::vector<Var> outputs = emit_host_op(
                                      i.b, op, inputs, {{"attributes", *attributes}}, i.importer().source());
                                  for (int o = 0; o < std::min(i.outputs(), static_cast<int>(outputs.size())); ++o)
                                    if (i.wants(o)) i.set(o, outputs[static_cast<size_t>(o)]);
                                }};
  return row;
}

}  // namespace epl::onnx
