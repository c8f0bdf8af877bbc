#include "core/ir/op.h"
#include "core/program/memory.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

// Of one level of the tree.
int64_t level_bytes(const Instruction& in) { return aligned_bytes(in.bytes); }

// The binary tree over micro-batches as a binary counter: level b waits for its right half while bit b is clear.
Status accumulate(const TransferCall& call) {
  std::byte* levels = call.workspace + call.in.workspace_bytes;
  const std::byte* carry = call.source;
  int level = 0;
  for (; (call.micro_batch >> level) & 1; ++level) {
    std::byte* left = levels + level * level_bytes(call.in);
    launch_kernel(call, left, carry, left);
    carry = left;
  }
  const bool last = call.micro_batch + 1 == call.program.micro_batches();
  // Where their number is not a power of two, some levels still wait for a right half.
  for (int above = level + 1; last && (call.micro_batch >> above) != 0; ++above) {
    if (((call.micro_batch >> above) & 1) == 0) continue;
    std::byte* left = levels + above * level_bytes(call.in);
    launch_kernel(call, left, carry, left);
    carry = left;
  }
  call.stream.copy(last ? call.target : levels + level * level_bytes(call.in), carry, call.in.bytes);
  return {};
}

}  // namespace

EPL_OP(accumulate) {
  return {.doc = "The sum of x over the micro-batches of a loop, by the binary tree; complete when the loop has ended.",
          .signature = "x -> y",
          .infer = [](const OpQuery& q) -> Result<OutputTypes> { return OutputTypes{q.in(0)}; },
          .no_gradient = "it is inserted after the gradients are known",
          .boundary = true,
          .adds = true};
}

EPL_TRANSFER(accumulate) {
  return {.doc = "the sum over the micro-batches of a loop, whose iterations come in ascending order",
          .op = "accumulate",
          .kernel = "x0; x1; add(%0,%1) -> %2",
          .holds = "gradient",
          .at_last_iteration = true,
          .held_bytes =
              [](const Instruction& in, int64_t micro_batches) {
                int64_t levels = 0;
                while ((int64_t{1} << levels) < micro_batches) ++levels;
                return levels * level_bytes(in);
              },
          .run = accumulate};
}

}  // namespace epl
