// How the ranks of a group come to be connected: each says at the rendezvous where it listens and what it is, compares
// that with what the others say, connects to those before it and is connected to by those behind it.
#pragma once

#include <vector>

#include "backends/cpu/connections.h"
#include "core/backend/device.h"

namespace epl::cpu {

// A connected socket for each rank but this one, which does not block.
Result<std::vector<Descriptor>> meet_peers(const Joining& joining, Rendezvous& rendezvous);

}  // namespace epl::cpu
