// A program in the making, which goes through three hands: select.cc writes its instructions, lifetimes.cc finds out
// what has to be in memory when, layout.cc gives everything an address.
#pragma once

#include <vector>

#include "core/program/memory.h"
#include "core/program/program.h"

namespace epl {

// What shares one range of memory, and when it is alive, by instructions.
struct LiveRange {
  int64_t bytes = 0;
  int first = 0, last = 0;  // both included
  // Blocks that it lives in: more than one where it lives from one call to a later one of the same micro-batch. By
  // index in Program::blocks; -1: it is not bound to a micro-batch.
  int first_block = -1, last_block = -1;
  bool kept = false;  // must not share its memory while its loop runs: a send may still read it
  // The answer.
  int64_t offset = 0, stride = 0;
  int32_t slots = 1;
};

// Blocks whose calls come between each other's, or one that is called several times.
struct Loop {
  int first = 0, last = 0;              // instructions [first, last)
  int first_block = 0, last_block = 0;  // both included
  bool single() const { return first_block == last_block; }
};

struct Lowering {
  Lowering(const LocalGraph& local, Graph graph, const LowerOptions& options);

  const LocalGraph& local;
  const Graph graph;
  const LowerOptions& options;
  Program program;
  struct Operands {
    std::vector<Value> inputs, outputs;
  };
  std::vector<Operands> operands;  // by instruction
  std::vector<int> root;           // by value: the value whose memory it is
  std::vector<Location> place;     // by root; space none: the arena
  std::vector<Graph::Update> copies;

  // Lifetimes.
  std::vector<Loop> loops;
  std::vector<int> first, last;  // by root
  std::vector<int> range;        // by root, in `ranges`
  std::vector<int> workspace;    // by instruction, in `ranges`; -1: none
  std::vector<LiveRange> ranges;

  Instruction& append(const TransferRow* transfer, const std::string& name);
  int block_of(int position) const;         // index in Program::blocks
  const Loop* loop_of(int position) const;  // null: it is called once
};

Status select_instructions(Lowering& lowering);
void find_lifetimes(Lowering& lowering);
void lay_out_program(Lowering& lowering);

}  // namespace epl
