// What we call of NCCL, NVIDIA's collectives over GPUs: libnccl.so.2.
#pragma once

#include <cstddef>
#include <string>

#include "backends/cuda/api/driver.h"
#include "backends/cuda/api/library.h"
#include "core/base/status.h"

namespace epl::cuda {

using NcclCode = int;
using NcclEnd = struct NcclEndTag*;  // of one GPU

// By which ranks of several processes find each other.
struct NcclId {
  char bytes[128];
};
// The beginning of what the library reads; the rest is as it likes.
struct NcclSettings {
  size_t size = sizeof(NcclSettings);
  unsigned magic = 0xcafebeef;
  unsigned version = 21400;  // that knows this much of it
  int blocking = 0;          // no call waits for other ranks
  int unread = 0;
};

inline constexpr NcclCode nccl_success = 0, nccl_cuda_failed = 1, nccl_remote_failed = 6, nccl_in_progress = 7;
inline constexpr int nccl_u8 = 1, nccl_i64 = 4, nccl_f16 = 6, nccl_f32 = 7, nccl_f64 = 8, nccl_bf16 = 9;
inline constexpr int nccl_sum = 0, nccl_no_color = -1;

// Each: our name, the library's, the version that brought it (as 2180 for 2.18), its parameters.
#define EPL_CUDA_NCCL_FUNCTIONS(F)                                                                         \
  F(begin_all, ncclCommInitAll, 2000, (NcclEnd * ends, int count, const int* ordinals))                    \
  F(split, ncclCommSplit, 2180, (NcclEnd end, int color, int key, NcclEnd* made, void* settings))          \
  F(new_id, ncclGetUniqueId, 2000, (NcclId * id))                                                          \
  F(begin_rank, ncclCommInitRankConfig, 2140,                                                              \
    (NcclEnd * made, int ranks, NcclId id, int rank, NcclSettings* settings))                              \
  F(state, ncclCommGetAsyncError, 2040, (NcclEnd end, NcclCode * state))                                   \
  F(destroy, ncclCommDestroy, 2000, (NcclEnd end))                                                         \
  F(abort, ncclCommAbort, 2040, (NcclEnd end))                                                             \
  F(group_start, ncclGroupStart, 2000, ())                                                                 \
  F(group_end, ncclGroupEnd, 2000, ())                                                                     \
  F(all_reduce, ncclAllReduce, 2000,                                                                       \
    (const void* source, void* target, size_t count, int type, int how, NcclEnd end, StreamHandle stream)) \
  F(reduce_scatter, ncclReduceScatter, 2000,                                                               \
    (const void* source, void* target, size_t count, int type, int how, NcclEnd end, StreamHandle stream)) \
  F(all_gather, ncclAllGather, 2000,                                                                       \
    (const void* source, void* target, size_t count, int type, NcclEnd end, StreamHandle stream))          \
  F(broadcast, ncclBroadcast, 2020,                                                                        \
    (const void* source, void* target, size_t count, int type, int root, NcclEnd end, StreamHandle stream))

struct Nccl {
#define EPL_CUDA_POINTER(name, symbol, since, parameters) NcclCode(*name) parameters = nullptr;
  EPL_CUDA_NCCL_FUNCTIONS(EPL_CUDA_POINTER)
#undef EPL_CUDA_POINTER
  const char* (*code_text)(NcclCode code) = nullptr;
  const char* (*last_error)(NcclEnd end) = nullptr;
  std::string path;
  int version = 0;  // as 2320 for 2.32

  // "unhandled cuda error: what came before"
  std::string text(NcclCode code) const;
};

extern const LibraryRow nccl_row;
Result<FoundLibrary> find_nccl(const std::string& folder);
// The library, opened when it is first asked for.
Result<const Nccl*> open_nccl(const std::string& folder);

}  // namespace epl::cuda
