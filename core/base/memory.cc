#include "core/base/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace epl {
namespace {
constexpr size_t large_page = size_t{2} << 20;
}

void* allocate_memory(size_t bytes, size_t alignment) {
  const bool large = bytes >= 2 * large_page;
  if (large) alignment = std::max(alignment, large_page);
  if (bytes > SIZE_MAX - alignment) return nullptr;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, rounded);
#if defined(MADV_HUGEPAGE)
  if (large && memory)
    madvise(memory, rounded, MADV_HUGEPAGE);  // only a request: memory without large pages is correct too
#endif
  return memory;
}

void release_memory(void* memory) { std::free(memory); }

}  // namespace epl
