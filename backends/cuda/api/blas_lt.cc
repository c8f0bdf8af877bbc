#include "backends/cuda/api/blas_lt.h"

#include <mutex>

#include "backends/cuda/api/library.h"

namespace epl::cuda {
namespace {

// The library says 130100 for 13.1.0.
int version_of_blas_lt(void* library) {
  auto* const function = function_in<size_t (*)()>(library, "cublasLtGetVersion");
  if (function == nullptr) return 0;
  const auto version = static_cast<int>(function());
  return version / 10000 * 1000 + version / 100 % 100 * 10;
}

}  // namespace

std::string BlasLt::text(BlasCode code) const {
  const char *name = code_name(code), *meaning = code_text(code);
  if (name == nullptr) return cat("error ", code, " of cuBLASLt");
  return meaning == nullptr ? std::string(name) : cat(name, ", ", meaning);
}

Result<const BlasLt*> open_blas_lt(const std::string& folder) {
  static std::mutex mutex;
  static BlasLt blas;
  static bool opened = false;
  const std::lock_guard lock(mutex);
  if (opened) return &blas;
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(result, name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&blas.name)},
      EPL_CUDA_BLAS_LT_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
  };
  EPL_ASSIGN(const FoundLibrary found,
             open_library({.what = "cuBLASLt, NVIDIA's matrix products",
                           .file = "libcublasLt.so.13",
                           .packages = "PyPI's nvidia-cublas 13.0 or later, or libcublas-13-0 of NVIDIA's repository",
                           .wanted = 13000,
                           .version = version_of_blas_lt},
                          folder, functions));
  blas.path = found.path;
  blas.version = found.version;
  opened = true;
  return &blas;
}

}  // namespace epl::cuda
