// How the ranks of a group get connected. Each says at the rendezvous where it listens and what it is, and compares
// that with what the others say. Then it connects to the ranks before it, and those behind it connect to it.
#pragma once

#include <vector>

#include "backends/cpu/connections.h"
#include "core/backend/device.h"

namespace epl::cpu {

// A connected socket for each rank but this one, which does not block.
Result<std::vector<Descriptor>> meet_peers(const Joining& joining, Rendezvous& rendezvous);

}  // namespace epl::cpu
