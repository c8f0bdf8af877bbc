// What we call of cuDNN, NVIDIA's convolutions: libcudnn.so.9, its backend interface. There everything is a descriptor:
// it is created, its attributes are set, it is finalized, and then it can be read and others stand on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cuda/api/driver.h"
#include "core/base/status.h"

namespace epl::cuda {

using DnnCode = int;
using DnnHandle = struct DnnHandleTag*;  // of a device
using DnnDescriptor = struct DnnDescriptorTag*;

// The thousands of a code are its kind.
inline constexpr DnnCode dnn_success = 0, dnn_not_initialized = 1001, dnn_bad_parameter = 2000,
                         dnn_not_supported = 3000, dnn_internal_error = 4000, dnn_no_host_memory = 4003,
                         dnn_no_device_memory = 4004, dnn_execution_failed = 5000;
inline constexpr int dnn_f32 = 0, dnn_f16 = 2, dnn_bf16 = 9;
inline constexpr int dnn_cross_correlation = 1;
// Which engines are suggested: those that should be fast; those that always work.
inline constexpr int dnn_suggest_fast = 3, dnn_suggest_fallback = 2;
// What an engine says of its numbers.
inline constexpr int dnn_note_tensor_core = 0, dnn_note_narrowed_operands = 1, dnn_note_narrow_sums = 2,
                     dnn_note_not_deterministic = 4, dnn_note_winograd_13 = 8, dnn_notes = 10;

// Kinds of descriptors.
inline constexpr int dnn_convolution = 1, dnn_engine = 2, dnn_engine_config = 3, dnn_suggestion = 4, dnn_plan = 5,
                     dnn_forward = 10, dnn_grad_weight = 11, dnn_grad_input = 12, dnn_graph = 15, dnn_pack = 16,
                     dnn_tensor = 17;
// Types of attributes.
inline constexpr int dnn_as_handle = 0, dnn_as_type = 1, dnn_as_i64 = 3, dnn_as_f32 = 4, dnn_as_pointer = 6,
                     dnn_as_convolution_mode = 7, dnn_as_suggestion_mode = 8, dnn_as_note = 11, dnn_as_descriptor = 15;
// Attributes, with the type of each where the name does not say it.
inline constexpr int dnn_convolution_type = 100, dnn_convolution_mode = 101, dnn_convolution_dilations = 102,
                     dnn_convolution_strides = 103, dnn_convolution_pads_behind = 104,
                     dnn_convolution_pads_before = 105, dnn_convolution_dimensions = 106;  // i64 from dilations on
inline constexpr int dnn_suggestion_mode = 200, dnn_suggestion_graph = 201, dnn_suggestion_configs = 202;
inline constexpr int dnn_config_engine = 300, dnn_config_workspace = 303;                     // descriptor, i64
inline constexpr int dnn_plan_handle = 400, dnn_plan_config = 401, dnn_plan_workspace = 402;  // i64
inline constexpr int dnn_forward_alpha = 700, dnn_forward_beta = 701, dnn_forward_convolution = 702,
                     dnn_forward_w = 703, dnn_forward_x = 704, dnn_forward_y = 705;
inline constexpr int dnn_grad_input_alpha = 706, dnn_grad_input_beta = 707, dnn_grad_input_convolution = 708,
                     dnn_grad_input_w = 709, dnn_grad_input_x = 710, dnn_grad_input_y = 711;
inline constexpr int dnn_grad_weight_alpha = 712, dnn_grad_weight_beta = 713, dnn_grad_weight_convolution = 714,
                     dnn_grad_weight_w = 715, dnn_grad_weight_x = 716, dnn_grad_weight_y = 717;
inline constexpr int dnn_graph_handle = 800, dnn_graph_operations = 801;
inline constexpr int dnn_tensor_alignment = 900, dnn_tensor_type = 901, dnn_tensor_sizes = 902,
                     dnn_tensor_strides = 903, dnn_tensor_id = 906;                             // i64 but the type
inline constexpr int dnn_pack_ids = 1000, dnn_pack_pointers = 1001, dnn_pack_workspace = 1003;  // i64, pointers
inline constexpr int dnn_engine_notes = 1303;

// Each: what it returns, our name, the library's, the version of cuDNN that brought it, its parameters.
#define EPL_CUDA_DNN_FUNCTIONS(F)                                                                      \
  F(size_t, library_version, cudnnGetVersion, 5000, ())                                                \
  F(const char*, code_text, cudnnGetErrorString, 5000, (DnnCode code))                                 \
  F(void, last_error, cudnnGetLastErrorString, 9000, (char* text, size_t bytes))                       \
  F(DnnCode, create, cudnnCreate, 5000, (DnnHandle * handle))                                          \
  F(DnnCode, destroy, cudnnDestroy, 5000, (DnnHandle handle))                                          \
  F(DnnCode, set_stream, cudnnSetStream, 5000, (DnnHandle handle, StreamHandle stream))                \
  F(DnnCode, create_descriptor, cudnnBackendCreateDescriptor, 8000, (int kind, DnnDescriptor* made))   \
  F(DnnCode, destroy_descriptor, cudnnBackendDestroyDescriptor, 8000, (DnnDescriptor descriptor))      \
  F(DnnCode, finalize, cudnnBackendFinalize, 8000, (DnnDescriptor descriptor))                         \
  F(DnnCode, set_attribute, cudnnBackendSetAttribute, 8000,                                            \
    (DnnDescriptor descriptor, int attribute, int type, int64_t count, const void* values))            \
  F(DnnCode, get_attribute, cudnnBackendGetAttribute, 8000,                                            \
    (DnnDescriptor descriptor, int attribute, int type, int64_t wanted, int64_t* count, void* values)) \
  F(DnnCode, execute, cudnnBackendExecute, 8000, (DnnHandle handle, DnnDescriptor plan, DnnDescriptor pack))

struct Dnn {
#define EPL_CUDA_POINTER(result, name, symbol, since, parameters) result(*name) parameters = nullptr;
  EPL_CUDA_DNN_FUNCTIONS(EPL_CUDA_POINTER)
#undef EPL_CUDA_POINTER
  std::string path;
  int version = 0;  // as 9120 for 9.12

  // "CUDNN_STATUS_BAD_PARAM: what the library says of its last error"
  std::string text(DnnCode code) const;
};

extern const LibraryRow dnn_row;
Result<FoundLibrary> find_dnn(const std::string& folder);
// The library, opened when it is first asked for.
Result<const Dnn*> open_dnn(const std::string& folder);

}  // namespace epl::cuda
