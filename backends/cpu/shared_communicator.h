// Ranks of processes of one host: they exchange operands through memory that they share, and hear of each other's end
// over their sockets.
//
// A call goes in rounds. In a round each rank writes a part of its operands to a slot of its own, waits for the others,
// and reads what it needs of their slots. Slots come in pairs, which rounds take in turn: who comes to a round has read
// all of the one before, so that one barrier for each round is enough. all_reduce writes in one round its part of one
// chunk and reads the sums of the chunk before, which the ranks of the segments have written over the parts; a small
// one takes one round, in which each rank reduces all.
//
// Caches decide how quick this is. A core that writes to a line that another one has only read waits several times as
// long as for a line that the other one has written, however many it asks for (two cores of a Zen 4: 2.3 GB/s against
// 20, or, of one L3 cache, 9 against 60). So whoever alone reads a part writes to it as well: see take_bytes.
//
// A barrier takes place for all ranks or for none: each counts its arrivals in a word, and who ends the group closes
// all of these words before anybody asks which barriers took place. So ranks agree on which calls did, whoever ends. A
// call that fails may have written a part of its target.
//
// A send copies its operand into a ring of its pair and goes on. What the ring has no room for goes over the socket.
#pragma once

#include "core/net/process_communicator.h"

namespace epl::cpu {

// Never waits: the first member makes the memory and tells the others where, who open it in their first call.
Result<std::unique_ptr<Communicator>> create_shared_communicator(const net::Ties& ties, net::Connections::Group& group,
                                                                 int rank);

}  // namespace epl::cpu
