#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(all_to_all) {
  return {.doc = "Of each of the `parts` ranks of mesh axis `axis` the segment of its x, along dimension 0, that belongs to the rank at hand, in the order of the ranks.",
          .signature = "x -> y",
          .attributes = {{"axis", std::string("data"), true}, {"parts", int64_t{1}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            TensorType type = q.in(0);
            const int64_t parts = q.attributes().integer("parts");
            if (parts < 1 || type.ndim() == 0 || type.shape[0] % parts != 0) return invalid("dimension 0 of ", type.text(), " does not divide into ", parts, " segments");
            return OutputTypes{type};
          },
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

EPL_TRANSFER(all_to_all) { return collective_transfer(Collective::Kind::all_to_all, "from every rank of a group to every other a segment"); }

}  // namespace epl
