// Ranks that are threads of several processes: they send each other what they have over TCP, so far on one host.
//
// In every call each rank sends to each other one a message, if only to say what it calls, and waits for theirs;
// all_reduce does so twice, for its segments and for their sums. Operands are written when all messages are there: a
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
