// A pack that is a device (the verbs at the end of core/base/pack_abi.h) as a Device: its backend has a row here and
// all else in the pack.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "core/base/pack_abi.h"

namespace epl {

// Opens the devices of pack `name` that the options mean. Without the pack, without a library that it opens, without a
// driver or a device it is an error that says which, where it was looked for and what brings it. Plans are decided by
// the sheet of the product of the first one, where there is one.
Result<std::shared_ptr<Device>> open_pack_devices(const std::string& name, const Host& host,
                                                  const DeviceOptions& options,
                                                  std::span<const DeviceSheet> sheets = {});

// A device of the pack that need not be there: its kernels are prepared as for one that is, and nothing else is done.
Result<std::shared_ptr<Device>> plan_for_pack_device(const std::string& name, const Host& host,
                                                     const DeviceSheet& sheet);

// What of it the machine has.
struct PackDevices {
  struct Joined {
    int one, other;
    std::string by;
  };
  std::string missing;  // why there are none
  std::vector<epl_pack_device_facts> devices;
  std::vector<Joined> joined;
  std::vector<epl_pack_library> libraries;
};
// Opens the pack and its libraries, and begins them as training does.
PackDevices look_for_pack_devices(const std::string& name, const Host& host);

}  // namespace epl
