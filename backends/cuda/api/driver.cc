#include "backends/cuda/api/driver.h"

#include <mutex>

namespace epl::cuda {
namespace {

int version_of_driver(void* library) {
  int version = 0;
  auto* const function = function_in<DriverCode (*)(int*)>(library, "cuDriverGetVersion");
  return function != nullptr && function(&version) == code_success ? version : 0;
}

// What helps where the driver does not start.
std::string_view start_hint(DriverCode code) {
  switch (code) {
    case code_no_device:
      return "; this process sees no GPU: the machine may have none, a container needs --gpus all, and an empty "
             "CUDA_VISIBLE_DEVICES hides all of them";
    case code_driver_mismatch:
      return "; the library and the kernel's module are of different versions: load the module again, or restart the "
             "machine";
    case code_not_supported:
    case code_unknown:
      return "; the kernel's module may not be loaded: nvidia-smi tells";
    default:
      return "";
  }
}

Result<FoundLibrary> fill_driver(Driver& driver, const std::string& folder) {
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&driver.name)},
      EPL_CUDA_DRIVER_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
  };
  return open_library(driver_row, folder, functions);
}

}  // namespace

const LibraryRow driver_row = {.what = "the NVIDIA driver",
                               .file = "libcuda.so.1",
                               .packages = {.debian = "libcuda1 of nvidia-driver, where that is 580 or later",
                                            .wheel = "none",
                                            .repository = "NVIDIA's driver 580 or later (in a container the host's "
                                                          "driver, by --gpus all)"},
                               .wanted = 13000,
                               .version = version_of_driver};

Result<FoundLibrary> find_driver(const std::string& folder) {
  Driver driver;
  return fill_driver(driver, folder);
}

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
  EPL_ASSIGN(const FoundLibrary found, fill_driver(driver, folder));
  driver.path = found.path;
  if (const DriverCode code = driver.init(0); code != code_success) {
    return unsupported("the NVIDIA driver (", driver.path, ") does not start: ", driver.text(code), start_hint(code));
  }
  if (const DriverCode code = driver.driver_version(&driver.version); code != code_success)
    return unsupported("the NVIDIA driver (", driver.path, ") does not say its version: ", driver.text(code));
  opened = true;
  return &driver;
}

}  // namespace epl::cuda
