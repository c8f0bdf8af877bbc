// What we call of NVML, which knows the machine's GPUs whether a process may use them or not: libnvidia-ml.so.1.
#pragma once

#include <string>

#include "backends/cuda/api/library.h"
#include "core/base/status.h"

namespace epl::cuda {

using NvmlCode = int;
using NvmlDevice = struct NvmlDeviceTag*;

struct NvmlMemory {
  unsigned long long total = 0, free = 0, used = 0;
};

inline constexpr NvmlCode nvml_success = 0;
inline constexpr int nvml_feature_enabled = 1;
inline constexpr unsigned nvml_most_links = 18;
inline constexpr int nvml_peer_by_nvlink = 2, nvml_peer_ok = 0;
// How far apart two devices are on the bus.
inline constexpr int nvml_same_board = 0, nvml_one_switch = 10, nvml_several_switches = 20, nvml_host_bridge = 30,
                     nvml_same_node = 40, nvml_system = 50;

// Each: our name, the library's, the version of CUDA that brought it, its parameters.
#define EPL_CUDA_NVML_FUNCTIONS(F)                                                                       \
  F(init, nvmlInit_v2, 5000, ())                                                                         \
  F(driver_version, nvmlSystemGetDriverVersion, 5000, (char* version, unsigned length))                  \
  F(device_at, nvmlDeviceGetHandleByPciBusId_v2, 5000, (const char* address, NvmlDevice* device))        \
  F(memory_info, nvmlDeviceGetMemoryInfo, 5000, (NvmlDevice device, NvmlMemory * memory))                \
  F(distance, nvmlDeviceGetTopologyCommonAncestor, 8000, (NvmlDevice one, NvmlDevice other, int* level)) \
  F(link_state, nvmlDeviceGetNvLinkState, 8000, (NvmlDevice device, unsigned link, int* active))         \
  F(peer_status, nvmlDeviceGetP2PStatus, 8000, (NvmlDevice one, NvmlDevice other, int capability, int* status))

struct Nvml {
#define EPL_CUDA_POINTER(name, symbol, since, parameters) NvmlCode(*name) parameters = nullptr;
  EPL_CUDA_NVML_FUNCTIONS(EPL_CUDA_POINTER)
#undef EPL_CUDA_POINTER
  const char* (*error_text)(NvmlCode code) = nullptr;
  std::string path;
};

extern const LibraryRow nvml_row;
Result<FoundLibrary> find_nvml(const std::string& folder);
// The library, opened and begun when it is first asked for. Training needs it not.
Result<const Nvml*> open_nvml(const std::string& folder);

}  // namespace epl::cuda
