#include "tests/cuda/machine/devices.h"

#include "tests/cuda/machine/fault.h"

namespace epl::cuda_machine {

const DeviceRow& device_row(const std::string& name) {
  static const std::map<std::string, DeviceRow> rows = {
      {"a100",
       {.name = "NVIDIA A100-SXM4-80GB",
        .major = 8,
        .memory = 85'899'345'920,
        .processors = 108,
        .shared_per_processor = 167'936,
        .shared_optin = 166'912,
        .clock_khz = 1'410'000,
        .memory_clock_khz = 1'593'000,
        .bus_bits = 5120,
        .l2_bytes = 41'943'040}},
      {"h100",
       {.name = "NVIDIA H100 80GB HBM3",
        .memory = 85'520'809'984,
        .shared_per_processor = 233'472,
        .shared_optin = 232'448,
        .clock_khz = 1'980'000,
        .memory_clock_khz = 2'619'000,
        .bus_bits = 5120,
        .l2_bytes = 52'428'800}},
      {"h200",
       {.name = "NVIDIA H200",
        .memory = 150'754'820'096,
        .shared_per_processor = 233'472,
        .shared_optin = 232'448,
        .clock_khz = 1'980'000,
        .memory_clock_khz = 3'201'000,
        .bus_bits = 6144,
        .l2_bytes = 62'914'560}},
      // Older than what kernels are made for.
      {"v100",
       {.name = "Tesla V100-SXM2-16GB",
        .major = 7,
        .memory = 16'935'419'904,
        .processors = 80,
        .shared_per_processor = 98'304,
        .shared_optin = 98'304,
        .clock_khz = 1'530'000,
        .memory_clock_khz = 877'000,
        .bus_bits = 4096,
        .l2_bytes = 6'291'456}},
  };
  const auto row = rows.find(name);
  if (row == rows.end()) throw Fault(kInvalidValue, "device '" + name + "' is none of a100, h100, h200, v100");
  return row->second;
}

bool attribute(const DeviceRow& row, int number, int ordinal, int* value) {
  const std::map<int, int> of_all = {
      {1, 1024},  {2, 1024}, {3, 1024},        {4, 64},     {5, 2147483647}, {6, 65535},  {7, 65535}, {8, 49152},
      {9, 65536}, {10, 32},  {11, 2147483647}, {12, 65536}, {14, 512},       {15, 1},     {17, 0},    {18, 0},
      {19, 1},    {20, 0},   {31, 1},          {32, 1},     {34, 0},         {35, 0},     {39, 2048}, {40, 3},
      {41, 1},    {50, 0},   {78, 1},          {82, 65536}, {83, 1},         {86, 0},     {87, 2},    {88, 0},
      {89, 1},    {90, 1},   {91, 1},          {95, 1},     {99, 1},         {111, 1024}, {115, 1}};
  const std::map<int, int> of_row = {{13, row.clock_khz},
                                     {16, row.processors},
                                     {33, ordinal + 1},
                                     {36, row.memory_clock_khz},
                                     {37, row.bus_bits},
                                     {38, static_cast<int>(row.l2_bytes)},
                                     {75, row.major},
                                     {76, row.minor},
                                     {81, row.shared_per_processor},
                                     {97, row.shared_optin},
                                     {106, row.blocks_per_processor}};
  for (const auto* table : {&of_all, &of_row}) {
    const auto found = table->find(number);
    if (found == table->end()) continue;
    *value = found->second;
    return true;
  }
  return false;
}

}  // namespace epl::cuda_machine
