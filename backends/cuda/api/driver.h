// What we call of the driver API, libcuda.so.1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "backends/cuda/api/library.h"
#include "core/base/status.h"

namespace epl::cuda {

using DriverCode = int;
using Ordinal = int;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using ExecutableHandle = struct ExecutableTag*;
using Address = unsigned long long;

inline constexpr DriverCode code_success = 0, code_out_of_memory = 2, code_no_device = 100, code_invalid_device = 101,
                            code_device_unavailable = 46, code_uncorrectable = 214, code_illegal_address = 700,
                            code_launch_timeout = 702, code_peer_enabled = 704, code_context_destroyed = 709,
                            code_assert = 710, code_stack_error = 714, code_illegal_instruction = 715,
                            code_misaligned_address = 716, code_invalid_address_space = 717,
                            code_invalid_program_count = 718, code_launch_failed = 719, code_not_supported = 801,
                            code_not_ready = 600, code_driver_mismatch = 803, code_unknown = 999;
inline constexpr int attribute_processors = 16, attribute_capability_major = 75, attribute_capability_minor = 76;
inline constexpr int function_attribute_shared_bytes = 8;
// Other threads may do what they want while a stream is captured.
inline constexpr int capture_of_thread = 1, capture_none = 0;
inline constexpr unsigned stream_non_blocking = 1, event_with_timing = 0, event_without_timing = 2;

// Each: our name, the driver's, the version that brought it, its parameters.
#define EPL_CUDA_DRIVER_FUNCTIONS(F)                                                                             \
  F(init, cuInit, 2000, (unsigned flags))                                                                        \
  F(driver_version, cuDriverGetVersion, 2020, (int* version))                                                    \
  F(error_name, cuGetErrorName, 6000, (DriverCode code, const char** text))                                      \
  F(error_text, cuGetErrorString, 6000, (DriverCode code, const char** text))                                    \
  F(device_count, cuDeviceGetCount, 2000, (int* count))                                                          \
  F(device, cuDeviceGet, 2000, (Ordinal * device, int ordinal))                                                  \
  F(device_name, cuDeviceGetName, 2000, (char* name, int size, Ordinal device))                                  \
  F(device_memory, cuDeviceTotalMem_v2, 3020, (size_t* bytes, Ordinal device))                                   \
  F(device_attribute, cuDeviceGetAttribute, 2000, (int* value, int attribute, Ordinal device))                   \
  F(device_address, cuDeviceGetPCIBusId, 4010, (char* text, int size, Ordinal device))                           \
  F(retain_primary, cuDevicePrimaryCtxRetain, 7000, (Context * context, Ordinal device))                         \
  F(release_primary, cuDevicePrimaryCtxRelease_v2, 11000, (Ordinal device))                                      \
  F(push, cuCtxPushCurrent_v2, 4000, (Context context))                                                          \
  F(pop, cuCtxPopCurrent_v2, 4000, (Context * context))                                                          \
  F(can_reach, cuDeviceCanAccessPeer, 4000, (int* can, Ordinal device, Ordinal peer))                            \
  F(reach, cuCtxEnablePeerAccess, 4000, (Context peer, unsigned flags))                                          \
  F(memory_info, cuMemGetInfo_v2, 3020, (size_t* free, size_t* total))                                           \
  F(allocate, cuMemAlloc_v2, 3020, (Address * memory, size_t bytes))                                             \
  F(release, cuMemFree_v2, 3020, (Address memory))                                                               \
  F(copy, cuMemcpyDtoDAsync_v2, 3020, (Address target, Address source, size_t bytes, StreamHandle stream))       \
  F(copy_between, cuMemcpyPeerAsync, 4000,                                                                       \
    (Address target, Context target_context, Address source, Context source_context, size_t bytes,               \
     StreamHandle stream))                                                                                       \
  F(upload, cuMemcpyHtoDAsync_v2, 3020, (Address target, const void* source, size_t bytes, StreamHandle stream)) \
  F(download, cuMemcpyDtoHAsync_v2, 3020, (void* target, Address source, size_t bytes, StreamHandle stream))     \
  F(fill, cuMemsetD8Async, 3020, (Address target, unsigned char value, size_t bytes, StreamHandle stream))       \
  F(create_stream, cuStreamCreate, 2000, (StreamHandle * stream, unsigned flags))                                \
  F(destroy_stream, cuStreamDestroy_v2, 4000, (StreamHandle stream))                                             \
  F(synchronize, cuStreamSynchronize, 2000, (StreamHandle stream))                                               \
  F(query, cuStreamQuery, 2000, (StreamHandle stream))                                                           \
  F(wait, cuStreamWaitEvent, 3020, (StreamHandle stream, EventHandle event, unsigned flags))                     \
  F(create_event, cuEventCreate, 2000, (EventHandle * event, unsigned flags))                                    \
  F(destroy_event, cuEventDestroy_v2, 4000, (EventHandle event))                                                 \
  F(record, cuEventRecord, 2000, (EventHandle event, StreamHandle stream))                                       \
  F(elapsed, cuEventElapsedTime, 2000, (float* milliseconds, EventHandle begin, EventHandle end))                \
  F(load_module, cuModuleLoadData, 2000, (Module * module, const void* image))                                   \
  F(unload_module, cuModuleUnload, 2000, (Module module))                                                        \
  F(module_function, cuModuleGetFunction, 2000, (Function * function, Module module, const char* name))          \
  F(set_function_attribute, cuFuncSetAttribute, 9000, (Function function, int attribute, int value))             \
  F(allocate_host, cuMemHostAlloc, 2020, (void** memory, size_t bytes, unsigned flags))                          \
  F(release_host, cuMemFreeHost, 2000, (void* memory))                                                           \
  F(begin_capture, cuStreamBeginCapture_v2, 10010, (StreamHandle stream, int mode))                              \
  F(end_capture, cuStreamEndCapture, 10000, (StreamHandle stream, GraphHandle * graph))                          \
  F(capturing, cuStreamIsCapturing, 10000, (StreamHandle stream, int* status))                                   \
  F(instantiate, cuGraphInstantiateWithFlags, 11040,                                                             \
    (ExecutableHandle * executable, GraphHandle graph, unsigned long long flags))                                \
  F(launch_graph, cuGraphLaunch, 10000, (ExecutableHandle executable, StreamHandle stream))                      \
  F(destroy_graph, cuGraphDestroy, 10000, (GraphHandle graph))                                                   \
  F(destroy_executable, cuGraphExecDestroy, 10000, (ExecutableHandle executable))                                \
  F(launch, cuLaunchKernel, 4000,                                                                                \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,   \
     unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** parameters, void** extra))

struct Driver {
#define EPL_CUDA_POINTER(name, symbol, since, parameters) DriverCode(*name) parameters = nullptr;
  EPL_CUDA_DRIVER_FUNCTIONS(EPL_CUDA_POINTER)
#undef EPL_CUDA_POINTER
  std::string path;
  int version = 0;  // as 13000

  // "CUDA_ERROR_OUT_OF_MEMORY, out of memory"
  std::string text(DriverCode code) const;
};

extern const LibraryRow driver_row;
// Where the driver is, without beginning it.
Result<FoundLibrary> find_driver(const std::string& folder);
// The driver, opened and begun when it is first asked for.
Result<const Driver*> open_driver(const std::string& folder);

}  // namespace epl::cuda
