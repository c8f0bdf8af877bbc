#include "core/base/sha256.h"

#include <string.h>  // explicit_bzero

#include <algorithm>
#include <bit>
#include <cstring>

namespace epl {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t block_bytes = 64;

uint32_t big_endian(const uint8_t* at) {
  return static_cast<uint32_t>(at[0]) << 24 | static_cast<uint32_t>(at[1]) << 16 | static_cast<uint32_t>(at[2]) << 8 |
         static_cast<uint32_t>(at[3]);
}

std::string_view digest_bytes(const Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

void Sha256::take_block(const uint8_t* block) {
  uint32_t w[64];
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t near = w[i - 2], far = w[i - 15];
    const uint32_t s1 = std::rotr(near, 17) ^ std::rotr(near, 19) ^ (near >> 10);
    const uint32_t s0 = std::rotr(far, 7) ^ std::rotr(far, 18) ^ (far >> 3);
    w[i] = s1 + w[i - 7] + s0 + w[i - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    const uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const uint32_t added[] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state_.size(); ++i) state_[i] += added[i];
}

void Sha256::add(std::string_view bytes) {
  while (!bytes.empty()) {
    if (bytes_ % block_bytes == 0 && bytes.size() >= block_bytes) {  // where it lies
      take_block(reinterpret_cast<const uint8_t*>(bytes.data()));
      bytes_ += block_bytes;
      bytes.remove_prefix(block_bytes);
      continue;
    }
    const size_t at = bytes_ % block_bytes, taken = std::min(bytes.size(), block_bytes - at);
    std::memcpy(block_.data() + at, bytes.data(), taken);
    bytes_ += taken;
    bytes.remove_prefix(taken);
    if (at + taken == block_bytes) take_block(block_.data());
  }
}

Sha256::~Sha256() {
  ::explicit_bzero(block_.data(), block_.size());
  ::explicit_bzero(state_.data(), sizeof state_);
}

Digest Sha256::value() const {
  Sha256 end = *this;
  const uint64_t bits = bytes_ * 8;
  std::array<char, 2 * block_bytes> tail{'\x80'};
  size_t size = 1;
  while ((bytes_ + size) % block_bytes != block_bytes - 8) ++size;
  for (int shift = 56; shift >= 0; shift -= 8) tail[size++] = static_cast<char>(bits >> shift & 0xff);
  end.add({tail.data(), size});
  Digest digest;
  for (size_t i = 0; i < digest.size(); ++i)
    digest[i] = static_cast<uint8_t>(end.state_[i / 4] >> (24 - 8 * (i % 4)) & 0xff);
  return digest;
}

Digest sha256(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.value();
}

HmacSha256::HmacSha256(std::string_view key) {
  std::array<char, block_bytes> block{};
  const Digest shorter = key.size() > block_bytes ? sha256(key) : Digest();
  if (key.size() > block_bytes) key = digest_bytes(shorter);
  std::ranges::copy(key, block.begin());
  const auto begin = [&](Sha256& hash, char mask) {
    std::array<char, block_bytes> pad = block;
    for (char& c : pad) c = static_cast<char>(c ^ mask);
    hash.add({pad.data(), pad.size()});
    ::explicit_bzero(pad.data(), pad.size());
  };
  begin(inner_, '\x36');
  begin(outer_, '\x5c');
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

bool same_digest(const Digest& a, const Digest& b) {
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned>(a[i] ^ b[i]);
  return difference == 0;
}

std::string digest_text(const Digest& digest) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : digest) text += {digits[byte >> 4], digits[byte & 15]};
  return text;
}

}  // namespace epl
