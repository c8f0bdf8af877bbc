#include "core/base/sha256.h"

#include <string.h>  // explicit_bzero

#include <algorithm>

extern "C" {
// OpenSSL's, under the names that cmake/sha256.cmake gives them.
int epl_SHA256_Init(SHA256_CTX*);
int epl_SHA256_Update(SHA256_CTX*, const void*, size_t);
int epl_SHA256_Final(unsigned char*, SHA256_CTX*);
int epl_CRYPTO_memcmp(const void*, const void*, size_t);
void epl_OPENSSL_cpuid_setup();
// What OpenSSL calls instead of getenv: the environment is the host's.
char* epl_no_environment(const char*) { return nullptr; }
}

namespace epl {
namespace {

std::string_view digest_bytes(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

Sha256::Sha256() {
  [[maybe_unused]] static const bool asked = (epl_OPENSSL_cpuid_setup(), true);  // which instructions there are
  epl_SHA256_Init(&state_);
}

Sha256::~Sha256() { ::explicit_bzero(&state_, sizeof state_); }

void Sha256::add(std::string_view bytes) { epl_SHA256_Update(&state_, bytes.data(), bytes.size()); }

Digest Sha256::value() const {
  Sha256 end = *this;
  Digest digest;
  epl_SHA256_Final(digest.data(), &end.state_);
  return digest;
}

Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.value();
}

// Not OpenSSL's own: that one is a megabyte and more, which looks for providers and settings of the system.
HmacSha256::HmacSha256(std::string_view key) {
  std::array<char, SHA256_CBLOCK> block{};
  const Digest shorter = key.size() > block.size() ? sha256(key) : Digest();
  if (key.size() > block.size()) key = digest_bytes(shorter);
  std::ranges::copy(key, block.begin());
  for (char& c : block) c ^= 0x36;
  inner_.add({block.data(), block.size()});
  for (char& c : block) c ^= 0x36 ^ 0x5c;
  outer_.add({block.data(), block.size()});
  ::explicit_bzero(block.data(), block.size());  // a key must not stay on the stack
}

Digest HmacSha256::value() const {
  const Digest inner = inner_.value();
  Sha256 outer = outer_;
  outer.add(digest_bytes(inner));
  return outer.value();
}

Digest hmac_sha256(std::string_view key, std::string_view bytes) {
  HmacSha256 hash(key);
  hash.add(bytes);
  return hash.value();
}

bool same_digest(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  return a.size() == b.size() && epl_CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string digest_text(const Digest& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

}  // namespace epl
