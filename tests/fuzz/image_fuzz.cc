// The codecs of the pack `images`, over whatever bytes: an error, or an image that can be resized. The first byte
// chooses the codec.
#include <array>
#include <cstdint>
#include <vector>

#include "core/data/image.h"
#include "core/formats/codecs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static epl::Codecs codecs(EPL_PACK_FOLDER);
  if (size == 0) return 0;
  const char* codec = data[0] == 0x89 ? "png" : "jpeg";
  const auto packed = std::as_bytes(std::span(data, size));
  int64_t dims[3] = {};
  if (!codecs.measure(codec, packed, dims).ok() || dims[0] < 1 || dims[1] < 1 || dims[0] * dims[1] > 1 << 20) return 0;
  epl::Image image{dims[0], dims[1], dims[2], std::vector<uint8_t>(static_cast<size_t>(dims[0] * dims[1] * dims[2]))};
  if (codecs.unpack(codec, packed, std::as_writable_bytes(std::span(image.pixels))).ok())
    epl::resize(epl::with_channels(std::move(image), 3), 5, 9);
  return 0;
}
