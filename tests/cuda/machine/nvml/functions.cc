// libnvidia-ml.so.1 for tests: the functions that the pack calls, about the devices of the machine. Two devices of one
// kind are joined by NVLink, others by a host bridge. A handle that it did not give is found.
#include <array>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/cuda/machine/control.h"

#define EPL_NVML extern "C" __attribute__((visibility("default"))) int

extern "C" {
int cuDeviceGetCount(int* count);
int cuDeviceGetName(char* name, int size, int device);
int cuDeviceTotalMem_v2(size_t* bytes, int device);
int cuDeviceGetPCIBusId(char* text, int size, int device);
}

namespace epl::cuda_nvml {
namespace {

enum Code : int { kSuccess = 0, kUninitialized = 1, kInvalidArgument = 2, kNotFound = 6, kInsufficientSize = 7 };
constexpr unsigned kLinks = 18;  // as an H100 has
constexpr int kHostBridge = 30, kByNvlink = 2, kNotSupported = 2;

bool begun = false;
std::array<char, 64> handles;  // a handle is the address of one of these

int devices() {
  int count = 0;
  return cuDeviceGetCount(&count) == 0 ? count : 0;
}

// -1: no handle of ours.
int index_of(const void* handle) {
  for (int i = 0; i < devices(); ++i)
    if (handle == &handles[static_cast<size_t>(i)]) return i;
  return -1;
}

bool alike(int one, int other) {
  char first[96] = "", second[96] = "";
  return cuDeviceGetName(first, sizeof first, one) == 0 && cuDeviceGetName(second, sizeof second, other) == 0 &&
         std::strcmp(first, second) == 0;
}

bool has_links(int device) {
  for (int other = 0; other < devices(); ++other)
    if (other != device && alike(device, other)) return true;
  return false;
}

// Of two handles; a code where one is none.
int both(const void* one, const void* other, int* first, int* second) {
  if (!begun) return kUninitialized;
  *first = index_of(one), *second = index_of(other);
  return *first < 0 || *second < 0 ? kInvalidArgument : kSuccess;
}

}  // namespace
}  // namespace epl::cuda_nvml

using namespace epl::cuda_nvml;

EPL_NVML nvmlInit_v2() {
  begun = true;
  return kSuccess;
}

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int code) {
  switch (code) {
    case kSuccess:
      return "Success";
    case kUninitialized:
      return "Uninitialized";
    case kInvalidArgument:
      return "Invalid Argument";
    case kNotFound:
      return "Not Found";
    default:
      return "Insufficient Size";
  }
}

EPL_NVML nvmlSystemGetDriverVersion(char* version, unsigned length) {
  if (!begun) return kUninitialized;
  constexpr char text[] = "580.65.06";
  if (version == nullptr) return kInvalidArgument;
  if (length < sizeof text) return kInsufficientSize;
  std::memcpy(version, text, sizeof text);
  return kSuccess;
}

EPL_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  if (!begun) return kUninitialized;
  if (address == nullptr || device == nullptr) return kInvalidArgument;
  for (int i = 0; i < devices(); ++i) {
    char own[32] = "";
    if (cuDeviceGetPCIBusId(own, sizeof own, i) != 0 || std::strcmp(own, address) != 0) continue;
    *device = &handles[static_cast<size_t>(i)];
    return kSuccess;
  }
  return kNotFound;
}

EPL_NVML nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  if (!begun) return kUninitialized;
  const int index = index_of(device);
  size_t total = 0;
  if (index < 0 || total_free_used == nullptr || cuDeviceTotalMem_v2(&total, index) != 0) return kInvalidArgument;
  const unsigned long long used = epl_test_machine_count(("used_" + std::to_string(index)).c_str());
  total_free_used[0] = total;
  total_free_used[1] = total - used;
  total_free_used[2] = used;
  return kSuccess;
}

EPL_NVML nvmlDeviceGetTopologyCommonAncestor(void* one, void* other, int* level) {
  int first = 0, second = 0;
  if (const int code = both(one, other, &first, &second); code != kSuccess) return code;
  *level = kHostBridge;
  return kSuccess;
}

EPL_NVML nvmlDeviceGetNvLinkState(void* device, unsigned link, int* active) {
  if (!begun) return kUninitialized;
  const int index = index_of(device);
  if (index < 0 || link >= kLinks || active == nullptr) return kInvalidArgument;
  *active = has_links(index) ? 1 : 0;
  return kSuccess;
}

EPL_NVML nvmlDeviceGetP2PStatus(void* one, void* other, int capability, int* status) {
  int first = 0, second = 0;
  if (const int code = both(one, other, &first, &second); code != kSuccess) return code;
  if (capability != kByNvlink || status == nullptr) return kInvalidArgument;
  *status = alike(first, second) ? 0 : kNotSupported;
  return kSuccess;
}
