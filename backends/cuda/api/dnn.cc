#include "backends/cuda/api/dnn.h"

#include <mutex>

#include "core/base/text.h"

namespace epl::cuda {
namespace {

// The library says 92600 for 9.26.0. Versions are shown as thousands and tens: 9260 as 9.26.
int version_of_dnn(void* library) {
  auto* const function = function_in<size_t (*)()>(library, "cudnnGetVersion");
  if (function == nullptr) return 0;
  const auto version = static_cast<int>(function());
  return version / 10000 * 1000 + version / 100 % 100 * 10;
}

Result<FoundLibrary> fill_dnn(Dnn& dnn, const std::string& folder) {
  const FunctionRow functions[] = {
#define EPL_CUDA_ROW(result, name, symbol, since, parameters) {#symbol, since, reinterpret_cast<void**>(&dnn.name)},
      EPL_CUDA_DNN_FUNCTIONS(EPL_CUDA_ROW)
#undef EPL_CUDA_ROW
  };
  return open_library(dnn_row, folder, functions);
}

}  // namespace

// An engine's configuration says what workspace it needs since 9.2.
const LibraryRow dnn_row = {
    .what = "cuDNN, NVIDIA's convolutions",
    .file = "libcudnn.so.9",
    .packages = {.debian = "none for CUDA 13 yet", .wheel = "nvidia-cudnn-cu13", .repository = "libcudnn9-cuda-13"},
    .wanted = 9020,
    .version = version_of_dnn};

Result<FoundLibrary> find_dnn(const std::string& folder) {
  Dnn dnn;
  return fill_dnn(dnn, folder);
}

std::string Dnn::text(DnnCode code) const {
  const char* name = code_text(code);
  char said[512] = "";
  last_error(said, sizeof said);
  said[sizeof said - 1] = '\0';
  const std::string what = name == nullptr ? cat("error ", code, " of cuDNN") : std::string(name);
  return said[0] == '\0' ? what : cat(what, ": ", excerpt(said, 300));
}

Result<const Dnn*> open_dnn(const std::string& folder) {
  static std::mutex mutex;
  static Dnn dnn;
  static bool opened = false;
  const std::lock_guard lock(mutex);
  if (opened) return &dnn;
  EPL_ASSIGN(const FoundLibrary found, fill_dnn(dnn, folder));
  dnn.path = found.path;
  dnn.version = found.version;
  opened = true;
  return &dnn;
}

}  // namespace epl::cuda
