#include "backends/cuda/library_call.h"

namespace epl::cuda {

Result<std::unique_ptr<PreparedCall>> prepare_call(const LibraryCall& call, const std::shared_ptr<Gpu>& gpu) {
  const auto* blas = std::get_if<BlasCall>(&call);
  if (blas == nullptr) return std::unique_ptr<PreparedCall>();
  EPL_TRY(require(gpu != nullptr, "without a GPU what a library needs is not known"));
  return prepare_blas(*blas, gpu);
}

}  // namespace epl::cuda
