#include "core/program/reference_kernel.h"

#include <cstring>

#include "core/backend/device.h"
#include "core/base/philox.h"
#include "core/ir/op.h"

namespace epl {
namespace {

struct Meaning {
  const OpDef* op;
  Attributes attributes;
};

void launch_reference(const KernelCall& call) {
  const auto& meaning = *static_cast<const Meaning*>(call.state);
  const KernelQuery& query = call.query;
  std::vector<Tensor> inputs;
  for (int i = 0; i < query.inputs(); ++i) {
    inputs.push_back(query.has(i) ? Tensor(query.in(i), nullptr, call.inputs[i]) : Tensor());
  }
  uint64_t seed = random_key(call.context.seed, static_cast<uint64_t>(call.context.step), query.node);
  uint64_t first = 0;
  if (query.outputs() > 0)
    first = static_cast<uint64_t>(call.context.first_unit *
                                  (query.out(0).elements() / std::max<int64_t>(call.context.units, 1)));
  auto outputs = evaluate_op(*meaning.op, meaning.attributes, inputs, query.units, seed, first);
  EPL_CHECK(outputs.ok(), "reference of ", query.node, ": ", outputs.status().to_string());
  for (int o = 0; o < query.outputs(); ++o) {
    if (call.outputs[o]) std::memcpy(call.outputs[o], (*outputs)[o].data(), (*outputs)[o].bytes());
  }
}

}  // namespace

Result<ChosenKernel> reference_kernel(const Node& node, const Device* device) {
  if (!node.op->reference && !node.op->elementwise() && !node.op->body) {
    return unsupported("op ", node.op->name, " has no meaning of its own").at(node.name);
  }
  if (device && !device->shares_host_memory()) {
    return unsupported("it runs on the host, which cannot read the memory of ", device->description()).at(node.name);
  }
  static const KernelRow row = {.op = "", .name = "reference", .launch = launch_reference};
  return ChosenKernel{&row, {.state = std::make_shared<Meaning>(Meaning{node.op, node.attributes})}};
}

}  // namespace epl
