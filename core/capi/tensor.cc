// Tensors: owned, copied, borrowed, and through DLPack.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/base/device_memory.h"
#include "core/base/shown.h"
#include "core/capi/dlpack.h"
#include "core/capi/handle.h"

namespace epl::capi {

Result<DType> dtype_argument(int32_t dtype) {
  if (dtype < 1 || dtype > dtype_count) return invalid("dtype is ", dtype, ", which is no element type");
  return static_cast<DType>(dtype - 1);
}

Result<TensorType> type_argument(int32_t dtype, const int64_t* dims, int32_t ndim) {
  EPL_ASSIGN(DType type, dtype_argument(dtype));
  if (ndim < 0 || ndim > EPL_MAX_NDIM) return invalid("ndim is ", ndim, "; 0 to ", EPL_MAX_NDIM, " are possible");
  if (ndim > 0 && dims == nullptr) return invalid("dims is missing, but ndim is ", ndim);
  int64_t limit = std::numeric_limits<int64_t>::max() / static_cast<int64_t>(dtype_bytes(type));
  bool empty = false;
  for (int i = 0; i < ndim; ++i) empty |= dims[i] == 0;
  int64_t count = 1;
  for (int i = 0; i < ndim; ++i) {
    if (dims[i] < 0) return invalid("dimension ", i, " is ", dims[i]);
    if (!empty && dims[i] > limit / count)
      return invalid("the sizes of the dimensions multiply to more bytes than 2^63");
    if (!empty) count *= dims[i];
  }
  return TensorType{type, Shape(dims, dims + ndim)};
}

Status write_info(const std::string& name, DType dtype, const Shape& dims, epl_tensor_info* info) {
  if (dims.size() > EPL_MAX_NDIM)
    return unsupported(shown_plain(name, 80), " has ", dims.size(), " dimensions, more than the ", EPL_MAX_NDIM,
                       " of a tensor's type");
  epl_tensor_info made = EPL_TENSOR_INFO_INIT;
  made.name = name.c_str();
  made.name_length = name.size();
  made.dtype = dtype_constant(dtype);
  made.ndim = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), made.dims);
  return write_output(made, info, "epl_tensor_info");
}

Status check_on_host(const epl_tensor& tensor, std::string_view name) {
  const DeviceMemory* memory = device_memory_of(tensor.tensor);
  if (memory == nullptr) return {};
  return unsupported(name, " lies on ", memory->device(),
                     ", and is taken from memory of the host; copy it there first");
}

namespace {

std::unique_ptr<epl_tensor> make_tensor(const std::shared_ptr<Engine>& engine, Tensor tensor, bool read_only = false) {
  auto made = std::make_unique<epl_tensor>();
  made->engine = engine;
  made->tensor = std::move(tensor);
  made->read_only = read_only;
  return made;
}

std::string counted(size_t number, std::string_view what) { return cat(number, " ", what, number == 1 ? "" : "s"); }

// In elements, which every language has; C alone gives bytes.
Status check_bytes(const TensorType& type, const void* data, size_t bytes) {
  if (const auto each = static_cast<size_t>(dtype_bytes(type.dtype)); static_cast<size_t>(type.bytes()) != bytes) {
    const std::string wanted =
        cat(", but ", type.text(), " has ", counted(static_cast<size_t>(type.elements()), "element"));
    if (bytes % each != 0) return invalid(counted(bytes, "byte"), " were given", wanted, " of ", each, " bytes");
    const size_t given = bytes / each;
    return invalid(counted(given, "element"), " of ", dtype_name(type.dtype), given == 1 ? " was" : " were", " given (",
                   counted(bytes, "byte"), ")", wanted);
  }
  if (data == nullptr && bytes > 0) return invalid("data is missing");
  return {};
}

dlpack::DataType dlpack_type(DType type) {
  uint8_t bits = static_cast<uint8_t>(8 * dtype_bytes(type));
  if (type == DType::bf16) return {4, bits, 1};
  if (type == DType::boolean) return {6, bits, 1};
  if (is_float(type)) return {2, bits, 1};
  bool is_unsigned = type == DType::u8 || type == DType::u16 || type == DType::u32 || type == DType::u64;
  return {static_cast<uint8_t>(is_unsigned ? 1 : 0), bits, 1};
}

Result<DType> type_of_dlpack(const dlpack::DataType& type) {
  for (int i = 0; i < dtype_count; ++i) {
    dlpack::DataType known = dlpack_type(static_cast<DType>(i));
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return static_cast<DType>(i);
  }
  return unsupported("a DLPack tensor has elements of code ", type.code, ", ", type.bits, " bits and ", type.lanes,
                     " lanes, which no type of EPL is; convert it first");
}

bool is_on_gpu(const dlpack::Device& device) {
  return device.device_type == dlpack::device_cuda || device.device_type == dlpack::device_cuda_managed;
}

Status check_dlpack(const dlpack::ManagedTensorVersioned& managed) {
  const dlpack::Tensor& t = managed.dl_tensor;
  if (managed.version.major != dlpack::major_version) {
    return unsupported("the DLPack tensor is of version ", managed.version.major, ".", managed.version.minor,
                       ", and version 1 is understood");
  }
  const bool on_host = t.device.device_type == dlpack::device_cpu || t.device.device_type == dlpack::device_cuda_host;
  if (!on_host && !is_on_gpu(t.device))
    return unsupported("the DLPack tensor is on device type ", t.device.device_type,
                       ", and memory of the CPU (1) and of CUDA (2, 3, 13) is taken; copy it first");
  if (is_on_gpu(t.device) && t.device.device_id < 0)
    return invalid("the DLPack tensor is on device ", t.device.device_id, " of its kind");
  if (t.ndim < 0 || t.ndim > EPL_MAX_NDIM) return invalid("a DLPack tensor with ", t.ndim, " dimensions");
  if (t.strides == nullptr) return {};
  // Where there is no element, no stride says where one is.
  if (std::find(t.shape, t.shape + t.ndim, 0) != t.shape + t.ndim) return {};
  int64_t expected = 1;
  for (int i = t.ndim - 1; i >= 0; --i) {
    if (t.shape[i] > 1 && t.strides[i] != expected) {
      return unsupported("the DLPack tensor is not row-major: dimension ", i, " has stride ", t.strides[i], ", ",
                         expected, " is expected; copy it first");
    }
    expected *= std::max<int64_t>(t.shape[i], 1);
  }
  return {};
}

// What a DLPack tensor that we give out needs to live.
struct Exported {
  Counted counted;
  Tensor tensor;
  Shape shape, strides;
  dlpack::ManagedTensorVersioned managed{};
};

}  // namespace
}  // namespace epl::capi

