// Groups of ranks of one process on one device of a pack (pack_device.h).
//
// Who makes a call last carries it out, as commands of its own stream behind those of the others: copies, and
// reductions in our order. So ranks of one device need no library of collectives.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend/pack_stream.h"

namespace epl {

Result<std::vector<std::unique_ptr<Communicator>>> create_pack_group(std::shared_ptr<OpenedPack> opened,
                                                                     const std::string& name, int ranks);

}  // namespace epl
