// Our declarations of cuBLASLt against NVIDIA's own header (scripts/nvidia_headers.sh fetches it), as headers.cc does
// for the driver and for NVRTC; and the attributes that the stand-in of the tests knows.
#include <cublasLt.h>

#include "backends/cuda/api/blas_lt.h"
#include "tests/cuda/alike.h"
#include "tests/cuda/machine/blas_lt/attributes.h"

namespace epl::cuda {
namespace {

static_assert(blas_success == CUBLAS_STATUS_SUCCESS && blas_not_initialized == CUBLAS_STATUS_NOT_INITIALIZED &&
              blas_alloc_failed == CUBLAS_STATUS_ALLOC_FAILED && blas_invalid_value == CUBLAS_STATUS_INVALID_VALUE &&
              blas_arch_mismatch == CUBLAS_STATUS_ARCH_MISMATCH &&
              blas_execution_failed == CUBLAS_STATUS_EXECUTION_FAILED &&
              blas_internal_error == CUBLAS_STATUS_INTERNAL_ERROR && blas_not_supported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(blas_f32 == CUDA_R_32F && blas_f16 == CUDA_R_16F && blas_bf16 == CUDA_R_16BF &&
              blas_compute_f32 == CUBLAS_COMPUTE_32F && blas_plain == CUBLAS_OP_N && blas_transposed == CUBLAS_OP_T &&
              blas_order_columns == CUBLASLT_ORDER_COL && blas_order_rows == CUBLASLT_ORDER_ROW);
static_assert(blas_epilogue_none == CUBLASLT_EPILOGUE_DEFAULT && blas_epilogue_bias == CUBLASLT_EPILOGUE_BIAS);
static_assert(operation_transpose_a == CUBLASLT_MATMUL_DESC_TRANSA &&
              operation_transpose_b == CUBLASLT_MATMUL_DESC_TRANSB &&
              operation_epilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              operation_bias == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              operation_bias_stride == CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
static_assert(layout_type == CUBLASLT_MATRIX_LAYOUT_TYPE && layout_order == CUBLASLT_MATRIX_LAYOUT_ORDER &&
              layout_rows == CUBLASLT_MATRIX_LAYOUT_ROWS && layout_columns == CUBLASLT_MATRIX_LAYOUT_COLS &&
              layout_leading == CUBLASLT_MATRIX_LAYOUT_LD && layout_batch == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              layout_batch_stride == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(preference_workspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              preference_reductions == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              preference_align_a == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              preference_align_b == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              preference_align_c == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              preference_align_d == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES &&
              preference_numerics == CUBLASLT_MATMUL_PREF_IMPL_MASK);
static_assert(algorithm_id == CUBLASLT_ALGO_CONFIG_ID && algorithm_tile == CUBLASLT_ALGO_CONFIG_TILE_ID &&
              algorithm_splits == CUBLASLT_ALGO_CONFIG_SPLITK_NUM &&
              algorithm_reduction == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME &&
              algorithm_swizzle == CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING &&
              algorithm_custom == CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION &&
              algorithm_stages == CUBLASLT_ALGO_CONFIG_STAGES_ID &&
              algorithm_inner_shape == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID &&
              algorithm_cluster == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID);
static_assert(blas_reduction_none == CUBLASLT_REDUCTION_SCHEME_NONE &&
              blas_reduction_apart == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE &&
              blas_numerics_fma == CUBLASLT_NUMERICAL_IMPL_FLAGS_FMA &&
              blas_numerics_matrices == CUBLASLT_NUMERICAL_IMPL_FLAGS_HMMA &&
              blas_numerics_sum_f32 == CUBLASLT_NUMERICAL_IMPL_FLAGS_ACCUMULATOR_32F &&
              blas_numerics_of_f16 == CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16F &&
              blas_numerics_of_bf16 == CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_16BF &&
              blas_numerics_of_f32 == CUBLASLT_NUMERICAL_IMPL_FLAGS_INPUT_32F);
static_assert(sizeof(BlasAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(BlasChoice) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(BlasChoice, algorithm) == offsetof(cublasLtMatmulHeuristicResult_t, algo) &&
              offsetof(BlasChoice, workspace_bytes) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(BlasChoice, state) == offsetof(cublasLtMatmulHeuristicResult_t, state) &&
              offsetof(BlasChoice, waves) == offsetof(cublasLtMatmulHeuristicResult_t, wavesCount) &&
              offsetof(BlasChoice, reserved) == offsetof(cublasLtMatmulHeuristicResult_t, reserved));

static_assert(cuda_blas::kComputeType == CUBLASLT_MATMUL_DESC_COMPUTE_TYPE &&
              cuda_blas::kScaleType == CUBLASLT_MATMUL_DESC_SCALE_TYPE &&
              cuda_blas::kPointerMode == CUBLASLT_MATMUL_DESC_POINTER_MODE &&
              cuda_blas::kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA &&
              cuda_blas::kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB &&
              cuda_blas::kTransposeC == CUBLASLT_MATMUL_DESC_TRANSC &&
              cuda_blas::kFillMode == CUBLASLT_MATMUL_DESC_FILL_MODE &&
              cuda_blas::kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE &&
              cuda_blas::kBias == CUBLASLT_MATMUL_DESC_BIAS_POINTER &&
              cuda_blas::kBiasStride == CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE &&
              cuda_blas::kAuxiliary == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER &&
              cuda_blas::kAuxiliaryLeading == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD &&
              cuda_blas::kAuxiliaryStride == CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE &&
              cuda_blas::kProcessors == CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET &&
              cuda_blas::kBiasType == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
static_assert(cuda_blas::kType == layout_type && cuda_blas::kOrder == layout_order && cuda_blas::kRows == layout_rows &&
              cuda_blas::kColumns == layout_columns && cuda_blas::kLeading == layout_leading &&
              cuda_blas::kBatch == layout_batch && cuda_blas::kBatchStride == layout_batch_stride &&
              cuda_blas::kPlane == CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET &&
              cuda_blas::kBatchMode == CUBLASLT_MATRIX_LAYOUT_BATCH_MODE);
static_assert(cuda_blas::kSearch == CUBLASLT_MATMUL_PREF_SEARCH_MODE && cuda_blas::kWorkspace == preference_workspace &&
              cuda_blas::kReductions == preference_reductions && cuda_blas::kAlignA == preference_align_a &&
              cuda_blas::kAlignB == preference_align_b && cuda_blas::kAlignC == preference_align_c &&
              cuda_blas::kAlignD == preference_align_d && cuda_blas::kWaves == CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT &&
              cuda_blas::kNumerics == preference_numerics);
static_assert(cuda_blas::kId == algorithm_id && cuda_blas::kTile == algorithm_tile &&
              cuda_blas::kSplits == algorithm_splits && cuda_blas::kReduction == algorithm_reduction &&
              cuda_blas::kSwizzle == algorithm_swizzle && cuda_blas::kCustom == algorithm_custom &&
              cuda_blas::kStages == algorithm_stages && cuda_blas::kInnerShape == algorithm_inner_shape &&
              cuda_blas::kCluster == algorithm_cluster);

#define EPL_SAME_IN_BLAS_LT(result, name, symbol, since, parameters) \
  static_assert(same<decltype(BlasLt::name), decltype(&::symbol)>, #symbol);
EPL_CUDA_BLAS_LT_FUNCTIONS(EPL_SAME_IN_BLAS_LT)
static_assert(CUBLAS_VER_MAJOR == 13);

}  // namespace
}  // namespace epl::cuda
