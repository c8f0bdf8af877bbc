// A rank on a device whose memory the host cannot read, in a group over processes: its operands go through memory of
// the host, where ranks of the processor (the device cpu) meet for it. So who is in the group, what does not fit, who
// is missing, and the order of sums are theirs.
#pragma once

#include <memory>

#include "core/backend/device.h"

namespace epl {

// As Device::join. A call keeps its caller until it has taken place.
Result<std::unique_ptr<Communicator>> join_through_host(const Host& host, const Joining& joining,
                                                        Rendezvous& rendezvous);

}  // namespace epl
