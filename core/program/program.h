// What one rank executes: blocks of instructions with every address fixed. Rank numbers and micro-batch indices are
// parameters, so that a program does not grow with either.
//
// Memory of a rank: the arena (everything a step computes), the state (parameters, buffers, optimizer state), the
// constants, and the host scalars. A rank may have several memories. Kernels compute in that of the device; arena and
// state are in others as well. All of it is known here, before anything is allocated.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/kernel.h"
#include "core/backend/machine.h"
#include "core/base/stop.h"
#include "core/program/local_graph.h"

namespace epl {

// A location in memory: a memory, a space of it and an offset there. In the arena, `offset_table` is an index into
// Program::offset_tables where each micro-batch has an offset of its own. Of what ranks have shards of, side by side,
// `stride` is added for each shard before that of the rank: for each shard of the batch of an input, elsewhere for each
// coordinate before its own on the mesh's `axis`. So a shard is read and written inside the full tensor: the shard of a
// weight that a copy updates is never copied, and an all_gather of new weights fetches the shards of the others alone.
struct Location {
  enum class Space : uint8_t { none, arena, state, constant, scalar, input } space = Space::none;
  MemoryKind memory = MemoryKind::device;  // of arena and state
  int32_t index = 0;                       // which input
  int32_t offset_table = -1;               // -1: every micro-batch has `offset`
  int32_t axis = -1;                       // -1: it is no shard
  int64_t offset = 0;                      // of the first micro-batch
  int64_t stride = 0;
  friend bool operator==(const Location&, const Location&) = default;
  // Where kernels compute.
  bool in_arena() const { return space == Space::arena && memory == MemoryKind::device; }
};

struct TransferRow;  // core/program/transfer.h

// A node that an instruction does the work of, as it was before it was joined with others.
struct DoneNode {
  std::string name, op;
  std::string source;  // Node::source
};

// An event that is waited for. `each`: the first of those of all micro-batches, of which the current one has its own.
struct Wait {
  int event = 0;
  bool each = false;
  friend bool operator==(const Wait&, const Wait&) = default;
};

// What one call of a block waits for: the first stream before the call, or one instruction of it.
struct CallWait {
  int event = 0;
  int instruction = -1;  // -1: the call
};

// A launch of a kernel, or a transfer. It is issued to its stream behind what it waits for; what the streams are and
// how they are ordered stands in core/program/streams.cc.
struct Instruction {
  const TransferRow* transfer = nullptr;  // null: a launch of `row`
  std::string name;                       // of the node
  const KernelRow* row = nullptr;         // also of a transfer that has a kernel
  std::unique_ptr<KernelQuery> query;     // types, attributes; of transfers too
  Prepared prepared;                      // what the row answered
  std::vector<Location> inputs, outputs;
  Location workspace;
  int64_t workspace_bytes = 0;
  int64_t bytes = 0;        // moved by a transfer
  int port = -1;            // of Program::outputs, that it fills
  int group = -1;           // of Program::groups, that it takes
  std::vector<int> axes;    // of the mesh, whose shards it takes one of
  int stream = 0;           // of the rank's; the first one computes
  std::vector<Wait> waits;  // in every call
  int records = -1;  // the event behind it, in a loop that of the first micro-batch, which those of the others follow
  // The runs of a shard: `outer` runs of `run_bytes`, `global_bytes` apart in the full tensor and adjacent in the
  // shard.
  struct Slice {
    int64_t outer = 1, run_bytes = 0, global_bytes = 0;
  } slice;
  std::vector<Refusal> refusals;  // of better kernels, with their reasons
  // Of a region, the node of each instruction of its expression and, behind these, of each sum; else the node itself.
  std::vector<DoneNode> nodes;
  // Arena ranges that are dead after this instruction; `last_iteration`: only after the last iteration of the loop.
  struct Release {
    Location at;
    int64_t bytes = 0;
    bool last_iteration = false;
    bool sent = false;  // another stream, as that of a send, may still use it
  };
  std::vector<Release> releases;
};

struct Block {
  BlockId id;
  int first = 0, last = 0;  // instructions [first, last)
};

// Where state lies.
using StateLocation = std::pair<MemoryKind, int64_t>;

// A named tensor of the state, in order; `offset` in the state space of its memory.
struct StateSlot {
  std::string name;
  ValueKind kind = ValueKind::parameter;
  TensorType type;    // of all of it
  Sharding sharding;  // over the ranks of its virtual device
  TensorType local;   // what a rank holds of it
  int64_t offset = 0;
  MemoryKind memory = MemoryKind::device;
  Tensor initial;                   // of type `type`; empty: zeros
  std::string representative = {};  // of what is rank-local: the slot in whose place it lies, itself perhaps
  // It has no memory of its own.
  bool is_represented() const { return !representative.empty() && representative != name; }
  StateLocation location() const { return {memory, offset}; }
};

struct ProgramPort {
  std::string name;
  TensorType global_type, local_type;  // local: one micro-batch of one rank
  Sharding sharding;                   // by the batch: of one dimension, or of none
  Location location;                   // of an input
  int index = 0;                       // among the caller's tensors
  int dim() const { return sharding.cut_dim(batch_axis); }
};

// Ranks that transfers go over: those along an axis of the mesh, or a rank and one of another virtual device: the one
// that sends to it over a channel, or of those that it sends to the one of number `peer`, if there are as many.
struct ProgramGroup {
  std::string axis;
  int virtual_device = -1;
  int peer = -1;        // -1: the one that sends
  int64_t channel = 0;  // see channel_of
  friend bool operator==(const ProgramGroup&, const ProgramGroup&) = default;
};

// A number that the host sets before each step.
struct ProgramScalar {
  std::string name;
  Location location;
  int index = 0;  // among the caller's
};

// Where a device decides by itself whether a step is applied, among what the host sets for the step.
struct Decision {
  static constexpr int64_t applied = -1, undecided = INT64_MAX - 1, stopped = INT64_MAX;
  // Negative: the step is applied. What changes the state looks at it (Stream::guard).
  int64_t verdict = undecided;
  // What this rank says where its program has no verdict.
  int64_t wish = applied;
};

// What a program has in one memory.
struct ProgramMemory {
  MemoryKind kind = MemoryKind::device;
  int64_t arena_bytes = 0, arena_live_bytes = 0;  // the second is the largest set alive together
  int64_t state_bytes = 0;
  int64_t bytes() const { return arena_bytes + state_bytes; }
};

struct MemoryItem {
  std::string what;
  int64_t bytes = 0;
};

struct Program {
  std::string name;
  std::vector<Instruction> instructions;
  std::vector<Block> blocks;
  std::vector<BlockCall> calls;
  std::vector<std::vector<CallWait>> waits;         // by call, beside what its instructions wait for; ascending
  std::vector<std::vector<int64_t>> offset_tables;  // offsets in the arena, by micro-batch; see Location
  std::vector<ProgramGroup> groups;
  int streams = 1, events = 0;
  int numbers_event = -1;  // behind the upload of the scalars; -1: nobody waits for it
  // Gathers of weights come a layer ahead (prefetch.h): calls of a group have another order than on other devices.
  bool gathers_ahead = false;
  Mesh mesh;          // its axes; which ranks there are is the plan's
  BatchLayout batch;  // Plan::batch_of_virtual_device
  std::vector<ProgramPort> inputs, outputs;
  std::vector<StateSlot> state;
  std::vector<ProgramScalar> scalars;
  int64_t drawn_at = -1;    // where the step's StepNumbers lie among the scalars; -1: nothing draws
  int64_t decided_at = -1;  // the same of the step's Decision; -1: the host decides, or there is nothing to decide
  std::vector<Tensor> constants;  // in the order of the constant space
  std::vector<int64_t> constant_offsets;
  std::vector<ProgramMemory> memories = std::vector<ProgramMemory>(1);  // the first is that in which kernels compute
  int64_t constant_bytes = 0, scalar_bytes = 0;
  int max_operands = 0;
  bool commits = false;  // a step changes the state of this or another rank
  int commit_begin = 0;  // instructions before this one leave the state as it was
  double flops = 0;      // of one step of one rank

