// How the ranks of a group get connected. Each says at the rendezvous where it listens and what it is, and compares
// that with what the others say. Then it connects to the ranks before it, and those behind it connect to it.
#pragma once

#include <vector>

#include "backends/cpu/connections.h"
#include "backends/cpu/shared_memory.h"
#include "core/backend/device.h"

namespace epl::cpu {

struct MetPeers {
  std::vector<Descriptor> sockets;    // connected, by rank, none for this one; they do not block
  std::vector<SharedAddress> offers;  // memory that shows who can share; without a file from other hosts
};
// `offer` is this rank's.
Result<MetPeers> meet_peers(const Joining& joining, const SharedAddress& offer, Rendezvous& rendezvous);

}  // namespace epl::cpu
