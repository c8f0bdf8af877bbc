// A program in the making. lower.cc has six steps: fusion.cc joins elementwise nodes, uploads.cc adds uploads for a
// device that cannot read the host's memory, select.cc writes the instructions, streams.cc says to which stream each
// one goes, lifetimes.cc finds out what has to be in memory when, and layout.cc gives everything an address. Then
// streams.cc orders the streams.
#pragma once

#include <vector>

#include "core/program/fusion.h"
#include "core/program/memory.h"
#include "core/program/program.h"

namespace epl {

// What shares one range of memory, and when it is alive, by instructions.
struct LiveRange {
  int64_t bytes = 0;
  int first = 0, last = 0;  // both included
  std::vector<int> uses;    // of interleaved blocks, whose calls may come in any order, the last use of each
  bool each = false;        // each micro-batch has its own; else it lives from the first iteration of `first` to the
                            // last iteration of `last`
  bool late = false;        // from the last iteration of `first`
  std::vector<int> sends;   // instructions that may read it until they are waited for
  MemoryKind memory = MemoryKind::device;
  Location at;  // the answer
};

// Interleaved blocks (block_is_interleaved), or another one that is called several times.
struct Loop {
  int first = 0, last = 0;  // instructions [first, last)
  bool interleaved = false;
};

struct Lowering {
  Lowering(const LocalGraph& local, Graph graph, RegionNodes regions, const LowerOptions& options);

  const LocalGraph& local;
  const Graph graph;
  const RegionNodes regions;
  const LowerOptions& options;
  Program program;
  struct Operands {
    std::vector<Value> inputs, outputs;
  };
  std::vector<Operands> operands;  // by instruction
  ByValue<Value> root;             // the value whose memory it is
  ByValue<Location> location;      // of a root; space none: the arena
  ByValue<MemoryKind> memory;      // of a root
  // Where it begins in the memory of its root, or that in the memory that it shares; none: at the beginning.
  struct ShardOffset {
    int32_t axis = -1;
    int64_t stride = 0;
    explicit operator bool() const { return axis >= 0; }
    friend bool operator==(const ShardOffset&, const ShardOffset&) = default;
  };
  ByValue<ShardOffset> shard_offset;
  std::vector<Graph::Update> copies;

  // Lifetimes.
  std::vector<Loop> loops;
  ByValue<int> first, last;    // of a root
  ByValue<int> range;          // of a root, in `ranges`
  std::vector<int> workspace;  // by instruction, in `ranges`; -1: none
  std::vector<LiveRange> ranges;

  Instruction& append(const TransferRow* transfer, const std::string& name);
  const Loop* loop_of(int position) const;  // null: it is called once
};

Status select_instructions(Lowering& lowering);
// Whether fetches have a stream of their own on a device.
bool copies_fetches(const Device& device);
// A stream for each instruction, and the events of sends, which lifetimes depend on.
void give_streams(Lowering& lowering);
void find_lifetimes(Lowering& lowering);
void lay_out_program(Lowering& lowering);
// What instructions of one stream wait for of others: that follows from addresses. `kinds`: Device::stream_kinds.
void order_streams(Program& program, int kinds);

}  // namespace epl
