// Ops that only `partition` writes: the seams between pieces of the batch. They are carried out by the executor and the
// communicator, not by kernels.
#include "core/ir/op.h"

namespace epl {
namespace {

Result<OutputTypes> same(const OpQuery& q) { return OutputTypes{q.in(0)}; }

}  // namespace

EPL_OP(accumulate) {
  return {.doc = "The sum of x over the micro-batches of a loop, by the binary tree; complete when the loop has ended.",
          .signature = "x -> y",
          .infer = same,
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

EPL_OP(all_reduce) {
  return {.doc = "The sum of x over the ranks of mesh axis `axis`, by the binary tree over ranks.",
          .signature = "x -> y",
          .attributes = {{"axis", std::string("data"), true}},
          .infer = same,
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

EPL_OP(batch_slice) {
  return {.doc = "The piece of x, along dimension `dim`, of `size` elements, that belongs to the rank and micro-batch at hand; its elements lie "
                 "in `outer` equal runs, one in each of as many equal parts of the dimension.",
          .signature = "x -> y",
          .attributes = {{"dim", int64_t{0}, true}, {"size", int64_t{0}, true}, {"outer", int64_t{1}}},
          .infer = [](const OpQuery& q) -> Result<OutputTypes> {
            TensorType type = q.in(0);
            type.shape[q.attributes().integer("dim")] = q.attributes().integer("size");
            return OutputTypes{type};
          },
          .no_gradient = "it is placed after the gradients are known",
          .seam = true};
}

}  // namespace epl
