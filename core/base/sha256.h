// SHA-256 (FIPS 180-4) and HMAC over it (RFC 2104): how two ends of a connection show that they know one secret. The
// hash is that of OpenSSL, linked in (cmake/sha256.cmake).
#pragma once

#include <openssl/sha.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace epl {

using Digest = std::array<uint8_t, SHA256_DIGEST_LENGTH>;

class Sha256 {
 public:
  Sha256();
  Sha256(const Sha256&) = default;
  ~Sha256();  // leaves nothing of what was added in memory, since it may have been a key
  void add(std::string_view bytes);
  Digest value() const;  // of all that was added

 private:
  SHA256_CTX state_;
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
bool same_digest(std::span<const uint8_t> a, std::span<const uint8_t> b);
// As 64 hexadecimal digits.
std::string digest_text(const Digest& digest);

}  // namespace epl
