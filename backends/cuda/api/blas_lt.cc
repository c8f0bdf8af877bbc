#include "backends/cuda/api/blas_lt.h"

#include <mutex>

namespace epl::cuda {
namespace {

// The library says 130100 for 13.1.0.
int version_of_blas_lt(void* library) {
  auto* const function = function_in<size_t (*)()>(library, "cublasLtGetVersion");
  if (function == nullptr) return 0;
  const auto version = static_cast<int>(function());
  return version / 10000 * 1000 + version / 100 % 100 * 10;
}

Result<FoundLibrary> fill_blas_lt(BlasLt& blas, const std::string& folder) {
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(result, name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&blas.name)},
      EPL_CUDA_BLAS_LT_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
  };
  return open_library(blas_lt_row, folder, functions);
}

}  // namespace

const LibraryRow blas_lt_row = {.what = "cuBLASLt, NVIDIA's matrix products",
                                .file = "libcublasLt.so.13",
                                .packages = {.debian = "none of version 13 yet",
                                             .wheel = "nvidia-cublas 13.0 or later",
                                             .repository = "libcublas-13-0"},
                                .wanted = 13000,
                                .version = version_of_blas_lt};

Result<FoundLibrary> find_blas_lt(const std::string& folder) {
  BlasLt blas;
  return fill_blas_lt(blas, folder);
}

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
  EPL_ASSIGN(const FoundLibrary found, fill_blas_lt(blas, folder));
  blas.path = found.path;
  blas.version = found.version;
  opened = true;
  return &blas;
}

}  // namespace epl::cuda
