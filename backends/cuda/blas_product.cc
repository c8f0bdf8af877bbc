// A product of cuBLASLt: its descriptors and its algorithm. The library is asked once, when the kernel is prepared, and
// for sums in float32 alone: algorithms that round operands to fewer bits than they have are not wanted.
#include <algorithm>
#include <mutex>

#include "backends/cuda/library_call.h"

namespace epl::cuda {
namespace {

// Deleters that call the library, which stays open.
struct Freed {
  const BlasLt* library;
  void operator()(BlasOperation one) const { library->destroy_operation(one); }
  void operator()(BlasLayout one) const { library->destroy_layout(one); }
  void operator()(BlasPreference one) const { library->destroy_preference(one); }
};
template <class T> using Held = std::unique_ptr<std::remove_pointer_t<T>, Freed>;

// What the library says of operands of a type.
struct OperandType {
  int code;           // of a layout
  uint64_t numerics;  // how they are multiplied
};
OperandType operand_type(DType type) {
  constexpr uint64_t of_16_bits = blas_numerics_fma | blas_numerics_matrices | blas_numerics_sum_f32;
  switch (type) {
    case DType::f16:
      return {blas_f16, of_16_bits | blas_numerics_of_f16};
    case DType::bf16:
      return {blas_bf16, of_16_bits | blas_numerics_of_bf16};
    default:
      return {blas_f32, blas_numerics_fma | blas_numerics_sum_f32 | blas_numerics_of_f32};
  }
}
constexpr int64_t result_bytes = 4;

// What is chosen for: the call, or what is typical of such calls. Where a size is typical, the call's own may be any,
// and leading dimensions with it.
struct Typical {
  BlasCall call;
  uint32_t align_a, align_b, align_d;  // of all rows of a matrix, as they follow from sizes that do not vary

  explicit Typical(const BlasCall& of) : call(of) {
    const auto bytes = static_cast<int64_t>(dtype_bytes(call.type));
    align_a = fit(call.a, bytes, call.transpose_a ? call.a.columns : call.a.rows, call.typical_rows, !call.transpose_a);
    align_b =
        fit(call.b, bytes, call.transpose_b ? call.b.rows : call.b.columns, call.typical_columns, call.transpose_b);
    align_d = fit(call.d, result_bytes, call.d.rows, call.typical_rows, true);
    fit(call.d, result_bytes, call.d.columns, call.typical_columns, false);
    if (call.typical_batch > 0) call.batch = call.typical_batch;
    for (BlasCall::Matrix* one : {&call.a, &call.b, &call.d})
      if (one->stride != 0) one->stride = one->leading * one->columns;
  }

 private:
  // Gives `size`, one of the matrix, what is typical; the alignment of its rows then.
  static uint32_t fit(BlasCall::Matrix& matrix, int64_t element, int64_t& size, int64_t typical, bool leads) {
    uint32_t bytes = 16;
    while (element * matrix.leading % bytes != 0) bytes /= 2;
    if (typical == 0) return bytes;
    size = typical;
    if (!leads) return bytes;
    matrix.leading = typical;
    return static_cast<uint32_t>(element);
  }
};

class BlasProduct final : public PreparedCall {
 public:
  BlasProduct(const BlasCall& call, std::shared_ptr<Gpu> gpu, Gpu::Blas blas)
      : call_(call), type_(operand_type(call.type)), gpu_(std::move(gpu)), blas_(*blas.library), handle_(blas.handle) {}

  Status make() {
    const Gpu::Current current(*gpu_);
    EPL_TRY(current.status());
    EPL_TRY(make_operation());
    // Chosen for what is typical, and then asked whether it takes what is there.
    const Typical typical(call_);
    EPL_TRY(make_layouts(typical.call));
    EPL_TRY(choose(typical));
    EPL_TRY(make_layouts(call_));
    BlasChoice needs;
    EPL_TRY(check(
        blas_,
        blas_.check_algorithm(handle_, operation_.get(), a_.get(), b_.get(), d_.get(), d_.get(), &algorithm_, &needs),
        "cublasLtMatmulAlgoCheck"));
    workspace_bytes_ = static_cast<int64_t>(needs.workspace_bytes);
    return require(workspace_bytes_ <= offered_bytes(), "the algorithm wants more workspace than there is");
  }

  int64_t workspace_bytes() const override { return call_.most_workspace_bytes; }

  Status issue(const GpuStream& stream, std::span<const uint64_t> values, uint64_t workspace) const override {
    const auto at = [&](size_t i, const BlasCall::Matrix& matrix) {
      const int64_t bytes = i == 2 ? result_bytes : static_cast<int64_t>(dtype_bytes(call_.type));
      return reinterpret_cast<void*>(values[i] + static_cast<uint64_t>(bytes * matrix.first));
    };
    const float one = 1, zero = 0;
    const Gpu::Current current(*gpu_);
    EPL_TRY(current.status());
    // The bias is an attribute: the library reads it during the call.
    std::unique_lock lock(mutex_, std::defer_lock);
    if (call_.has_bias) {
      lock.lock();
      EPL_TRY(check(blas_, blas_.set_operation(operation_.get(), operation_bias, &values[3], sizeof values[3]),
                    "cublasLtMatmulDescSetAttribute"));
    }
    return check(blas_,
                 blas_.multiply(handle_, operation_.get(), &one, at(0, call_.a), a_.get(), at(1, call_.b), b_.get(),
                                &zero, at(2, call_.d), d_.get(), at(2, call_.d), d_.get(), &algorithm_,
                                reinterpret_cast<void*>(call_aligned(workspace)), static_cast<size_t>(workspace_bytes_),
                                stream.handle),
                 "cublasLtMatmul");
  }