using namespace epl;
using namespace epl::capi;

epl_error* epl_tensor_create(const epl_engine* engine, int32_t dtype, const int64_t* dims, int32_t ndim,
                             epl_tensor** tensor) {
  return giving(tensor, "tensor", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    EPL_REQUIRE(engine);
    EPL_ASSIGN(TensorType type, type_argument(dtype, dims, ndim));
    std::shared_ptr<const void> memory = allocate_bytes(engine->engine, static_cast<size_t>(type.bytes()));
    std::memset(const_cast<void*>(memory.get()), 0, static_cast<size_t>(type.bytes()));
    const void* data = memory.get();
    return make_tensor(engine->engine, Tensor(std::move(type), std::move(memory), data));
  });
}

epl_error* epl_tensor_create_copy(const epl_engine* engine, int32_t dtype, const int64_t* dims, int32_t ndim,
                                  const void* data, size_t bytes, epl_tensor** tensor) {
  return giving(tensor, "tensor", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    EPL_REQUIRE(engine);
    EPL_ASSIGN(TensorType type, type_argument(dtype, dims, ndim));
    EPL_TRY(check_bytes(type, data, bytes));
    std::shared_ptr<const void> memory = allocate_bytes(engine->engine, bytes);
    if (bytes > 0) std::memcpy(const_cast<void*>(memory.get()), data, bytes);
    const void* start = memory.get();
    return make_tensor(engine->engine, Tensor(std::move(type), std::move(memory), start));
  });
}

epl_error* epl_tensor_create_borrow(const epl_engine* engine, int32_t dtype, const int64_t* dims, int32_t ndim,
                                    void* data, size_t bytes, int32_t flags, epl_destroy_fn release, void* userdata,
                                    epl_tensor** tensor) {
  return giving(tensor, "tensor", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    // From here on `release` is called exactly once, whatever happens: also where the owner finds no memory for itself.
    std::shared_ptr<const void> owner(data, [release, userdata](const void*) {
      if (release) release(userdata);
    });
    EPL_REQUIRE(engine);
    EPL_ASSIGN(TensorType type, type_argument(dtype, dims, ndim));
    EPL_TRY(check_bytes(type, data, bytes));
    if ((flags & ~EPL_TENSOR_READ_ONLY) != 0)
      return unsupported("flags is ", flags, ", which has bits without a meaning");
    static char nothing;
    return make_tensor(engine->engine, Tensor(std::move(type), std::move(owner), data ? data : &nothing),
                       (flags & EPL_TENSOR_READ_ONLY) != 0);
  });
}

