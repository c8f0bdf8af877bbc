// The attributes of cuBLASLt's descriptors that the stand-in knows, by number and size, from the manual. A test
// compares them with NVIDIA's header.
#pragma once

#include <cstddef>

namespace epl::cuda_blas {

struct AttributeRow {
  int number;
  size_t bytes;
  const char* name;
};

// Of an operation.
inline constexpr int kComputeType = 0, kScaleType = 1, kPointerMode = 2, kTransposeA = 3, kTransposeB = 4,
                     kTransposeC = 5, kFillMode = 6, kEpilogue = 7, kBias = 8, kBiasStride = 10, kAuxiliary = 11,
                     kAuxiliaryLeading = 12, kAuxiliaryStride = 13, kProcessors = 15, kBiasType = 26;
inline constexpr AttributeRow kOfOperation[] = {{kComputeType, 4, "COMPUTE_TYPE"},
                                                {kScaleType, 4, "SCALE_TYPE"},
                                                {kPointerMode, 4, "POINTER_MODE"},
                                                {kTransposeA, 4, "TRANSA"},
                                                {kTransposeB, 4, "TRANSB"},
                                                {kTransposeC, 4, "TRANSC"},
                                                {kFillMode, 4, "FILL_MODE"},
                                                {kEpilogue, 4, "EPILOGUE"},
                                                {kBias, 8, "BIAS_POINTER"},
                                                {kBiasStride, 8, "BIAS_BATCH_STRIDE"},
                                                {kAuxiliary, 8, "EPILOGUE_AUX_POINTER"},
                                                {kAuxiliaryLeading, 8, "EPILOGUE_AUX_LD"},
                                                {kAuxiliaryStride, 8, "EPILOGUE_AUX_BATCH_STRIDE"},
                                                {kProcessors, 4, "SM_COUNT_TARGET"},
                                                {kBiasType, 4, "BIAS_DATA_TYPE"}};

// Of a layout.
inline constexpr int kType = 0, kOrder = 1, kRows = 2, kColumns = 3, kLeading = 4, kBatch = 5, kBatchStride = 6,
                     kPlane = 7, kBatchMode = 8;
inline constexpr AttributeRow kOfLayout[] = {{kType, 4, "TYPE"},
                                             {kOrder, 4, "ORDER"},
                                             {kRows, 8, "ROWS"},
                                             {kColumns, 8, "COLS"},
                                             {kLeading, 8, "LD"},
                                             {kBatch, 4, "BATCH_COUNT"},
                                             {kBatchStride, 8, "STRIDED_BATCH_OFFSET"},
                                             {kPlane, 8, "PLANE_OFFSET"},
                                             {kBatchMode, 4, "BATCH_MODE"}};

// Of a preference.
inline constexpr int kSearch = 0, kWorkspace = 1, kReductions = 3, kAlignA = 5, kAlignB = 6, kAlignC = 7, kAlignD = 8,
                     kWaves = 9, kNumerics = 12;
inline constexpr AttributeRow kOfPreference[] = {{kSearch, 4, "SEARCH_MODE"},
                                                 {kWorkspace, 8, "MAX_WORKSPACE_BYTES"},
                                                 {kReductions, 4, "REDUCTION_SCHEME_MASK"},
                                                 {kAlignA, 4, "MIN_ALIGNMENT_A_BYTES"},
                                                 {kAlignB, 4, "MIN_ALIGNMENT_B_BYTES"},
                                                 {kAlignC, 4, "MIN_ALIGNMENT_C_BYTES"},
                                                 {kAlignD, 4, "MIN_ALIGNMENT_D_BYTES"},
                                                 {kWaves, 4, "MAX_WAVES_COUNT"},
                                                 {kNumerics, 8, "IMPL_MASK"}};

// Of an algorithm.
inline constexpr int kId = 0, kTile = 1, kSplits = 2, kReduction = 3, kSwizzle = 4, kCustom = 5, kStages = 6,
                     kInnerShape = 7, kCluster = 8;
inline constexpr AttributeRow kOfAlgorithm[] = {{kId, 4, "ID"},
                                                {kTile, 4, "TILE_ID"},
                                                {kSplits, 4, "SPLITK_NUM"},
                                                {kReduction, 4, "REDUCTION_SCHEME"},
                                                {kSwizzle, 4, "CTA_SWIZZLING"},
                                                {kCustom, 4, "CUSTOM_OPTION"},
                                                {kStages, 4, "STAGES_ID"},
                                                {kInnerShape, 2, "INNER_SHAPE_ID"},
                                                {kCluster, 2, "CLUSTER_SHAPE_ID"}};

}  // namespace epl::cuda_blas
