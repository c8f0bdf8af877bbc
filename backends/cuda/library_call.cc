#include "backends/cuda/library_call.h"

namespace epl::cuda {
namespace {

class PlannedCall final : public PreparedCall {
 public:
  explicit PlannedCall(int64_t bytes) : bytes_(bytes) {}
  int64_t workspace_bytes() const override { return bytes_; }
  Status issue(const GpuStream&, std::span<const uint64_t>, uint64_t) const override {
    return invalid("a call of a library that was planned without a GPU");
  }

 private:
  const int64_t bytes_;
};

}  // namespace

Result<std::unique_ptr<PreparedCall>> prepare_call(const LibraryCall& call, const Target* target) {
  const auto* blas = std::get_if<BlasCall>(&call);
  if (blas == nullptr) return std::unique_ptr<PreparedCall>();
  EPL_TRY(require(target != nullptr, "without a GPU what a library needs is not known"));
  if (target->gpu == nullptr)
    return std::unique_ptr<PreparedCall>(std::make_unique<PlannedCall>(blas->most_workspace_bytes));
  return prepare_blas(*blas, target->gpu);
}

}  // namespace epl::cuda