void epl_tensor_destroy(epl_tensor* tensor) { destroy(tensor); }
int32_t epl_tensor_dtype(const epl_tensor* tensor) {
  return alive(tensor) ? dtype_constant(tensor->tensor.dtype()) : EPL_DTYPE_NONE;
}
int32_t epl_tensor_ndim(const epl_tensor* tensor) { return alive(tensor) ? tensor->tensor.type().ndim() : 0; }
int64_t epl_tensor_dim(const epl_tensor* tensor, int32_t dim) {
  if (!alive(tensor) || dim < 0 || dim >= tensor->tensor.type().ndim()) return -1;
  return tensor->tensor.shape()[static_cast<size_t>(dim)];
}
size_t epl_tensor_bytes(const epl_tensor* tensor) {
  return alive(tensor) ? static_cast<size_t>(tensor->tensor.bytes()) : 0;
}
void* epl_tensor_data(const epl_tensor* tensor) {
  if (!alive(tensor) || device_memory_of(tensor->tensor) != nullptr) return nullptr;
  return const_cast<void*>(tensor->tensor.data());
}

int32_t epl_tensor_is_read_only(const epl_tensor* tensor) { return alive(tensor) && tensor->read_only; }
int32_t epl_tensor_device(const epl_tensor* tensor) {
  if (!alive(tensor)) return -1;
  return device_memory_of(tensor->tensor) == nullptr ? EPL_DEVICE_CPU : EPL_DEVICE_CUDA;
}

int32_t epl_dtype_bits(int32_t dtype) {
  return dtype < 1 || dtype > dtype_count ? 0 : static_cast<int32_t>(8 * dtype_bytes(static_cast<DType>(dtype - 1)));
}
const char* epl_dtype_name(int32_t dtype) {
  return dtype < 1 || dtype > dtype_count ? nullptr : dtype_name(static_cast<DType>(dtype - 1)).data();  // literals
}

void epl_tensor_info_init(epl_tensor_info* info) {
  if (info) *info = EPL_TENSOR_INFO_INIT;
}

epl_error* epl_tensor_from_dlpack(const epl_engine* engine, void* dl_managed_tensor_versioned, epl_tensor** tensor) {
  return giving(tensor, "tensor", [&]() -> Result<std::unique_ptr<epl_tensor>> {
    auto* managed = static_cast<dlpack::ManagedTensorVersioned*>(dl_managed_tensor_versioned);
    // Taken over: the deleter runs once, whatever happens.
    std::shared_ptr<const void> owner(managed, [](const void* p) {
      auto* taken = static_cast<dlpack::ManagedTensorVersioned*>(const_cast<void*>(p));
      if (taken && taken->deleter) taken->deleter(taken);
    });
    EPL_REQUIRE(managed);
    EPL_REQUIRE(engine);
    EPL_TRY(check_dlpack(*managed));
    const dlpack::Tensor& t = managed->dl_tensor;
    EPL_ASSIGN(DType dtype, type_of_dlpack(t.dtype));
    EPL_ASSIGN(TensorType type, type_argument(dtype_constant(dtype), t.shape, t.ndim));
    char* const data = static_cast<char*>(t.data) + t.byte_offset;
    const bool read_only = (managed->flags & dlpack::flag_read_only) != 0;
    if (!is_on_gpu(t.device))
      return make_tensor(engine->engine, Tensor(std::move(type), std::move(owner), data), read_only);
    const int number = t.device.device_id;
    auto memory = std::make_shared<const DeviceMemory>(cat("cuda:", number), number, data, std::move(owner));
    return make_tensor(engine->engine, Tensor(std::move(type), std::move(memory)), read_only);
  });
}

epl_error* epl_tensor_to_dlpack(const epl_tensor* tensor, void** dl_managed_tensor_versioned) {
  if (dl_managed_tensor_versioned != nullptr) *dl_managed_tensor_versioned = nullptr;
  return guarded([&]() -> Status {
    EPL_REQUIRE(dl_managed_tensor_versioned);
    EPL_REQUIRE(tensor);
    auto made = std::make_unique<Exported>();
    made->tensor = tensor->tensor;
    made->shape = tensor->tensor.shape();
    made->strides = row_major_strides(made->shape);
    dlpack::ManagedTensorVersioned& managed = made->managed;
    managed.version = {dlpack::major_version, 0};
    managed.manager_ctx = made.get();
    managed.deleter = [](dlpack::ManagedTensorVersioned* self) { delete static_cast<Exported*>(self->manager_ctx); };
    managed.flags = tensor->read_only ? dlpack::flag_read_only : 0;
    const DeviceMemory* there = device_memory_of(made->tensor);
    managed.dl_tensor = {address_of(made->tensor),
                         {there ? dlpack::device_cuda : dlpack::device_cpu, there ? there->number() : 0},
                         static_cast<int32_t>(made->shape.size()),
                         dlpack_type(tensor->tensor.dtype()),
                         made->shape.data(),
                         made->strides.data(),
                         0};
    *dl_managed_tensor_versioned = &made.release()->managed;
    return {};
  });
}
