// Transfers: the instructions that are not kernels. They move values between ranks, between the full batch and its
// shards, between the iterations of a loop, and to the caller. Each is a row in a file of core/program/transfers, with
// the record of the op that stands for it in the local graph; nothing else knows them by name.
//
//   EPL_OP(all_reduce) {
//     return collective_op("The sum of each x over the ranks of mesh axis `axis`, by the binary tree.",
//     Segments::none);
//   }
//   EPL_TRANSFER(all_reduce) {
//     return collective_transfer(Collective::Kind::all_reduce, "the sum over the ranks of a group, to each of them");
//   }
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/ir/op.h"
#include "core/program/program.h"

namespace epl {

// One execution. Addresses are those of the device, but for `output`.
struct TransferCall {
  const Program& program;
  const Instruction& in;
  Stream& stream;
  const StepContext& context;
  Communicator* group;  // that the instruction names, or null
  int64_t micro_batch;
  const MeshCoordinates& coordinates;
  int64_t shard;                         // at these coordinates, of those that the instruction's axes make
  const std::byte* source;               // inputs[0]
  std::byte* target;                     // outputs[0]
  std::span<const void* const> sources;  // all inputs
  std::span<void* const> targets;        // all outputs
  std::span<Collective> calls;           // room for one for each operand
  std::byte* workspace;
  void* output;  // where the caller wants the port, null: not at all, or not from this rank
};

struct TransferRow {
  std::string name, doc;
  // The op whose nodes it carries out; empty: lowering writes it where it is due.
  std::string op;
  // The expression of an elementwise kernel on operands like its own, which it launches; empty: none.
  std::string kernel;
  // What its result is in a picture of the arena ("input", "gradient"); empty: see the phase of its node.
  std::string holds;
  bool from_caller = false;  // it reads a caller's tensor itself, wherever that is
  bool grouped = false;      // it takes the group that its attribute `axis` names
  bool joins = false;        // several of its nodes may become one (join_collectives)
  bool in_place = false;     // a result may be written over its own operand
  bool gives_shard = false;  // its result is a shard of its operand, which may be read where it lies
  bool gathers = false;      // an operand may be the rank's own segment of its result
  bool scatters = false;     // its result is the rank's shard of a sum
  // Its attribute with the virtual device of which a rank is the other one; empty: none. See ProgramGroup.
  std::string counterpart;
  bool sends = false;              // has a stream of its own: nobody waits for it before its source is written again
  bool fetches = false;            // its operand is in another memory than that in which kernels compute
  bool evicts = false;             // its result is in the memory that its attribute `memory` names
  bool decides = false;            // whether the step is applied, with all ranks: see Program::decided_at
  bool at_last_iteration = false;  // its result is there after the last iteration of its loop
  // What it calls of its group, once for each operand; none: no group, or messages that depend on the rank.
  std::optional<Collective::Kind> call;
  void (*prepare)(Instruction& in) = nullptr;               // once, from the query
  int64_t (*moved_bytes)(const Instruction& in) = nullptr;  // over the group; absent: all of the larger side
  // Behind the kernel's workspace, kept from iteration to iteration.
  int64_t (*held_bytes)(const Instruction& in, int64_t micro_batches) = nullptr;
  Status (*run)(const TransferCall& call) = nullptr;  // issues to the stream; must not allocate
};
using TransferTable = TableOf<TransferRow>;
const TransferTable& transfer_table();                     // generated
const TransferRow& transfer_named(std::string_view name);  // one that must be there
const TransferRow* transfer_of(std::string_view op);       // null: nodes of this op are launched
const TransferRow* find_transfer(std::string_view name);

// The group of a row with a counterpart, from the attributes of its node.
Result<ProgramGroup> counterpart_group(const TransferRow& row, const Attributes& attributes);
// Makes the query that of the row's kernel: operands like the first one, as many as the expression takes.
void take_kernel(const TransferRow& row, KernelQuery& query);
// Bytes of its operands or of its results, whichever are more, or what its row says that it moves.
int64_t largest_side(const Instruction& in);
// The calls of its group, each with its bytes as CostModel::collective takes them; none where its row has no `call`.
struct GroupCall {
  Collective::Kind kind = Collective::Kind::barrier;
  double bytes = 0;
  int64_t elements = 0;  // of these bytes
};
std::vector<GroupCall> group_calls(const Instruction& in, int64_t ranks);
void launch_kernel(const TransferCall& call, const void* a, const void* b, void* result);

// What a collective does with dimension 0: nothing, exchanges its segments, gathers one of each of `parts` ranks, or
// leaves one to each.
enum class Segments : uint8_t { none, exchanged, gathered, scattered };
// The record of an op that one call of a communicator carries out; its attribute `axis` names the group.
OpDef collective_op(std::string doc, Segments segments);
// And the transfer of that op.
TransferRow collective_transfer(Collective::Kind kind, std::string doc);

#define EPL_TRANSFER(row_name) EPL_ROW(EPL_TRANSFER, row_name, ::epl::TransferTable, ::epl::TransferRow)

}  // namespace epl