  int find(const BlockId& block) const;  // -1 if it is never called
  bool loops(int position) const;        // an instruction of a block that is called for every micro-batch
  // The index of a group, which is new where no instruction has named it.
  int group(const ProgramGroup& group);
  // What it has in a memory, which is new where nothing has named it.
  ProgramMemory& memory(MemoryKind kind);
  MemoryBytes arena_bytes() const;
  // Of a location in the arena.
  int64_t offset_of(const Location& at, int64_t micro_batch) const {
    return at.offset_table < 0 ? at.offset : offset_tables[at.offset_table][micro_batch];
  }
  int64_t micro_batches() const { return mesh.size(micro_batch_axis); }
  int64_t units() const { return batch.units_of_run(mesh); }
  // Of the memory in which kernels compute.
  int64_t memory_bytes_peak() const { return memories[0].bytes() + constant_bytes + scalar_bytes; }
};

// Lowers a local graph, in which composites without a kernel have been expanded (core/ir/expand.h), for a
// backend's kernels: elementwise regions are fused, kernels chosen, memory laid out. `threads` is the pool of one rank.
struct LowerOptions {
  const KernelTable* kernels = nullptr;
  // That kernels are prepared for; null: none, as far as they do without. Of a plan each virtual device takes the
  // device and the kernels of its own.
  Device* device = nullptr;
  int threads = 1;
  bool fuse = true;
  bool splits_keep_bits = false;  // KernelQuery
  BitsLevel level = BitsLevel::exact;
};
Result<Program> lower(const LocalGraph& local, const LowerOptions& options);

// All that follows from a plan, by virtual device. Whether splits keep bits is the plan's to say. `stop` is asked
// before each virtual device.
struct Lowered {
  std::vector<LocalGraph> locals;
  std::vector<Program> programs;
};
Result<Lowered> lower(const Plan& plan, LowerOptions options, const Stop& stop = {});

std::string print_program(const Program& program);
// Reads what print_program wrote; kernels are looked up in `kernels`. Constants and initial values come back as zeros.
Result<Program> parse_program(std::string_view text, const KernelTable& kernels);

}  // namespace epl
