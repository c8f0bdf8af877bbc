#include "backends/cuda/api/nvml.h"

#include <mutex>

namespace epl::cuda {
namespace {

// It comes with the driver and has its version; which one that is says the driver.
int no_version(void*) { return 0; }

Result<FoundLibrary> fill_nvml(Nvml& nvml, const std::string& folder) {
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&nvml.name)},
      EPL_CUDA_NVML_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
          {"nvmlErrorString", 5000, reinterpret_cast<void**>(&nvml.error_text)},
  };
  return open_library(nvml_row, folder, functions);
}

}  // namespace

const LibraryRow nvml_row = {.what = "NVML, which knows memory and links of GPUs",
                             .file = "libnvidia-ml.so.1",
                             .packages = {.debian = "libnvidia-ml1 of nvidia-driver",
                                          .wheel = "none",
                                          .repository = "NVIDIA's driver, which it is part of"},
                             .wanted = 0,
                             .version = no_version};

Result<FoundLibrary> find_nvml(const std::string& folder) {
  Nvml nvml;
  return fill_nvml(nvml, folder);
}

Result<const Nvml*> open_nvml(const std::string& folder) {
  static std::mutex mutex;
  static Nvml nvml;
  static bool opened = false;
  const std::lock_guard lock(mutex);
  if (opened) return &nvml;
  EPL_ASSIGN(const FoundLibrary found, fill_nvml(nvml, folder));
  nvml.path = found.path;
  if (const NvmlCode code = nvml.init(); code != nvml_success) {
    const char* why = nvml.error_text(code);
    return unsupported(nvml_row.what, " (", nvml.path, ") does not start: ", why != nullptr ? why : "no reason given");
  }
  opened = true;
  return &nvml;
}

}  // namespace epl::cuda
