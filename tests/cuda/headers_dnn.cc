// Our declarations of cuDNN against NVIDIA's own header (scripts/nvidia_headers.sh fetches it), as headers.cc does for
// the driver and for NVRTC; and the attributes that the stand-in of the tests knows.
#include <cudnn_graph.h>

#include "backends/cuda/api/dnn.h"
#include "tests/cuda/alike.h"

// Handles are attributes that newer versions do without and still take.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

namespace epl::cuda {
namespace {

static_assert(dnn_success == CUDNN_STATUS_SUCCESS && dnn_not_initialized == CUDNN_STATUS_NOT_INITIALIZED &&
              dnn_bad_parameter == CUDNN_STATUS_BAD_PARAM && dnn_not_supported == CUDNN_STATUS_NOT_SUPPORTED &&
              dnn_internal_error == CUDNN_STATUS_INTERNAL_ERROR &&
              dnn_no_host_memory == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED &&
              dnn_no_device_memory == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED &&
              dnn_execution_failed == CUDNN_STATUS_EXECUTION_FAILED);
static_assert(dnn_f32 == CUDNN_DATA_FLOAT && dnn_f16 == CUDNN_DATA_HALF && dnn_bf16 == CUDNN_DATA_BFLOAT16 &&
              dnn_cross_correlation == CUDNN_CROSS_CORRELATION && dnn_suggest_fast == CUDNN_HEUR_MODE_A &&
              dnn_suggest_fallback == CUDNN_HEUR_MODE_FALLBACK);
static_assert(dnn_note_tensor_core == CUDNN_NUMERICAL_NOTE_TENSOR_CORE &&
              dnn_note_narrowed_operands == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS &&
              dnn_note_narrow_sums == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION &&
              dnn_note_not_deterministic == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC &&
              dnn_note_winograd_13 == CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13 &&
              dnn_notes == CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
static_assert(dnn_convolution == CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR &&
              dnn_engine == CUDNN_BACKEND_ENGINE_DESCRIPTOR &&
              dnn_engine_config == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR &&
              dnn_suggestion == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR &&
              dnn_plan == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
              dnn_forward == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR &&
              dnn_grad_weight == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR &&
              dnn_grad_input == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR &&
              dnn_graph == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR &&
              dnn_pack == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR && dnn_tensor == CUDNN_BACKEND_TENSOR_DESCRIPTOR);
static_assert(dnn_as_handle == CUDNN_TYPE_HANDLE && dnn_as_type == CUDNN_TYPE_DATA_TYPE &&
              dnn_as_i64 == CUDNN_TYPE_INT64 && dnn_as_f32 == CUDNN_TYPE_FLOAT &&
              dnn_as_pointer == CUDNN_TYPE_VOID_PTR && dnn_as_convolution_mode == CUDNN_TYPE_CONVOLUTION_MODE &&
              dnn_as_suggestion_mode == CUDNN_TYPE_HEUR_MODE && dnn_as_note == CUDNN_TYPE_NUMERICAL_NOTE &&
              dnn_as_descriptor == CUDNN_TYPE_BACKEND_DESCRIPTOR);
static_assert(dnn_convolution_type == CUDNN_ATTR_CONVOLUTION_COMP_TYPE &&
              dnn_convolution_mode == CUDNN_ATTR_CONVOLUTION_CONV_MODE &&
              dnn_convolution_dilations == CUDNN_ATTR_CONVOLUTION_DILATIONS &&
              dnn_convolution_strides == CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES &&
              dnn_convolution_pads_behind == CUDNN_ATTR_CONVOLUTION_POST_PADDINGS &&
              dnn_convolution_pads_before == CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS &&
              dnn_convolution_dimensions == CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
static_assert(dnn_suggestion_mode == CUDNN_ATTR_ENGINEHEUR_MODE &&
              dnn_suggestion_graph == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH &&
              dnn_suggestion_configs == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
              dnn_config_engine == CUDNN_ATTR_ENGINECFG_ENGINE &&
              dnn_config_workspace == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE &&
              dnn_plan_handle == CUDNN_ATTR_EXECUTION_PLAN_HANDLE &&
              dnn_plan_config == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG &&
              dnn_plan_workspace == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE &&
              dnn_engine_notes == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
static_assert(dnn_forward_alpha == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA &&
              dnn_forward_beta == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA &&
              dnn_forward_convolution == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC &&
              dnn_forward_w == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W &&
              dnn_forward_x == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X &&
              dnn_forward_y == CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
static_assert(dnn_grad_input_alpha == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA &&
              dnn_grad_input_beta == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA &&
              dnn_grad_input_convolution == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC &&
              dnn_grad_input_w == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W &&
              dnn_grad_input_x == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX &&
              dnn_grad_input_y == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
static_assert(dnn_grad_weight_alpha == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA &&
              dnn_grad_weight_beta == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA &&
              dnn_grad_weight_convolution == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC &&
              dnn_grad_weight_w == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW &&
              dnn_grad_weight_x == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X &&
              dnn_grad_weight_y == CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
static_assert(dnn_graph_handle == CUDNN_ATTR_OPERATIONGRAPH_HANDLE &&
              dnn_graph_operations == CUDNN_ATTR_OPERATIONGRAPH_OPS &&
              dnn_tensor_alignment == CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT &&
              dnn_tensor_type == CUDNN_ATTR_TENSOR_DATA_TYPE && dnn_tensor_sizes == CUDNN_ATTR_TENSOR_DIMENSIONS &&
              dnn_tensor_strides == CUDNN_ATTR_TENSOR_STRIDES && dnn_tensor_id == CUDNN_ATTR_TENSOR_UNIQUE_ID &&
              dnn_pack_ids == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS &&
              dnn_pack_pointers == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS &&
              dnn_pack_workspace == CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
// Values of these types are given as int32_t.
static_assert(sizeof(cudnnDataType_t) == 4 && sizeof(cudnnConvolutionMode_t) == 4 &&
              sizeof(cudnnBackendHeurMode_t) == 4 && sizeof(cudnnBackendNumericalNote_t) == 4);

#define EPL_SAME_IN_DNN(result, name, symbol, since, parameters) \
  static_assert(same<decltype(Dnn::name), decltype(&::symbol)>, #symbol);
EPL_CUDA_DNN_FUNCTIONS(EPL_SAME_IN_DNN)
static_assert(CUDNN_MAJOR == 9);

}  // namespace
}  // namespace epl::cuda