 private:
  int64_t offered_bytes() const { return std::max<int64_t>(call_.most_workspace_bytes - call_alignment, 0); }

  template <class T> Status set(BlasCode (*how)(T, int, const void*, size_t), T to, int attribute, auto value) {
    return check(blas_, how(to, attribute, &value, sizeof value), "an attribute of cuBLASLt");
  }

  Status make_operation() {
    BlasOperation made = nullptr;
    EPL_TRY(check(blas_, blas_.create_operation(&made, blas_compute_f32, blas_f32), "cublasLtMatmulDescCreate"));
    operation_ = {made, Freed{&blas_}};
    EPL_TRY(set(blas_.set_operation, made, operation_transpose_a,
                int32_t{call_.transpose_a ? blas_transposed : blas_plain}));
    EPL_TRY(set(blas_.set_operation, made, operation_transpose_b,
                int32_t{call_.transpose_b ? blas_transposed : blas_plain}));
    return set(blas_.set_operation, made, operation_epilogue,
               uint32_t{call_.has_bias ? blas_epilogue_bias : blas_epilogue_none});
  }

  Status make_layouts(const BlasCall& call) {
    EPL_TRY(make_layout(call.a, type_.code, call.batch, a_));
    EPL_TRY(make_layout(call.b, type_.code, call.batch, b_));
    return make_layout(call.d, blas_f32, call.batch, d_);
  }
  Status make_layout(const BlasCall::Matrix& matrix, int type, int64_t batch, Held<BlasLayout>& to) {
    BlasLayout made = nullptr;
    EPL_TRY(check(blas_,
                  blas_.create_layout(&made, type, static_cast<uint64_t>(matrix.rows),
                                      static_cast<uint64_t>(matrix.columns), matrix.leading),
                  "cublasLtMatrixLayoutCreate"));
    to = {made, Freed{&blas_}};
    EPL_TRY(set(blas_.set_layout, made, layout_batch, static_cast<int32_t>(batch)));
    return set(blas_.set_layout, made, layout_batch_stride, batch == 1 ? int64_t{0} : matrix.stride);
  }

  Status choose(const Typical& typical) {
    BlasPreference made = nullptr;
    EPL_TRY(check(blas_, blas_.create_preference(&made), "cublasLtMatmulPreferenceCreate"));
    const Held<BlasPreference> preference{made, Freed{&blas_}};
    EPL_TRY(set(blas_.set_preference, made, preference_workspace, static_cast<uint64_t>(offered_bytes())));
    EPL_TRY(set(blas_.set_preference, made, preference_reductions,
                call_.splits_sums ? blas_reduction_apart : blas_reduction_none));
    EPL_TRY(set(blas_.set_preference, made, preference_numerics, type_.numerics));
    EPL_TRY(set(blas_.set_preference, made, preference_align_a, typical.align_a));
    EPL_TRY(set(blas_.set_preference, made, preference_align_b, typical.align_b));
    EPL_TRY(set(blas_.set_preference, made, preference_align_c, typical.align_d));
    EPL_TRY(set(blas_.set_preference, made, preference_align_d, typical.align_d));
    BlasChoice choice;
    int found = 0;
    EPL_TRY(
        check(blas_,
              blas_.choose(handle_, operation_.get(), a_.get(), b_.get(), d_.get(), d_.get(), made, 1, &choice, &found),
              "cublasLtMatmulAlgoGetHeuristic"));
    EPL_TRY(require(found == 1 && choice.state == blas_success, "cuBLASLt knows no algorithm for it"));
    algorithm_ = choice.algorithm;
    return {};
  }

  const BlasCall call_;
  const OperandType type_;
  const std::shared_ptr<Gpu> gpu_;
  const BlasLt& blas_;
  const BlasHandle handle_;
  Held<BlasOperation> operation_{nullptr, Freed{nullptr}};
  Held<BlasLayout> a_{nullptr, Freed{nullptr}}, b_{nullptr, Freed{nullptr}}, d_{nullptr, Freed{nullptr}};
  BlasAlgorithm algorithm_;
  int64_t workspace_bytes_ = 0;  // that the algorithm needs
  mutable std::mutex mutex_;     // of the bias
};

}  // namespace

Result<std::unique_ptr<PreparedCall>> prepare_blas(const BlasCall& call, std::shared_ptr<Gpu> gpu) {
  EPL_ASSIGN(const Gpu::Blas blas, gpu->blas());
  auto made = std::make_unique<BlasProduct>(call, std::move(gpu), blas);
  EPL_TRY(made->make());
  return std::unique_ptr<PreparedCall>(std::move(made));
}

}  // namespace epl::cuda
