// What people ask of a program: what each instruction is part of, and what is in memory when.
#pragma once

#include <string>
#include <vector>

#include "core/program/program.h"

namespace epl {

// By instruction: the phase of the node of the local graph that it carries out.
std::vector<Phase> phases_of(const Program& program, const LocalGraph& local);

// Bytes of the arena from the instruction that writes them first to the one that reads them last. Instructions are
// counted through the calls of a step.
struct Life {
  int64_t address = 0, bytes = 0;  // to the end of a line
  int64_t own_bytes = 0;           // without the rest of that line
  int first = 0, last = 0;
  // What is there, and from when on: a result of an instruction, or its workspace. What is written over an operand
  // comes after that operand.
  struct Content {
    int time = 0, instruction = 0, output = 0;  // -1: workspace
  };
  std::vector<Content> contents;  // ascending
};
struct Lives {
  std::vector<Life> ranges;
  int instructions = 0;
  std::vector<int> order;              // by time: the instruction
  std::vector<std::string> unwritten;  // instructions that read what none has written
};
Lives lives_of(const Program& program);

// What a rank has in the arena, in bytes, at each instruction of a step in the order of its calls.
std::vector<int64_t> live_bytes(const Program& program);

}  // namespace epl
