// Ranks of processes of one host: they exchange operands through memory that they share, and hear of each other's end
// over their sockets.
//
// A call goes in rounds. In a round each rank writes a part of its operands to a slot of its own, meets the others, and
// reads what it needs of their slots. Slots come in pairs, which rounds take in turn: who comes to a round has read all
// of the one before, so that one meeting for each round is enough. all_reduce writes in one round its part of one chunk
// and the sum of its segment of the chunk before; a small one takes one round, in which each rank reduces all.
//
// A meeting takes place for all ranks or for none: arrivals are counted in one word, which nobody changes once it is
// closed. So ranks agree on which calls took place, whoever ends. A call that fails may have written a part of its
// target.
//
// A send copies its operand into a ring of its pair and goes on. What the ring has no room for goes over the socket.
#pragma once

#include "backends/cpu/process_communicator.h"

namespace epl::cpu {

// Never waits: the first member makes the memory and tells the others where, who open it in their first call.
Result<std::unique_ptr<Communicator>> create_shared_communicator(const Ties& ties, Connections::Group& group, int rank);

}  // namespace epl::cpu
