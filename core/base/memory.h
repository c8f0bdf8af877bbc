// Large memory from the operating system, for hosts that bring no allocator of their own.
#pragma once

#include <cstddef>
#include <new>

namespace epl {

// What is thrown where memory is asked for in large pieces, so that who tells it can say how large.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t bytes) : bytes_(bytes) {}
  const char* what() const noexcept override { return "out of memory"; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
};

// `bytes` at a multiple of `alignment` (a power of two), or null. What is large lies on pages of 2 MiB where the system
// grants them on request: a product of large matrices walks over more of the small ones than the processor keeps
// translations for, and touching them the first time costs a fault each.
// Thread safety: any thread. Freed by release_memory.
void* allocate_memory(size_t bytes, size_t alignment);
void release_memory(void* memory);

}  // namespace epl
