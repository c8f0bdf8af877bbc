// SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104): how two ends of a connection show that they know one secret.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace epl {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256() = default;
  Sha256(const Sha256&) = default;
  ~Sha256();  // leaves nothing of what was added in memory, since it may have been a key
  void add(std::string_view bytes);
  Digest value() const;  // of all that was added

 private:
  void take_block(const uint8_t* block);
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t bytes_ = 0;
};

// HMAC of what is added, by one key.
class HmacSha256 {
 public:
  explicit HmacSha256(std::string_view key);
  void add(std::string_view bytes) { inner_.add(bytes); }
  Digest value() const;

 private:
  Sha256 inner_, outer_;
};

Digest sha256(std::string_view bytes);
Digest hmac_sha256(std::string_view key, std::string_view bytes);
// In a time that does not tell how much of the two is equal.
bool same_digest(const Digest& a, const Digest& b);
// As 64 hexadecimal digits.
std::string digest_text(const Digest& digest);

}  // namespace epl
