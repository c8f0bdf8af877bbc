// Outputs of a program that are replicated over the processes.
#pragma once

#include <cstddef>
#include <vector>

#include "core/runtime/world.h"

namespace epl {

// The process of the first rank that has an output, or a shard of it, gives it to the others. Its ranks have written
// theirs to `full`. `room` is for a shard on its way.
Status share_output(World& world, const Mesh& mesh, const ProgramPort& port, std::byte* full,
                    std::vector<std::byte>& room);

}  // namespace epl
