// Groups of ranks of one process on devices of a pack (pack_device.h).
//
// Who makes a call last carries it out, behind the commands of the others: copies, and reductions in our order. Where
// all ranks of a call are on one device, these are commands of its own stream; else each device has a stream for them
// (pack_peers.h). So no library of collectives is needed.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/pack_peers.h"
#include "core/backend/pack_stream.h"

namespace epl {

// Ranks may be on any of the devices, as the streams say that they call with. `options`: of calls between devices.
Result<std::vector<std::unique_ptr<Communicator>>> create_pack_group(std::vector<std::shared_ptr<OpenedPack>> devices,
                                                                     const PeerOptions& options,
                                                                     const std::string& name, int ranks);

}  // namespace epl
