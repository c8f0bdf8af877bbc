// Outputs of a program that are whole on each process.
#pragma once

#include <cstddef>
#include <vector>

#include "core/runtime/world.h"

namespace epl {

// The process of the first rank that has an output, or a piece of it, gives it to the others. Its ranks have written
// theirs to `whole`. `room` is for a piece on its way.
Status share_output(World& world, const Mesh& mesh, const ProgramPort& port, std::byte* whole,
                    std::vector<std::byte>& room);

}  // namespace epl
