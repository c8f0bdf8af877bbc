// What an update by gradients that are given (StepFacts::gradients_given) leaves out of a program: everything that only
// a batch can give.
#pragma once

#include <vector>

#include "core/program/local_graph.h"
#include "core/program/program.h"

namespace epl {

// By instruction of the program that `local` was lowered to: whether it is carried out. The forward and the backward
// pass are not, nor is what stores what comes of them. An error where the update needs something of theirs besides the
// gradients.
Result<std::vector<bool>> applied_instructions(const LocalGraph& local, const Program& program);

}  // namespace epl
