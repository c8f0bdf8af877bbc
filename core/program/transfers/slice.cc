#include "core/ir/op.h"
#include "core/program/transfer.h"

namespace epl {

EPL_OP(batch_slice) {
  return {
      .doc =
          "The shard of x, along dimension `dim`, of `size` elements, that belongs to the current rank and "
          "micro-batch; its elements lie in `outer` equal runs, one in each of as many equal parts of the dimension.",
      .signature = "x -> y",
      .attributes = {{"dim", int64_t{0}, true},
                     {"size", int64_t{0}, true},
                     {"outer", int64_t{1}},
                     {"axes", std::string(), true}},
      .infer = [](const OpQuery& q) -> Result<OutputTypes> {
        TensorType type = q.in(0);
        type.shape[q.attributes().integer("dim")] = q.attributes().integer("size");
        return OutputTypes{type};
      },
      .no_gradient = "it is inserted after the gradients are known",
      .boundary = true};
}

EPL_TRANSFER(slice) {
  return {.doc = "the shard of a value that belongs to a rank and a micro-batch",
          .op = "batch_slice",
          .holds = "input",
          .from_caller = true,
          .gives_shard = true,
          .prepare =
              [](Instruction& in) {
                const TensorType& full = in.query->in(0);
                const Attributes& attributes = in.query->attributes;
                const int dim = static_cast<int>(attributes.integer("dim"));
                int64_t inner = static_cast<int64_t>(dtype_bytes(full.dtype));
                for (int d = dim + 1; d < full.ndim(); ++d) inner *= full.shape[d];
                const int64_t outer = attributes.integer("outer");
                in.slice = {outer, inner * attributes.integer("size") / outer, inner * full.shape[dim] / outer};
                for (int d = 0; d < dim; ++d) in.slice.outer *= full.shape[d];
              },
          .run = [](const TransferCall& call) -> Status {
            const Instruction::Slice& runs = call.in.slice;
            const std::byte* source = call.source + call.shard * runs.run_bytes;
            const bool of_caller = call.in.inputs[0].space == Location::Space::input;
            for (int64_t i = 0; i < runs.outer; ++i) {
              std::byte* const target = call.target + i * runs.run_bytes;
              const std::byte* const from = source + i * runs.global_bytes;
              if (of_caller) {
                call.take(target, from, runs.run_bytes);
              } else {
                call.stream.copy(target, from, runs.run_bytes);
              }
            }
            return {};
          }};
}

}  // namespace epl
