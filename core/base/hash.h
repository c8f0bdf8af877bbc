// XXH64 of a stream of bytes, by the xxHash library. It finds damage in files and compares weights; it does not protect
// against adversaries. Committed hashes and checkpoints depend on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace epl {

class Hash64 {
 public:
  Hash64();
  void add(const void* data, size_t bytes);
  uint64_t value() const;

 private:
  alignas(8) std::byte state_[88];  // the library's own, so that its header of 6,000 lines is read once
};

inline uint64_t hash64(std::span<const std::byte> bytes) {
  Hash64 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.value();
}

}  // namespace epl
