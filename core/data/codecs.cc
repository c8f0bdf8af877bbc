#include "core/data/codecs.h"

#include <zlib.h>

#include <algorithm>

#include "core/base/pack.h"
#include "core/base/pack_abi.h"

namespace epl {
namespace {

// Which pack has a codec, and what helps where it is missing.
struct Home {
  std::string_view codec, pack, what, packages, instead;
};
constexpr Home homes[] = {
    {"snappy", "parquet", "Parquet packed with snappy", "libsnappy-dev and libzstd-dev",
     "write the file with compression=\"gzip\""},
    {"zstd", "parquet", "Parquet packed with zstd", "libsnappy-dev and libzstd-dev",
     "write the file with compression=\"gzip\""},
    {"jpeg", "images", "an image in JPEG", "libjpeg62-turbo-dev and libpng-dev",
     "decode the images in Python and numpy.savez(\"data.npz\", x=..., target=...)"},
    {"png", "images", "an image in PNG", "libjpeg62-turbo-dev and libpng-dev",
     "decode the images in Python and numpy.savez(\"data.npz\", x=..., target=...)"},
};

Status unpack_gzip(std::span<const std::byte> packed, std::span<std::byte> target) {
  z_stream stream{};
  if (inflateInit2(&stream, MAX_WBITS + 16) != Z_OK)
    return Status(Code::out_of_memory, "there is no memory to unpack gzip");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  Bytef none = 0;  // inflate wants a place even where nothing is to be written
  stream.next_out = target.empty() ? &none : reinterpret_cast<Bytef*>(target.data());
  stream.avail_out = static_cast<uInt>(target.size());
  const int result = inflate(&stream, Z_FINISH);
  const bool whole = result == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole ? Status() : Status(Code::data_loss, cat("gzip does not unpack to ", target.size(), " bytes"));
}

}  // namespace

Result<const epl_pack_codec*> Codecs::find(std::string_view codec) {
  std::lock_guard lock(mutex_);
  if (const auto it = found_.find(codec); it != found_.end()) return it->second;
  const Home* home = std::ranges::find(homes, codec, &Home::codec);
  if (home == std::end(homes)) return unsupported("no codec ", codec);
  const auto pack = open_pack(packs_, home->pack);
  if (!pack.ok()) {
    return Status(Code::unsupported,
                  cat(home->what, " needs the pack ", home->pack, ", which is not here: ", pack.status().message(),
                      ". It is built where Debian's ", home->packages, " are installed. Without it: ", home->instead));
  }
  for (uint64_t i = 0; i < (*pack)->codec_count; ++i) {
    const epl_pack_codec* one = (*pack)->codecs[i];
    if (codec == one->name) return found_.emplace(codec, one).first->second;
  }
  return unsupported("the pack ", home->pack, " has no ", codec);
}

Status Codecs::unpack(std::string_view codec, std::span<const std::byte> packed, std::span<std::byte> target) {
  if (codec == "gzip") return unpack_gzip(packed, target);
  EPL_ASSIGN(const epl_pack_codec* found, find(codec));
  char text[200] = "";
  const epl_pack_reason reason{text, sizeof text};
  if (found->unpack(packed.data(), packed.size(), target.data(), target.size(), &reason) != 0)
    return Status(Code::data_loss, cat(codec, ": ", to_utf8(text)));
  return {};
}

Status Codecs::measure(std::string_view codec, std::span<const std::byte> packed, int64_t (&dims)[3]) {
  EPL_ASSIGN(const epl_pack_codec* found, find(codec));
  char text[200] = "";
  const epl_pack_reason reason{text, sizeof text};
  if (found->measure(packed.data(), packed.size(), dims, &reason) != 0)
    return Status(Code::data_loss, cat(codec, ": ", to_utf8(text)));
  return {};
}

}  // namespace epl
