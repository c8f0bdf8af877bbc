#include "backends/cuda/api/nvrtc.h"

#include <dlfcn.h>

#include <mutex>

namespace epl::cuda {
namespace {

int version_of_nvrtc(void* library) {
  int major = 0, minor = 0;
  auto* const function = function_in<NvrtcCode (*)(int*, int*)>(library, "nvrtcVersion");
  return function != nullptr && function(&major, &minor) == 0 ? major * 1000 + minor * 10 : 0;
}

// NVRTC opens its builtins by their name alone, wherever it lies itself. What is loaded already it finds.
void open_builtins(const Nvrtc& nvrtc) {
  int major = 0, minor = 0;
  if (nvrtc.version(&major, &minor) != 0) return;
  const std::string folder = nvrtc.path.substr(0, nvrtc.path.rfind('/') + 1);
  ::dlopen(cat(folder, "libnvrtc-builtins.so.", major, ".", minor).c_str(), RTLD_NOW | RTLD_LOCAL);
}

Result<FoundLibrary> fill_nvrtc(Nvrtc& nvrtc, const std::string& folder) {
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&nvrtc.name)},
      EPL_CUDA_NVRTC_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
          {"nvrtcGetErrorString", 7000, reinterpret_cast<void**>(&nvrtc.error_text)},
  };
  return open_library(nvrtc_row, folder, functions);
}

}  // namespace

const LibraryRow nvrtc_row = {.what = "NVRTC, the compiler of CUDA",
                              .file = "libnvrtc.so.13",
                              .packages = {.debian = "none of version 13 yet",
                                           .wheel = "nvidia-cuda-nvrtc 13.0",
                                           .repository = "cuda-nvrtc-13-0"},
                              .wanted = 13000,
                              .version = version_of_nvrtc};

Result<FoundLibrary> find_nvrtc(const std::string& folder) {
  Nvrtc nvrtc;
  return fill_nvrtc(nvrtc, folder);
}

Result<const Nvrtc*> open_nvrtc(const std::string& folder) {
  static std::mutex mutex;
  static Nvrtc nvrtc;
  static bool opened = false;
  const std::lock_guard lock(mutex);
  if (opened) return &nvrtc;
  EPL_ASSIGN(const FoundLibrary found, fill_nvrtc(nvrtc, folder));
  nvrtc.path = found.path;
  open_builtins(nvrtc);
  opened = true;
  return &nvrtc;
}

}  // namespace epl::cuda
