/* libepl_images.so: JPEG by libjpeg-turbo and PNG by libpng. See docs/packs.md. */
#include <stdio.h>

/* It needs stdio.h before it. */
#include <jpeglib.h>
#include <png.h>

#include "backends/images/codecs.h"

#define EPL_TEXT_INNER(x) #x
#define EPL_TEXT(x) EPL_TEXT_INNER(x)

__attribute__((visibility("default"))) const epl_pack* epl_pack_entry(void) {
  static const epl_pack_codec jpeg = {sizeof jpeg, "jpeg", epl_measure_jpeg, epl_unpack_jpeg};
  static const epl_pack_codec png = {sizeof png, "png", epl_measure_png, epl_unpack_png};
  static const epl_pack_codec* const codecs[] = {&jpeg, &png};
  static const epl_pack pack = {.struct_size = sizeof(epl_pack),
                                .abi = EPL_PACK_ABI,
                                .name = "images",
                                .version = "libjpeg " EPL_TEXT(JPEG_LIB_VERSION) ", libpng " PNG_LIBPNG_VER_STRING,
                                .device = "",
                                .codecs = codecs,
                                .codec_count = 2};
  return &pack;
}
