#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_gather) {
  return {.doc = "The x of all `parts` ranks of mesh axis `axis`, one behind the other along dimension 0.",
          .signature = "x -> y",
          .attributes = {{"axis", std::string("data"), true}, {"parts", int64_t{1}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            TensorType type = q.in(0);
            const int64_t parts = q.attributes().integer("parts");
            if (parts < 1 || type.ndim() == 0) return invalid(type.text(), " has no dimension to gather ", parts, " segments along");
            type.shape[0] *= parts;
            return OutputTypes{type};
          },
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

EPL_TRANSFER(all_gather) { return collective_transfer(Collective::Kind::all_gather, "the values of the ranks of a group, in their order, to each of them"); }

}  // namespace epl
