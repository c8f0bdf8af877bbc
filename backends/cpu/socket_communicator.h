// Ranks of several processes that exchange their operands over TCP.
//
// In every call each rank sends a message to each other rank, if only to say what it calls, and waits for theirs.
// all_reduce does so twice: for its segments and for their sums. Operands are written when all messages are there: a
// call that fails has written nothing. A send does not wait for its receiver, and its operand is free when it returns.
//
// Where the job's transport is a pack (core/net/carrier.h), that moves the operands; what is called still goes over the
// sockets, and names the operand by the number that the carrier has given it.
#pragma once

#include "core/net/process_communicator.h"

namespace epl::cpu {

Result<std::unique_ptr<Communicator>> create_socket_communicator(const net::Ties& ties, net::Connections::Group& group,
                                                                 int rank);

}  // namespace epl::cpu
