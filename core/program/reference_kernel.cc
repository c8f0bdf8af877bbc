#include "core/program/reference_kernel.h"

#include "core/backend/device.h"
#include "core/base/philox.h"
#include "core/ir/meaning.h"

namespace epl {
namespace {

void launch_reference(const KernelCall& call) {
  const KernelQuery& query = call.query;
  const StepNumbers numbers = call.context.numbers();
  const uint64_t seed = random_key(numbers.seed, static_cast<uint64_t>(numbers.step), query.key);
  LogicalElements elements;
  const Attribute* full = query.attributes.find(draws_in_full);
  const StepContext at = full && std::get<bool>(*full) ? StepContext{} : call.context;
  if (query.outputs() > 0) {
    const int64_t run = query.out(0).elements() / std::max<int64_t>(at.runs, 1),
                  unit = run / std::max<int64_t>(at.units, 1);
    elements = {at.first_unit * unit, at.runs > 1 ? run : 0, at.run_stride * unit};
  }
  static_cast<const Meaning*>(call.state)->run(call.inputs, call.outputs, seed, elements, call.workspace);
}

}  // namespace

Result<ChosenKernel> reference_kernel(const Node& node, const KernelQuery& query, const Device* device) {
  if (!node.op->reference && !node.op->elementwise() && !node.op->body) {
    return unsupported("op ", node.op->name, " has no meaning of its own").at(node.name);
  }
  if (device && !device->shares_host_memory()) {
    return unsupported("it runs on the host, which cannot read the memory of ", device->description()).at(node.name);
  }
  static const KernelRow row = {.op = "", .name = "reference", .launch = launch_reference};
  std::vector<const TensorType*> inputs, outputs;
  for (int i = 0; i < query.inputs(); ++i) inputs.push_back(query.has(i) ? &query.in(i) : nullptr);
  for (const TensorType& type : query.output_types) outputs.push_back(&type);
  EPL_ASSIGN(const OutputTypes types, infer_types(*node.op, node.attributes, inputs));
  if (types != query.output_types) return invalid("outputs have other types than the op gives").at(node.name);
  EPL_ASSIGN(auto meaning, Meaning::make(*node.op, node.attributes, inputs, outputs, query.units));
  const int64_t room = meaning->room_bytes();
  return ChosenKernel{&row, {.state = std::move(meaning), .workspace_bytes = room}};
}

}  // namespace epl
