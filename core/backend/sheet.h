// What is known of a device: a sheet, or a table of what was measured.
//
// A device with a sheet need not be there. Plans are made for it, and nothing runs on it. A backend has rows of sheets,
// and others are read from files. A table is of a device that is there, and stands beside its name ("cpu@FILE").
#pragma once

#include <cstdint>
#include <string>

#include "core/backend/machine.h"
#include "core/base/status.h"

namespace epl {

struct DeviceSheet {
  std::string name;                    // "h100"
  std::string product;                 // as its driver calls it
  int capability = 0, processors = 0;  // as of epl_pack_device_facts
  int64_t memory_bytes = 0;            // that a process can have; each rank has a device of its own
  Machine machine;
};

// From a JSON file; docs/gpu.md has the keys. The name is the path.
Result<DeviceSheet> read_device_sheet(const std::string& path);

// From a JSON file, which `epl calibrate` writes; docs/calibration.md has the keys.
Result<Machine> read_machine_table(const std::string& path);

}  // namespace epl
