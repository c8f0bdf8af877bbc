// A pack that is a device (the verbs at the end of core/base/pack_abi.h) as a Device: its backend has a row here and
// all else in the pack.
#pragma once

#include <memory>
#include <string>

#include "core/backend/device.h"

namespace epl {

// Opens number `ordinal` of the devices of pack `name`. Without the pack, without a library that it opens, without a
// driver or a device it is an error that says which, where it was looked for and what brings it.
Result<std::shared_ptr<Device>> open_pack_device(const std::string& name, const Host& host, int ordinal);

}  // namespace epl
