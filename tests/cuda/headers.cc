// Our declarations of NVIDIA's libraries against NVIDIA's own headers (scripts/nvrtc.sh fetches them): it compiles
// where every constant is the same, and every function is there with parameters of the same size and kind.
#include <cuda.h>
#include <nvrtc.h>

#include "backends/cuda/api/driver.h"
#include "backends/cuda/api/nvrtc.h"
#include "tests/cuda/alike.h"

namespace epl::cuda {
namespace {

// The comparison itself: what it takes for the same, and what not.
static_assert(same<int (*)(Context, Address*, const char**), CUresult (*)(CUcontext, CUdeviceptr*, const char**)> &&
              same<int (*)(int*, void*), CUresult (*)(CUresult*, CUcontext)>);
static_assert(!same<int (*)(int), int (*)(float)> && !same<int (*)(int), int (*)(unsigned)> &&
              !same<int (*)(int), CUresult (*)(long)> && !same<int (*)(int), int (*)(int, int)> &&
              !same<int (*)(int*), int (*)(float*)> && !same<int (*)(Context), int (*)(CUcontext*)> &&
              !same<int (*)(Address), int (*)(void*)> && !same<void (*)(int*), void (*)(CUcontext)> &&
              !same<void (*)(), int (*)()>);

static_assert(code_success == CUDA_SUCCESS && code_out_of_memory == CUDA_ERROR_OUT_OF_MEMORY &&
              code_no_device == CUDA_ERROR_NO_DEVICE && code_invalid_device == CUDA_ERROR_INVALID_DEVICE &&
              code_device_unavailable == CUDA_ERROR_DEVICE_UNAVAILABLE &&
              code_uncorrectable == CUDA_ERROR_ECC_UNCORRECTABLE &&
              code_peer_enabled == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED &&
              code_illegal_address == CUDA_ERROR_ILLEGAL_ADDRESS && code_launch_timeout == CUDA_ERROR_LAUNCH_TIMEOUT &&
              code_context_destroyed == CUDA_ERROR_CONTEXT_IS_DESTROYED && code_assert == CUDA_ERROR_ASSERT &&
              code_stack_error == CUDA_ERROR_HARDWARE_STACK_ERROR &&
              code_illegal_instruction == CUDA_ERROR_ILLEGAL_INSTRUCTION &&
              code_misaligned_address == CUDA_ERROR_MISALIGNED_ADDRESS &&
              code_invalid_address_space == CUDA_ERROR_INVALID_ADDRESS_SPACE &&
              code_invalid_program_count == CUDA_ERROR_INVALID_PC && code_launch_failed == CUDA_ERROR_LAUNCH_FAILED &&
              code_not_supported == CUDA_ERROR_NOT_SUPPORTED && code_not_ready == CUDA_ERROR_NOT_READY &&
              code_driver_mismatch == CUDA_ERROR_SYSTEM_DRIVER_MISMATCH && code_unknown == CUDA_ERROR_UNKNOWN);
static_assert(attribute_processors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT &&
              attribute_capability_major == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR &&
              attribute_capability_minor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(function_attribute_shared_bytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES &&
              stream_non_blocking == CU_STREAM_NON_BLOCKING && event_with_timing == CU_EVENT_DEFAULT &&
              event_without_timing == CU_EVENT_DISABLE_TIMING);
static_assert(capture_of_thread == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL &&
              capture_none == CU_STREAM_CAPTURE_STATUS_NONE);

#define EPL_SAME_IN_DRIVER(name, symbol, since, parameters) \
  static_assert(same<decltype(Driver::name), decltype(&::symbol)>, #symbol);
EPL_CUDA_DRIVER_FUNCTIONS(EPL_SAME_IN_DRIVER)
#define EPL_SAME_IN_NVRTC(name, symbol, since, parameters) \
  static_assert(same<decltype(Nvrtc::name), decltype(&::symbol)>, #symbol);
EPL_CUDA_NVRTC_FUNCTIONS(EPL_SAME_IN_NVRTC)
static_assert(same<decltype(Nvrtc::error_text), decltype(&::nvrtcGetErrorString)>);

}  // namespace
}  // namespace epl::cuda
