// How the frames of a connection are signed where the job asks for it. Each direction has a key of its own, which
// follows from the secret and from what both ends have drawn by chance. A tag is over the number of the frame besides
// its bytes, so that a frame that was changed, repeated, left out or put elsewhere has a wrong one. Head and body have
// a tag each: the size of the body is not believed before the head's tag was looked at.
#pragma once

#include <array>
#include <cstring>
#include <string_view>

#include "core/base/sha256.h"

namespace epl::net {

using FrameTag = std::array<uint8_t, 16>;  // the first half of HMAC-SHA256 (RFC 2104, section 5)

// The keys of one end of a connection.
struct FrameKeys {
  Digest sends{}, receives{};
};

// One direction of a connection.
class FrameSeal {
 public:
  explicit FrameSeal(const Digest& key) : keyed_({reinterpret_cast<const char*>(key.data()), key.size()}) {}
  // The next frame, of which the body's follows.
  FrameTag of_head(std::string_view head) {
    ++number_;
    return tag('h', head);
  }
  FrameTag of_body(std::string_view body) const { return tag('b', body); }

 private:
  FrameTag tag(char part, std::string_view bytes) const {
    HmacSha256 hash = keyed_;
    hash.add({&part, 1});
    hash.add({reinterpret_cast<const char*>(&number_), sizeof number_});
    hash.add(bytes);
    const Digest full = hash.value();
    FrameTag out;
    std::memcpy(out.data(), full.data(), out.size());
    return out;
  }
  HmacSha256 keyed_;
  uint64_t number_ = 0;
};

}  // namespace epl::net
