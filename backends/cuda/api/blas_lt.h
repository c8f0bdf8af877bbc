// What we call of cuBLASLt, NVIDIA's matrix products: libcublasLt.so.13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cuda/api/driver.h"
#include "core/base/status.h"

namespace epl::cuda {

using BlasCode = int;
using BlasHandle = struct BlasHandleTag*;          // of a device
using BlasOperation = struct BlasOperationTag*;    // what is multiplied how
using BlasLayout = struct BlasLayoutTag*;          // of one operand
using BlasPreference = struct BlasPreferenceTag*;  // which algorithms are wanted

// One algorithm with its options: bytes that a version of the library understands.
struct BlasAlgorithm {
  uint64_t data[8] = {};
};
struct BlasChoice {
  BlasAlgorithm algorithm;
  size_t workspace_bytes = 0;
  BlasCode state = 0;
  float waves = 0;
  int reserved[4] = {};
};

inline constexpr BlasCode blas_success = 0, blas_not_initialized = 1, blas_alloc_failed = 3, blas_invalid_value = 7,
                          blas_arch_mismatch = 8, blas_execution_failed = 13, blas_internal_error = 14,
                          blas_not_supported = 15;
// `blas_compute_f32` multiplies float32 as float32, without TF32, and adds up numbers of 16 bits in float32.
inline constexpr int blas_f32 = 0, blas_f16 = 2, blas_bf16 = 14, blas_compute_f32 = 68;
inline constexpr int blas_plain = 0, blas_transposed = 1;
inline constexpr int blas_order_columns = 0, blas_order_rows = 1;
inline constexpr uint32_t blas_epilogue_none = 1, blas_epilogue_bias = 4;
// Attributes of an operation, with the type of each.
inline constexpr int operation_transpose_a = 3, operation_transpose_b = 4;                         // int32_t
inline constexpr int operation_epilogue = 7, operation_bias = 8, operation_bias_stride = 10;       // u32, pointer, i64
inline constexpr int layout_type = 0, layout_order = 1, layout_rows = 2, layout_columns = 3,       // u32, i32, u64, u64
    layout_leading = 4, layout_batch = 5, layout_batch_stride = 6;                                 // i64, i32, i64
inline constexpr int preference_workspace = 1, preference_reductions = 3, preference_align_a = 5,  // u64, u32, u32
    preference_align_b = 6, preference_align_c = 7, preference_align_d = 8, preference_numerics = 12;  // u32, u64
inline constexpr int algorithm_id = 0, algorithm_tile = 1, algorithm_splits = 2, algorithm_reduction = 3,
                     algorithm_swizzle = 4, algorithm_custom = 5, algorithm_stages = 6;  // i32, u32, i32, u32...
inline constexpr int algorithm_inner_shape = 7, algorithm_cluster = 8;                   // uint16_t
// Parts of one sum that are computed apart: not at all, or added up in a step of its own.
inline constexpr uint32_t blas_reduction_none = 0, blas_reduction_apart = 2;
// How products are computed: by multiplications with addition or by those of matrices, in what they are summed, and of
// which numbers.
inline constexpr uint64_t blas_numerics_fma = 0x01, blas_numerics_matrices = 0x02, blas_numerics_sum_f32 = 0x02 << 8,
                          blas_numerics_of_f16 = 0x01 << 16, blas_numerics_of_bf16 = 0x02 << 16,
                          blas_numerics_of_f32 = 0x08 << 16;

// Each: what it returns, our name, the library's, the version of CUDA that brought it, its parameters.
#define EPL_CUDA_BLAS_LT_FUNCTIONS(F)                                                                                  \
  F(size_t, library_version, cublasLtGetVersion, 10010, ())                                                            \
  F(const char*, code_name, cublasLtGetStatusName, 11040, (BlasCode code))                                             \
  F(const char*, code_text, cublasLtGetStatusString, 11040, (BlasCode code))                                           \
  F(BlasCode, create, cublasLtCreate, 10010, (BlasHandle * handle))                                                    \
  F(BlasCode, destroy, cublasLtDestroy, 10010, (BlasHandle handle))                                                    \
  F(BlasCode, create_operation, cublasLtMatmulDescCreate, 10010,                                                       \
    (BlasOperation * operation, int compute_type, int scale_type))                                                     \
  F(BlasCode, destroy_operation, cublasLtMatmulDescDestroy, 10010, (BlasOperation operation))                          \
  F(BlasCode, set_operation, cublasLtMatmulDescSetAttribute, 10010,                                                    \
    (BlasOperation operation, int attribute, const void* value, size_t bytes))                                         \
  F(BlasCode, create_layout, cublasLtMatrixLayoutCreate, 10010,                                                        \
    (BlasLayout * layout, int type, uint64_t rows, uint64_t columns, int64_t leading))                                 \
  F(BlasCode, destroy_layout, cublasLtMatrixLayoutDestroy, 10010, (BlasLayout layout))                                 \
  F(BlasCode, set_layout, cublasLtMatrixLayoutSetAttribute, 10010,                                                     \
    (BlasLayout layout, int attribute, const void* value, size_t bytes))                                               \
  F(BlasCode, create_preference, cublasLtMatmulPreferenceCreate, 10010, (BlasPreference * preference))                 \
  F(BlasCode, destroy_preference, cublasLtMatmulPreferenceDestroy, 10010, (BlasPreference preference))                 \
  F(BlasCode, set_preference, cublasLtMatmulPreferenceSetAttribute, 10010,                                             \
    (BlasPreference preference, int attribute, const void* value, size_t bytes))                                       \
  F(BlasCode, choose, cublasLtMatmulAlgoGetHeuristic, 10010,                                                           \
    (BlasHandle handle, BlasOperation operation, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d,               \
     BlasPreference preference, int wanted, BlasChoice* choices, int* found))                                          \
  F(BlasCode, init_algorithm, cublasLtMatmulAlgoInit, 10010,                                                           \
    (BlasHandle handle, int compute_type, int scale_type, int a_type, int b_type, int c_type, int d_type, int id,      \
     BlasAlgorithm* algorithm))                                                                                        \
  F(BlasCode, set_algorithm, cublasLtMatmulAlgoConfigSetAttribute, 10010,                                              \
    (BlasAlgorithm * algorithm, int attribute, const void* value, size_t bytes))                                       \
  F(BlasCode, algorithm_attribute, cublasLtMatmulAlgoConfigGetAttribute, 10010,                                        \
    (const BlasAlgorithm* algorithm, int attribute, void* value, size_t bytes, size_t* written))                       \
  F(BlasCode, check_algorithm, cublasLtMatmulAlgoCheck, 10010,                                                         \
    (BlasHandle handle, BlasOperation operation, BlasLayout a, BlasLayout b, BlasLayout c, BlasLayout d,               \
     const BlasAlgorithm* algorithm, BlasChoice* choice))                                                              \
  F(BlasCode, multiply, cublasLtMatmul, 10010,                                                                         \
    (BlasHandle handle, BlasOperation operation, const void* alpha, const void* a, BlasLayout a_layout, const void* b, \
     BlasLayout b_layout, const void* beta, const void* c, BlasLayout c_layout, void* d, BlasLayout d_layout,          \
     const BlasAlgorithm* algorithm, void* workspace, size_t workspace_bytes, StreamHandle stream))

struct BlasLt {
#define EPL_CUDA_POINTER(result, name, symbol, since, parameters) result(*name) parameters = nullptr;
  EPL_CUDA_BLAS_LT_FUNCTIONS(EPL_CUDA_POINTER)
#undef EPL_CUDA_POINTER
  std::string path;
  int version = 0;  // as 13010 for 13.1

  // "CUBLAS_STATUS_NOT_SUPPORTED, the functionality is not supported"
  std::string text(BlasCode code) const;
};

extern const LibraryRow blas_lt_row;
Result<FoundLibrary> find_blas_lt(const std::string& folder);
// The library, opened when it is first asked for.
Result<const BlasLt*> open_blas_lt(const std::string& folder);

}  // namespace epl::cuda
