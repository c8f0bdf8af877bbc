#include "backends/cuda/api/nccl.h"

#include <mutex>

namespace epl::cuda {
namespace {

// The library says 23203 for 2.32.3. Versions are shown as thousands and tens: 2320 as 2.32.
int version_of_nccl(void* library) {
  auto* const function = function_in<NcclCode (*)(int*)>(library, "ncclGetVersion");
  int version = 0;
  if (function == nullptr || function(&version) != nccl_success) return 0;
  return version / 10000 * 1000 + version / 100 % 100 * 10;
}

Result<FoundLibrary> fill_nccl(Nccl& nccl, const std::string& folder) {
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&nccl.name)},
      EPL_CUDA_NCCL_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
          {"ncclGetErrorString", 2000, reinterpret_cast<void**>(&nccl.code_text)},
      {"ncclGetLastError", 2130, reinterpret_cast<void**>(&nccl.last_error)}};
  return open_library(nccl_row, folder, functions);
}

}  // namespace

const LibraryRow nccl_row = {
    .what = "NCCL, NVIDIA's collectives over GPUs",
    .file = "libnccl.so.2",
    .packages = {.debian = "none for CUDA 13 yet", .wheel = "nvidia-nccl-cu13", .repository = "libnccl2"},
    .wanted = 2180,
    .version = version_of_nccl};

Result<FoundLibrary> find_nccl(const std::string& folder) {
  Nccl nccl;
  return fill_nccl(nccl, folder);
}

std::string Nccl::text(NcclCode code) const {
  const char *meaning = code_text(code), *before = last_error(nullptr);
  std::string out = meaning == nullptr ? cat("error ", code, " of NCCL") : std::string(meaning);
  if (before != nullptr && before[0] != '\0') out += cat(": ", excerpt(before, 300));
  return out;
}

Result<const Nccl*> open_nccl(const std::string& folder) {
  static std::mutex mutex;
  static Nccl nccl;
  static bool opened = false;
  const std::lock_guard lock(mutex);
  if (opened) return &nccl;
  EPL_ASSIGN(const FoundLibrary found, fill_nccl(nccl, folder));
  nccl.path = found.path;
  nccl.version = found.version;
  opened = true;
  return &nccl;
}

}  // namespace epl::cuda
