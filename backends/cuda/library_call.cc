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

using Made = Result<std::unique_ptr<PreparedCall>>;

template <class Call>
Made made(const Call& call, const Target* target, Made (*prepare)(const Call& call, std::shared_ptr<Gpu> gpu)) {
  EPL_TRY(require(target != nullptr, "without a GPU what a library needs is not known"));
  if (target->gpu == nullptr)
    return std::unique_ptr<PreparedCall>(std::make_unique<PlannedCall>(call.most_workspace_bytes));
  return prepare(call, target->gpu);
}

}  // namespace

Result<std::unique_ptr<PreparedCall>> prepare_call(const LibraryCall& call, const Target* target) {
  if (const auto* blas = std::get_if<BlasCall>(&call)) return made(*blas, target, prepare_blas);
  if (const auto* dnn = std::get_if<DnnCall>(&call)) return made(*dnn, target, prepare_dnn);
  return std::unique_ptr<PreparedCall>();
}

}  // namespace epl::cuda
