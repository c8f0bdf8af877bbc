#include "core/base/hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace epl {
namespace {

constexpr uint64_t prime1 = 0x9E3779B185EBCA87, prime2 = 0xC2B2AE3D27D4EB4F, prime3 = 0x165667B19E3779F9,
                   prime4 = 0x85EBCA77C2B2AE63, prime5 = 0x27D4EB2F165667C5;

template <class T> T load(const unsigned char* p) {  // little-endian, as all our processors are
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

uint64_t round_lane(uint64_t lane, uint64_t input) { return std::rotl(lane + input * prime2, 31) * prime1; }
uint64_t merge(uint64_t hash, uint64_t lane) { return (hash ^ round_lane(0, lane)) * prime1 + prime4; }

void add_stripe(uint64_t* lanes, const unsigned char* p) {
  for (int i = 0; i < 4; ++i) lanes[i] = round_lane(lanes[i], load<uint64_t>(p + 8 * i));
}

}  // namespace

Hash64::Hash64(uint64_t seed) : lanes_{seed + prime1 + prime2, seed + prime2, seed, seed - prime1}, seed_(seed) {}

void Hash64::add(const void* data, size_t bytes) {
  if (bytes == 0) return;
  const auto* p = static_cast<const unsigned char*>(data);
  total_ += bytes;
  if (pending_bytes_ > 0) {
    size_t taken = std::min(bytes, sizeof pending_ - pending_bytes_);
    std::memcpy(pending_ + pending_bytes_, p, taken);
    pending_bytes_ += taken, p += taken, bytes -= taken;
    if (pending_bytes_ < sizeof pending_) return;
    add_stripe(lanes_, pending_);
    pending_bytes_ = 0;
  }
  for (; bytes >= 32; p += 32, bytes -= 32) add_stripe(lanes_, p);
  if (bytes > 0) std::memcpy(pending_, p, bytes);
  pending_bytes_ = bytes;
}

uint64_t Hash64::value() const {
  uint64_t hash = seed_ + prime5;
  if (total_ >= 32) {
    hash = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) + std::rotl(lanes_[3], 18);
    for (uint64_t lane : lanes_) hash = merge(hash, lane);
  }
  hash += total_;
  const unsigned char* p = pending_;
  size_t left = pending_bytes_;
  for (; left >= 8; p += 8, left -= 8) hash = std::rotl(hash ^ round_lane(0, load<uint64_t>(p)), 27) * prime1 + prime4;
  for (; left >= 4; p += 4, left -= 4) hash = std::rotl(hash ^ load<uint32_t>(p) * prime1, 23) * prime2 + prime3;
  for (; left > 0; ++p, --left) hash = std::rotl(hash ^ *p * prime5, 11) * prime1;
  hash = (hash ^ hash >> 33) * prime2;
  hash = (hash ^ hash >> 29) * prime3;
  return hash ^ hash >> 32;
}

}  // namespace epl
