// What people ask of a program: what each instruction is part of, and what is in memory when.
#pragma once

#include <vector>

#include "core/program/program.h"

namespace epl {

// By instruction: the phase of the node of the local graph that it carries out.
std::vector<Phase> phases_of(const Program& program, const LocalGraph& local);

// What a rank has in the arena, in bytes, at each instruction of a step in the order of its calls.
std::vector<int64_t> live_bytes(const Program& program);

}  // namespace epl
