// A rank on a device of a pack in a group over processes. Its operands go through memory of the host, where ranks of
// the processor (the device cpu) meet for it. So who is in the group, what does not fit, who is missing, and the order
// of sums are theirs. Where each rank of a group has a device of its own and the pack's library brings them together,
// some calls go from device to device instead (pack_circle.h).
#pragma once

#include <memory>

#include "core/backend/device.h"
#include "core/backend/pack_circle.h"

namespace epl {

// As Device::join. A call keeps its caller until it has taken place. Its streams are of the device of `means`.
Result<std::unique_ptr<Communicator>> join_through_host(const Host& host, const Joining& joining,
                                                        Rendezvous& rendezvous, const CircleMeans& means);

}  // namespace epl
