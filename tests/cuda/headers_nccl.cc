// Our declarations of NCCL against NVIDIA's own header (scripts/nvidia_headers.sh fetches it), as headers.cc does for
// the driver and for NVRTC.
#include <nccl.h>

#include "backends/cuda/api/nccl.h"
#include "core/base/pack_abi.h"
#include "tests/cuda/alike.h"

namespace epl::cuda {
namespace {

static_assert(nccl_success == ncclSuccess && nccl_cuda_failed == ncclUnhandledCudaError &&
              nccl_remote_failed == ncclRemoteError && nccl_in_progress == ncclInProgress);
static_assert(sizeof(NcclId) == NCCL_UNIQUE_ID_BYTES && sizeof(NcclId) == EPL_PACK_ID_BYTES);
// The library reads as much of the struct as its size and its version say.
constexpr ncclConfig_t initial = NCCL_CONFIG_INITIALIZER;
static_assert(NcclSettings().magic == initial.magic && NcclSettings().version <= initial.version &&
              offsetof(NcclSettings, size) == offsetof(ncclConfig_t, size) &&
              offsetof(NcclSettings, magic) == offsetof(ncclConfig_t, magic) &&
              offsetof(NcclSettings, version) == offsetof(ncclConfig_t, version) &&
              offsetof(NcclSettings, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(nccl_u8 == ncclUint8 && nccl_i64 == ncclInt64 && nccl_f16 == ncclFloat16 && nccl_f32 == ncclFloat32 &&
              nccl_f64 == ncclFloat64 && nccl_bf16 == ncclBfloat16);
static_assert(nccl_sum == ncclSum && nccl_no_color == NCCL_SPLIT_NOCOLOR);

#define EPL_SAME_IN_NCCL(name, symbol, since, parameters) \
  static_assert(same<decltype(Nccl::name), decltype(&::symbol)>, #symbol);
EPL_CUDA_NCCL_FUNCTIONS(EPL_SAME_IN_NCCL)
static_assert(same<decltype(Nccl::code_text), decltype(&::ncclGetErrorString)>);
static_assert(same<decltype(Nccl::last_error), decltype(&::ncclGetLastError)>);

}  // namespace
}  // namespace epl::cuda
