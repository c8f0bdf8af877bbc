// Ranks that are threads of several processes on one host: they exchange operands over TCP.
//
// In every call each rank sends a message to each other rank, if only to say what it calls, and waits for theirs.
// all_reduce does so twice: for its segments and for their sums. Operands are written when all messages are there: a
// call that fails has written nothing. A send does not wait for its receiver, and its operand is free when it returns.
#pragma once

#include <memory>

#include "core/backend/device.h"

namespace epl::cpu {

inline constexpr int max_socket_ranks = 256;  // each has a connection to each

// See Device::join. The rendezvous carries, for each rank, its address on this host, a number that only its peers know,
// and what it says of itself.
Result<std::unique_ptr<Communicator>> join_over_sockets(const Joining& joining, Rendezvous& rendezvous);

}  // namespace epl::cpu
