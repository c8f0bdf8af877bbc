// What a call of a communicator does with its rank's stream, where that is one of the host: it works with its threads,
// and waits for what the stream has left to others.
#pragma once

#include <cstring>
#include <memory>

#include "backends/cpu/streaming.h"
#include "core/backend/device.h"
#include "core/base/thread_pool.h"

namespace epl::cpu {

// Below these a second thread costs more than it saves.
inline constexpr int64_t reduce_grain = 16 << 10;  // elements
inline constexpr int64_t copy_grain = 1 << 20;     // bytes

// Null: of a stream that leaves nothing to others.
inline std::shared_ptr<Posts> posts_of(Stream& stream) {
  HostStream* host = stream.host();
  return host == nullptr ? nullptr : host->posts();
}
inline void wait_for_posts(Stream& stream) {
  if (const std::shared_ptr<Posts> posts = posts_of(stream)) posts->wait();
}

// The ranges together are [0, count); a thread takes `grain` or more.
inline void share(Stream& stream, int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> task) {
  if (count <= 0) return;
  HostStream* host = stream.host();
  if (host == nullptr || count <= grain) {
    task(0, count);
  } else {
    host->threads().run_ranges(count, grain, task);
  }
}

inline void copy(Stream& stream, void* target, const void* source, int64_t bytes, int64_t grain) {
  if (target == source) return;
  share(stream, bytes, grain, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(target) + begin, static_cast<const std::byte*>(source) + begin,
                static_cast<size_t>(end - begin));
  });
}

// From memory of another rank, which nobody else reads.
inline void take(Stream& stream, void* target, void* source, int64_t bytes, int64_t grain) {
  share(stream, bytes, grain, [&](int64_t begin, int64_t end) {
    take_bytes(static_cast<std::byte*>(target) + begin, static_cast<std::byte*>(source) + begin, end - begin);
  });
}

// To memory of another rank.
inline void give(Stream& stream, void* target, const void* source, int64_t bytes) {
  if (target == source) return;
  share(stream, bytes, copy_grain, [&](int64_t begin, int64_t end) {
    stream_bytes(static_cast<std::byte*>(target) + begin, static_cast<const std::byte*>(source) + begin, end - begin);
  });
}

}  // namespace epl::cpu
