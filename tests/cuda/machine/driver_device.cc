// The driver's functions: the beginning, errors, devices and contexts.
#include <cstdio>
#include <cstring>

#include "tests/cuda/machine/driver.h"
#include "tests/cuda/machine/graph.h"

namespace epl::cuda_machine {
namespace {

struct ErrorRow {
  int code;
  const char *name, *text;
};
const ErrorRow kErrors[] = {
    {kSuccess, "CUDA_SUCCESS", "no error"},
    {kInvalidValue, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {kOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {kNotInitialized, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {kDeviceUnavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {kNoDevice, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {kInvalidDevice, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {kInvalidImage, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {kInvalidContext, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {kPeerAccessUnsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {kInvalidPtx, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {kInvalidHandle, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {kIllegalState, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {kNotFound, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {kNotReady, "CUDA_ERROR_NOT_READY", "device not ready"},
    {kIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {kLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {kPeerAccessAlreadyEnabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {kPrimaryContextActive, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "cannot set while device is active in this process"},
    {kContextIsDestroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {kAssert, "CUDA_ERROR_ASSERT", "device-side assert triggered"},
    {kHostMemoryAlreadyRegistered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
     "part or all of the requested memory range is already mapped"},
    {kHostMemoryNotRegistered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
     "pointer does not correspond to a registered memory region"},
    {kIllegalInstruction, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"},
    {kMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {kLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {kNotSupported, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {kCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {kCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {kCaptureMerge, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
     "operation would result in a merge of separate capture sequences"},
    {kCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it began"},
    {kCaptureUnjoined, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {kCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {kCaptureImplicit, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {kCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"},
    {kCaptureWrongThread, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {kUnknown, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

int error_words(int code, const char** text, const char* ErrorRow::* field) {
  if (text == nullptr) return kInvalidValue;
  *text = nullptr;
  for (const ErrorRow& row : kErrors) {
    if (row.code == code) *text = row.*field;
  }
  return *text == nullptr ? kInvalidValue : kSuccess;
}

// As where NVLink joins devices of one kind.
bool can_reach(Machine& machine, int device, int peer) {
  return machine.row(device).name == machine.row(peer).name && device != peer && machine.settings.peers;
}

}  // namespace
}  // namespace epl::cuda_machine

using namespace epl::cuda_machine;

EPL_DRIVER cuInit(unsigned flags) {
  return call(
      [&](Machine& machine, auto&) {
        require(flags == 0, kInvalidValue, "cuInit has flags");
        require(machine.devices() > 0, kNoDevice, "there is no device");
        machine.begun = true;
      },
      false);
}

EPL_DRIVER cuDriverGetVersion(int* version) {
  return call(
      [&](Machine& machine, auto&) {
        require(version != nullptr, kInvalidValue, "no place for the version");
        *version = machine.settings.driver_version;
      },
      false);
}

EPL_DRIVER cuGetErrorName(int code, const char** text) { return error_words(code, text, &ErrorRow::name); }
EPL_DRIVER cuGetErrorString(int code, const char** text) { return error_words(code, text, &ErrorRow::text); }

// NVRTC asks a driver that it finds for tables that no header names, and goes on without them.
EPL_DRIVER cuGetExportTable(const void** table, const void*) {
  *table = nullptr;
  return kNotFound;
}

EPL_DRIVER cuDeviceGetCount(int* count) {
  return call([&](Machine& machine, auto&) { *count = machine.devices(); });
}

EPL_DRIVER cuDeviceGet(int* device, int ordinal) {
  return call([&](Machine& machine, auto&) {
    machine.row(ordinal);
    *device = ordinal;
  });
}

EPL_DRIVER cuDeviceGetName(char* name, int size, int device) {
  return call([&](Machine& machine, auto&) {
    require(name != nullptr && size > 0, kInvalidValue, "no place for the name");
    std::snprintf(name, static_cast<size_t>(size), "%s", machine.row(device).name.c_str());
  });
}

EPL_DRIVER cuDeviceTotalMem_v2(size_t* bytes, int device) {
  return call([&](Machine& machine, auto&) {
    machine.row(device);
    *bytes = static_cast<size_t>(machine.memory_of(device));
  });
}

EPL_DRIVER cuDeviceGetAttribute(int* value, int number, int device) {
  return call([&](Machine& machine, auto&) {
    require(attribute(machine.row(device), number, device, value), kInvalidValue,
            "attribute " + std::to_string(number) + " of a device is not known to this machine");
  });
}

EPL_DRIVER cuDeviceGetUuid_v2(void* uuid, int device) {
  return call([&](Machine& machine, auto&) {
    machine.row(device);
    std::memset(uuid, 0x5a, 16);
    static_cast<unsigned char*>(uuid)[15] = static_cast<unsigned char>(device);
  });
}

EPL_DRIVER cuDeviceGetPCIBusId(char* text, int size, int device) {
  return call([&](Machine& machine, auto&) {
    machine.row(device);
    require(text != nullptr && size > 12, kInvalidValue, "no place for 13 characters");
    std::snprintf(text, static_cast<size_t>(size), "0000:%02X:00.0", static_cast<unsigned>(device + 1) & 255);
  });
}

EPL_DRIVER cuDeviceCanAccessPeer(int* can, int device, int peer) {
  return call([&](Machine& machine, auto&) { *can = can_reach(machine, device, peer) ? 1 : 0; });
}

EPL_DRIVER cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
  return call([&](Machine& machine, auto&) {
    Context& context = machine.current();
    require(flags == 0, kInvalidValue, "flags of the access to a peer");
    require(machine.alive(peer) && peer != &context, kInvalidContext, "the peer is no context, or the current one");
    require(
        can_reach(machine, context.device, peer->device), kPeerAccessUnsupported,
        "device " + std::to_string(context.device) + " cannot have access to device " + std::to_string(peer->device));
    require(context.reaches.insert(peer->device).second, kPeerAccessAlreadyEnabled, "the access is there already");
  });
}

EPL_DRIVER cuDevicePrimaryCtxRetain(Context** context, int device) {
  return call([&](Machine& machine, auto&) {
    machine.row(device);
    require(machine.lost.count(device) == 0, kDeviceUnavailable, "the device is lost");
    Context& primary = machine.primary(device);
    ++primary.retained;
    *context = &primary;
  });
}

EPL_DRIVER cuDevicePrimaryCtxRelease_v2(int device) {
  return call([&](Machine& machine, auto&) {
    machine.row(device);
    require(machine.has_primary(device), kInvalidContext, "the primary context is not retained");
    Context& primary = machine.primary(device);
    if (--primary.retained == 0) machine.destroy(primary);
  });
}

EPL_DRIVER cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
  return call([&](Machine& machine, auto&) {
    machine.row(device);
    *flags = 0;
    *active = machine.has_primary(device) ? 1 : 0;
  });
}

EPL_DRIVER cuCtxPushCurrent_v2(Context* context) {
  return call([&](Machine& machine, auto&) {
    require(machine.alive(context), kInvalidContext, "this is no context");
    machine.stack().push_back(context);
  });
}

EPL_DRIVER cuCtxPopCurrent_v2(Context** context) {
  return call([&](Machine& machine, auto&) {
    require(!machine.stack().empty(), kInvalidContext, "no context was pushed in this thread");
    if (context != nullptr) *context = machine.stack().back();
    machine.stack().pop_back();
  });
}

EPL_DRIVER cuCtxGetCurrent(Context** context) {
  return call([&](Machine& machine, auto&) { *context = machine.stack().empty() ? nullptr : machine.stack().back(); });
}

EPL_DRIVER cuCtxSetCurrent(Context* context) {
  return call([&](Machine& machine, auto&) {
    require(context == nullptr || machine.alive(context), kInvalidContext, "this is no context");
    if (!machine.stack().empty()) machine.stack().pop_back();
    if (context != nullptr) machine.stack().push_back(context);
  });
}

EPL_DRIVER cuCtxGetDevice(int* device) {
  return call([&](Machine& machine, auto&) { *device = machine.current().device; });
}

EPL_DRIVER cuCtxSynchronize() {
  return call([&](Machine& machine, auto& lock) {
    Context& context = machine.current();
    check_not_recorded(machine, context, "waiting for a context");
    machine.wait_for_all(lock, context);
    require(context.sticky == kSuccess, context.sticky, "a command of this context failed");
  });
}

EPL_DRIVER cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return call([&](Machine& machine, auto&) {
    machine.current();
    *least = 0;
    *greatest = -5;
  });
}
