// Copies past the caches, to memory that this core does not read soon. A usual store first brings here the line that it
// writes, and a line that another core has read must first be given up there: tens of nanoseconds for each.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epl::cpu {

// Floats to `y`, which is aligned to 64 bytes. Others see the copy once `finish_streaming` was called by the same
// thread.
namespace v3 {
void stream_floats(const float* x, float* y, int64_t n);
void finish_streaming();
}  // namespace v3
namespace v4 {
void stream_floats(const float* x, float* y, int64_t n);
void finish_streaming();
}  // namespace v4

// Bytes of memory of another rank, which writes there again and which nobody else reads: whole lines of it are written
// with what they hold. A core that writes to a line that another one has only read waits for the reader to give it up,
// several times as long as for a line that the reader has written. All of `from` may be written to.
namespace v3 {
void take_lines(std::byte* from, std::byte* to, int64_t lines);
}
namespace v4 {
void take_lines(std::byte* from, std::byte* to, int64_t lines);
}
void take_bytes(void* to, void* from, int64_t bytes);

// Any bytes, finished when it returns. Few of them go the usual way, where the peer finds them in a cache.
void stream_bytes(void* to, const void* from, int64_t bytes);

}  // namespace epl::cpu
