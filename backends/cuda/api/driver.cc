#include "backends/cuda/api/driver.h"

#include <mutex>

#include "backends/cuda/api/library.h"

namespace epl::cuda {
namespace {

int version_of_driver(void* library) {
  int version = 0;
  auto* const function = function_in<DriverCode (*)(int*)>(library, "cuDriverGetVersion");
  return function != nullptr && function(&version) == code_success ? version : 0;
}

}  // namespace

std::string Driver::text(DriverCode code) const {
  const char *name = nullptr, *meaning = nullptr;
  if (error_name(code, &name) != code_success || name == nullptr) return cat("error ", code, " of the driver");
  if (error_text(code, &meaning) != code_success || meaning == nullptr) return name;
  return cat(name, ", ", meaning);
}

Result<const Driver*> open_driver(const std::string& folder) {
  static std::mutex mutex;
  static Driver driver;
  static bool opened = false;
  const std::lock_guard lock(mutex);
  if (opened) return &driver;
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&driver.name)},
      EPL_CUDA_DRIVER_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
  };
  EPL_ASSIGN(const FoundLibrary found,
             open_library({.what = "the NVIDIA driver",
                           .file = "libcuda.so.1",
                           .packages = "NVIDIA's driver 580 or later (Debian: libcuda1 of nvidia-driver; in "
                                       "a container the host's driver, by --gpus all)",
                           .wanted = 13000,
                           .version = version_of_driver},
                          folder, functions));
  driver.path = found.path;
  if (const DriverCode code = driver.init(0); code != code_success) {
    return unsupported("the NVIDIA driver (", driver.path, ") does not start: ", driver.text(code),
                       code == code_no_device ? "; this process sees no GPU" : "");
  }
  if (const DriverCode code = driver.driver_version(&driver.version); code != code_success)
    return unsupported("the NVIDIA driver (", driver.path, ") does not say its version: ", driver.text(code));
  opened = true;
  return &driver;
}

}  // namespace epl::cuda
