#include "backends/cuda/listing.h"

#include <algorithm>
#include <cstdio>

#include "backends/cuda/api/blas_lt.h"
#include "backends/cuda/api/dnn.h"
#include "backends/cuda/api/driver.h"
#include "backends/cuda/api/nccl.h"
#include "backends/cuda/api/nvml.h"
#include "backends/cuda/api/nvrtc.h"
#include "backends/cuda/gpu.h"

namespace epl::cuda {
namespace {

struct Known {
  const LibraryRow* row;
  Result<FoundLibrary> (*find)(const std::string& folder);
  bool needed;
};
// In the order in which they are opened.
constexpr Known known[] = {{&driver_row, find_driver, true},    {&nvrtc_row, find_nvrtc, true},
                           {&blas_lt_row, find_blas_lt, false}, {&dnn_row, find_dnn, false},
                           {&nvml_row, find_nvml, false},       {&nccl_row, find_nccl, false}};

template <size_t N> void copy_text(char (&to)[N], const std::string& text) { std::snprintf(to, N, "%s", text.c_str()); }

Status check_nvml(const Nvml& nvml, NvmlCode code, const char* call) {
  if (code == nvml_success) return {};
  const char* why = nvml.error_text(code);
  return error(Code::exhausted, call, " gave ", why != nullptr ? why : "no reason");
}

Result<Ordinal> device_of(const Driver& driver, int ordinal) {
  int devices = 0;
  EPL_TRY(check(driver, driver.device_count(&devices), "cuDeviceGetCount"));
  if (ordinal < 0 || ordinal >= devices)
    return unsupported("there is no GPU ", ordinal, "; this process sees ", devices, " (driver ", driver.path, ")");
  Ordinal device = 0;
  EPL_TRY(check(driver, driver.device(&device, ordinal), "cuDeviceGet"));
  return device;
}

// NVML numbers GPUs in another way, so that the address on the bus says which one is meant.
Result<NvmlDevice> nvml_device(const Nvml& nvml, const Driver& driver, int ordinal) {
  EPL_ASSIGN(const Ordinal device, device_of(driver, ordinal));
  char address[32] = "";
  EPL_TRY(check(driver, driver.device_address(address, sizeof address, device), "cuDeviceGetPCIBusId"));
  NvmlDevice found = nullptr;
  EPL_TRY(check_nvml(nvml, nvml.device_at(address, &found), "nvmlDeviceGetHandleByPciBusId"));
  return found;
}

Status add_nvml(const Nvml& nvml, const Driver& driver, int ordinal, epl_pack_device_facts& facts) {
  char version[80] = "";
  if (nvml.driver_version(version, sizeof version) == nvml_success) copy_text(facts.driver_name, version);
  EPL_ASSIGN(const NvmlDevice device, nvml_device(nvml, driver, ordinal));
  NvmlMemory memory;
  EPL_TRY(check_nvml(nvml, nvml.memory_info(device, &memory), "nvmlDeviceGetMemoryInfo"));
  // Of what the driver gives to kernels, which is less than there is.
  facts.free_bytes = std::min<uint64_t>(memory.free, facts.memory_bytes);
  int32_t links = 0;
  for (unsigned link = 0; link < nvml_most_links; ++link) {
    int active = 0;
    if (nvml.link_state(device, link, &active) == nvml_success && active == nvml_feature_enabled) ++links;
  }
  facts.links = links;
  return {};
}

const char* distance_text(int level) {
  switch (level) {
    case nvml_same_board:
      return "the same board";
    case nvml_one_switch:
      return "one PCIe switch";
    case nvml_several_switches:
      return "PCIe switches";
    case nvml_host_bridge:
      return "a PCIe host bridge";
    case nvml_same_node:
      return "PCIe host bridges of one NUMA node";
    default:
      return "the link between NUMA nodes";
  }
}

}  // namespace

Status check_capability(const std::string& name, int capability) {
  if (capability >= least_capability) return {};
  return unsupported(name.empty() ? "the GPU" : name, " is too old: it has compute capability ", capability / 10, ".",
                     capability % 10, ", and the compiler of CUDA 13 makes kernels for ", least_capability / 10, ".",
                     least_capability % 10, " (Turing, 2018) and later");
}

Status describe_gpu(const std::string& libraries, int ordinal, epl_pack_device_facts& facts) {
  if (facts.struct_size < sizeof facts) return unsupported("facts of an older interface; take both from one build");
  EPL_ASSIGN(const Driver* driver, open_driver(libraries));
  int major = 0, minor = 0, processors = 0;
  EPL_ASSIGN(const Ordinal device, device_of(*driver, ordinal));
  EPL_TRY(check(*driver, driver->device_name(facts.name, sizeof facts.name, device), "cuDeviceGetName"));
  size_t bytes = 0;
  EPL_TRY(check(*driver, driver->device_memory(&bytes, device), "cuDeviceTotalMem"));
  EPL_TRY(check(*driver, driver->device_attribute(&major, attribute_capability_major, device), "cuDeviceGetAttribute"));
  EPL_TRY(check(*driver, driver->device_attribute(&minor, attribute_capability_minor, device), "cuDeviceGetAttribute"));
  EPL_TRY(check(*driver, driver->device_attribute(&processors, attribute_processors, device), "cuDeviceGetAttribute"));
  EPL_TRY(check(*driver, driver->device_address(facts.address, sizeof facts.address, device), "cuDeviceGetPCIBusId"));
  facts.memory_bytes = bytes;
  facts.capability = 10 * major + minor;
  facts.processors = processors;
  facts.driver = driver->version;
  facts.links = -1;
  // Nothing depends on what it adds.
  if (const auto nvml = open_nvml(libraries); nvml.ok()) static_cast<void>(add_nvml(**nvml, *driver, ordinal, facts));
  return {};
}

Status describe_library(const std::string& libraries, int index, epl_pack_library& library) {
  if (library.struct_size < sizeof library) return unsupported("a struct of an older interface");
  if (index < 0 || index >= static_cast<int>(std::size(known))) return error(Code::not_found, "no further library");
  const Known& one = known[index];
  const uint64_t size = library.struct_size;
  library = {};
  library.struct_size = size;
  library.file = one.row->file;
  library.what = one.row->what;
  library.wanted = one.row->wanted;
  library.needed = one.needed;
  library.debian = one.row->packages.debian;
  library.wheel = one.row->packages.wheel;
  library.repository = one.row->packages.repository;
  copy_text(library.looked, looked_for(libraries));
  const Result<FoundLibrary> found = one.find(libraries);
  if (found.ok()) {
    copy_text(library.path, found->path);
    library.version = found->version;
    return {};
  }
  library.state = found.status().code() == Code::not_found ? EPL_PACK_MISSING : EPL_PACK_FAILED;
  copy_text(library.reason, found.status().message());
  return {};
}

Result<std::string> joined_by(const std::string& libraries, int ordinal, int other) {
  EPL_ASSIGN(const Driver* driver, open_driver(libraries));
  EPL_ASSIGN(const Nvml* nvml, open_nvml(libraries));
  EPL_ASSIGN(const NvmlDevice one, nvml_device(*nvml, *driver, ordinal));
  EPL_ASSIGN(const NvmlDevice two, nvml_device(*nvml, *driver, other));
  int status = 0;
  if (nvml->peer_status(one, two, nvml_peer_by_nvlink, &status) == nvml_success && status == nvml_peer_ok)
    return std::string("NVLink");
  int level = 0;
  EPL_TRY(check_nvml(*nvml, nvml->distance(one, two, &level), "nvmlDeviceGetTopologyCommonAncestor"));
  return std::string(distance_text(level));
}

}  // namespace epl::cuda
