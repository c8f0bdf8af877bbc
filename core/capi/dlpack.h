// DLPack's versioned exchange struct (https://dmlc.github.io/dlpack/latest/c_api.html, version 1.x), declared here from
// its specification: the layout is an ABI of its own.
#pragma once

#include <cstdint>

namespace epl::capi::dlpack {

struct PackVersion {
  uint32_t major, minor;
};
inline constexpr uint32_t major_version = 1;

struct Device {
  int32_t device_type;
  int32_t device_id;
};
// Pinned memory of the host is read as any other of the host, and managed memory by the GPU that is named.
inline constexpr int32_t device_cpu = 1, device_cuda = 2, device_cuda_host = 3, device_cuda_managed = 13;

struct DataType {
  uint8_t code;  // 0 signed, 1 unsigned, 2 float, 4 bfloat, 6 bool
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};

struct ManagedTensorVersioned {
  PackVersion version;
  void* manager_ctx;
  void (*deleter)(ManagedTensorVersioned* self);
  uint64_t flags;  // bit 0: read-only
  Tensor dl_tensor;
};
inline constexpr uint64_t flag_read_only = 1;

}  // namespace epl::capi::dlpack
