// What the program of the host has on a GPU itself: its streams, and copies from and to its memory that are recorded.
#pragma once

#include "backends/cuda/gpu.h"

namespace epl::cuda {

// Behind what the program has given to its stream: 1: the legacy default stream, 2: that of this thread, else a handle.
Status record_foreign(const Gpu& gpu, int64_t stream, EventHandle event);

// Of so many bytes. Its parameters: our memory, the place of their address, the offset, the bytes, and whether the copy
// goes to them.
Launch placed_launch(uint64_t bytes);
// Of 0 bytes: the kernel is made ready, which cannot be done while a stream is recorded.
Status copy_placed(const GpuStream& stream, Address memory, Address place, int64_t offset, uint64_t bytes,
                   bool to_place);

}  // namespace epl::cuda
