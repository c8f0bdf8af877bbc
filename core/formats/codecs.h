// Unpacking by name: gzip, which the library has in itself, and the codecs of packs (core/base/pack_abi.h).
#pragma once

#include <map>
#include <mutex>
#include <span>
#include <string>

#include "core/base/status.h"

struct epl_pack_codec;

namespace epl {

// Thread safety: all calls may run together.
class Codecs {
 public:
  // `packs`: the folder of optional packs.
  explicit Codecs(std::string packs) : packs_(std::move(packs)) {}
  // Unpacks all of `packed` into all of `target`.
  Status unpack(std::string_view codec, std::span<const std::byte> packed, std::span<std::byte> target);
  // Height, width and channels (1 or 3) of the image that `packed` holds.
  Status measure(std::string_view codec, std::span<const std::byte> packed, int64_t (&dims)[3]);

 private:
  Result<const epl_pack_codec*> find(std::string_view codec);
  std::string packs_;
  std::mutex mutex_;
  std::map<std::string, const epl_pack_codec*, std::less<>> found_;
};

}  // namespace epl
