#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(reduce_scatter) {
  return {.doc = "Of the sum of x over the `parts` ranks of mesh axis `axis`, by the binary tree over ranks, the segment along dimension 0 that belongs to the rank at hand.",
          .signature = "x -> y",
          .attributes = {{"axis", std::string("data"), true}, {"parts", int64_t{1}, true}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            TensorType type = q.in(0);
            const int64_t parts = q.attributes().integer("parts");
            if (parts < 1 || type.ndim() == 0 || type.shape[0] % parts != 0) return invalid("dimension 0 of ", type.text(), " does not divide into ", parts, " segments");
            type.shape[0] /= parts;
            return OutputTypes{type};
          },
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

EPL_TRANSFER(reduce_scatter) { return collective_transfer(Collective::Kind::reduce_scatter, "a segment of the sum over the ranks of a group"); }

}  // namespace epl
