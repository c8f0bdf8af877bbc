// Numbers of variable length, as Thrift and Parquet write them: seven bits a byte, the lowest first. Ours because a
// damaged file is an ordinary error here and an exception to the library that the frontends use.
#pragma once

#include <cstdint>
#include <string_view>

namespace epl {

// Takes a number off the front of `in`; false where it does not end in time.
inline bool read_varint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (in.empty()) return false;
    const auto one = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(one & 127) << shift;
    if (one < 128) return true;
  }
  return false;
}

// Signed numbers alternate: 0, -1, 1, -2, 2.
inline int64_t from_zigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace epl
