// XXH64 of a stream of bytes (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md), written from its
// specification: for damage in files and for comparing weights, not against adversaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace epl {

class Hash64 {
 public:
  explicit Hash64(uint64_t seed = 0);
  void add(const void* data, size_t bytes);
  uint64_t value() const;

 private:
  uint64_t lanes_[4];
  uint64_t seed_;
  uint64_t total_ = 0;
  unsigned char pending_[32];
  size_t pending_bytes_ = 0;
};

inline uint64_t hash64(std::span<const std::byte> bytes) {
  Hash64 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.value();
}

}  // namespace epl
