// GPUs as data.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace epl::cuda_machine {

struct DeviceRow {
  std::string name;
  int major = 9, minor = 0;
  int64_t memory = 0;
  int processors = 132;
  int shared_per_processor = 0, shared_optin = 0;  // bytes
  int clock_khz = 0, memory_clock_khz = 0, bus_bits = 0;
  int64_t l2_bytes = 0;
  int blocks_per_processor = 32;
};

// "a100", "h100", "h200", "v100"; throws where there is none.
const DeviceRow& device_row(const std::string& name);

// The driver's numbered attributes; false where the machine does not know the number.
bool attribute(const DeviceRow& row, int number, int ordinal, int* value);

}  // namespace epl::cuda_machine
