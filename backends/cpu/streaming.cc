#include "backends/cpu/streaming.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "backends/cpu/cpu.h"
#include "core/base/cache_line.h"

namespace epl::cpu {

void stream_bytes(void* to, const void* from, int64_t bytes) {
  constexpr int64_t few = 4 << 10;
  auto* y = static_cast<std::byte*>(to);
  const auto* x = static_cast<const std::byte*>(from);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(y) % line_bytes);
  const int64_t head = bytes < few ? bytes : (line_bytes - past) % line_bytes;
  const int64_t body = (bytes - head) / line_bytes * line_bytes;
  std::memcpy(y, x, static_cast<size_t>(head));
  if (body > 0) {
    EPL_CPU_CHOOSE(stream_floats)
    (reinterpret_cast<const float*>(x + head), reinterpret_cast<float*>(y + head),
     body / static_cast<int64_t>(sizeof(float)));
    EPL_CPU_CHOOSE(finish_streaming)();
  }
  std::memcpy(y + head + body, x + head + body, static_cast<size_t>(bytes - head - body));
}

void take_bytes(void* to, void* from, int64_t bytes) {
  auto* y = static_cast<std::byte*>(to);
  auto* x = static_cast<std::byte*>(from);
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(x) % line_bytes);
  const int64_t head = std::min(bytes, (line_bytes - past) % line_bytes), lines = (bytes - head) / line_bytes;
  std::memcpy(y, x, static_cast<size_t>(head));
  EPL_CPU_CHOOSE(take_lines)(x + head, y + head, lines);
  const int64_t done = head + lines * line_bytes;
  std::memcpy(y + done, x + done, static_cast<size_t>(bytes - done));
}

}  // namespace epl::cpu
