// Our declarations of NVML against NVIDIA's own header (scripts/nvidia_headers.sh fetches it), as headers.cc does for
// the driver and for NVRTC.
#include <nvml.h>

#include <cstddef>

#include "backends/cuda/api/nvml.h"
#include "tests/cuda/alike.h"

namespace epl::cuda {
namespace {

static_assert(nvml_success == NVML_SUCCESS && nvml_feature_enabled == NVML_FEATURE_ENABLED &&
              nvml_most_links == NVML_NVLINK_MAX_LINKS && nvml_peer_by_nvlink == NVML_P2P_CAPS_INDEX_NVLINK &&
              nvml_peer_ok == NVML_P2P_STATUS_OK);
static_assert(nvml_same_board == NVML_TOPOLOGY_INTERNAL && nvml_one_switch == NVML_TOPOLOGY_SINGLE &&
              nvml_several_switches == NVML_TOPOLOGY_MULTIPLE && nvml_host_bridge == NVML_TOPOLOGY_HOSTBRIDGE &&
              nvml_same_node == NVML_TOPOLOGY_NODE && nvml_system == NVML_TOPOLOGY_SYSTEM);
static_assert(sizeof(NvmlMemory) == sizeof(nvmlMemory_t) &&
              offsetof(NvmlMemory, total) == offsetof(nvmlMemory_t, total) &&
              offsetof(NvmlMemory, free) == offsetof(nvmlMemory_t, free) &&
              offsetof(NvmlMemory, used) == offsetof(nvmlMemory_t, used));

#define EPL_SAME_IN_NVML(name, symbol, since, parameters) \
  static_assert(same<decltype(Nvml::name), decltype(&::symbol)>, #symbol);
EPL_CUDA_NVML_FUNCTIONS(EPL_SAME_IN_NVML)
static_assert(same<decltype(Nvml::error_text), decltype(&::nvmlErrorString)>);

}  // namespace
}  // namespace epl::cuda
