// Large memory from the operating system, for hosts that bring no allocator of their own.
#pragma once

#include <cstddef>
#include <new>

namespace epl {

// Thrown by requests for large memory, so that the message can say how much was asked for.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(size_t bytes) : bytes_(bytes) {}
  const char* what() const noexcept override { return "out of memory"; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_;
};

// `bytes` at a multiple of `alignment` (a power of two), or null. Large memory lies on pages of 2 MiB if the system
// grants them on request. A product of large matrices walks over more small pages than the processor keeps translations
// for, and the first touch of each costs a fault. Thread safety: any thread. Freed by release_memory.
void* allocate_memory(size_t bytes, size_t alignment);
void release_memory(void* memory);

}  // namespace epl
