// Collectives of one kind that need not come one by one become one node of several operands: ranks communicate once for
// all of them. On the CPU nothing moves beside computing, so one collective is best. A device that has streams for
// moving will want several collectives, by size.
#pragma once

#include "core/program/local_graph.h"

namespace epl {

// Each collective goes down to the first node of its block that needs a result of it or of one like it, and takes those
// that wait with it along. Gradients so wait for the end of the backward pass. No memory comes of it: what has been
// summed lies where the summands lay.
void join_collectives(LocalGraph& local);

}  // namespace epl
