#include "core/formats/codecs.h"

#include <zlib.h>

#include <algorithm>

#include "core/base/pack.h"
#include "core/base/pack_abi.h"

namespace epl {
namespace {

Status unpack_gzip(std::span<const std::byte> packed, std::span<std::byte> target) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK)
    return Status(Code::out_of_memory, "there is no memory to unpack gzip");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  Bytef none = 0;  // inflate wants memory even where nothing is to be written
  stream.next_out = target.empty() ? &none : reinterpret_cast<Bytef*>(target.data());
  stream.avail_out = static_cast<uInt>(target.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool complete = result == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return complete ? Status() : Status(Code::invalid_argument, cat("gzip does not unpack to ", target.size(), " bytes"));
}

}  // namespace

Result<const epl_pack_codec*> Codecs::find(std::string_view codec) {
  std::lock_guard lock(mutex_);
  if (const auto it = found_.find(codec); it != found_.end()) return it->second;
  for (const PackRow& row : pack_table().rows) {
    const auto home = std::ranges::find(row.codecs, codec, &PackCodec::name);
    if (home == row.codecs.end()) continue;
    const auto pack = open_pack(packs_, row.name);
    if (!pack.ok()) {
      return Status(Code::unsupported,
                    cat(home->unpacks, " needs the pack ", row.name, ", which is not here: ", pack.status().message(),
                        ". It is built where Debian's ", row.packages, " are installed. Without it: ", home->instead));
    }
    for (uint64_t i = 0; i < (*pack)->codec_count; ++i) {
      const epl_pack_codec* one = (*pack)->codecs[i];
      if (codec == one->name) return found_.emplace(codec, one).first->second;
    }
    return unsupported("the pack ", row.name, " that is here does not unpack ", codec,
                       "; build the pack of this version");
  }
  return unsupported("no pack unpacks ", codec, "; store the data with another compression, or without one");
}

Status Codecs::unpack(std::string_view codec, std::span<const std::byte> packed, std::span<std::byte> target) {
  if (codec == "gzip") return unpack_gzip(packed, target);
  EPL_ASSIGN(const epl_pack_codec* found, find(codec));
  char text[200] = "";
  const epl_pack_reason reason{text, sizeof text};
  if (found->unpack(packed.data(), packed.size(), target.data(), target.size(), &reason) != 0)
    return Status(Code::invalid_argument, cat(codec, ": ", to_utf8(text)));
  return {};
}

Status Codecs::measure(std::string_view codec, std::span<const std::byte> packed, int64_t (&dims)[3]) {
  EPL_ASSIGN(const epl_pack_codec* found, find(codec));
  char text[200] = "";
  const epl_pack_reason reason{text, sizeof text};
  if (found->measure(packed.data(), packed.size(), dims, &reason) != 0)
    return Status(Code::invalid_argument, cat(codec, ": ", to_utf8(text)));
  return {};
}

}  // namespace epl
