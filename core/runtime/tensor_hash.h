// The bytes of a tensor as one number.
#pragma once

#include <algorithm>
#include <vector>

#include "core/base/hash.h"
#include "core/base/tensor.h"

namespace epl {

// In chunks: a weight that lies in its file is not read into memory for this.
inline Result<uint64_t> hash_of_bytes(const Tensor& value) {
  constexpr int64_t bytes_at_once = 1 << 20;
  Hash64 hash;
  std::vector<std::byte> chunk(static_cast<size_t>(std::min(bytes_at_once, value.bytes())));
  for (int64_t at = 0; at < value.bytes(); at += bytes_at_once) {
    const int64_t bytes = std::min(bytes_at_once, value.bytes() - at);
    EPL_TRY(value.read(at, bytes, chunk.data()));
    hash.add(chunk.data(), static_cast<size_t>(bytes));
  }
  return hash.value();
}

}  // namespace epl
