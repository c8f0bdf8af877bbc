/* libepl_parquet.so: what Parquet's pages are packed with, snappy and Zstandard. See docs/packs.md. */
#include <snappy-c.h>
#include <stdio.h>
#include <zstd.h>

#include "core/base/pack_abi.h"

static int32_t failed(const epl_pack_reason* failure, const char* what) {
  snprintf(failure->text, failure->size, "%s", what);
  return -1;
}

static int32_t unpack_snappy(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                             const epl_pack_reason* failure) {
  size_t size = 0;
  if (snappy_uncompressed_length(packed, packed_size, &size) != SNAPPY_OK)
    return failed(failure, "the bytes have no length");
  if (size != target_size) return failed(failure, "the bytes unpack to another length");
  if (snappy_uncompress(packed, packed_size, target, &size) != SNAPPY_OK)
    return failed(failure, "the bytes are damaged");
  return 0;
}

static int32_t unpack_zstd(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                           const epl_pack_reason* failure) {
  const size_t size = ZSTD_decompress(target, target_size, packed, packed_size);
  if (ZSTD_isError(size)) return failed(failure, ZSTD_getErrorName(size));
  if (size != target_size) return failed(failure, "the bytes unpack to another length");
  return 0;
}

__attribute__((visibility("default"))) const epl_pack* epl_pack_entry(void) {
  static const epl_pack_codec snappy = {sizeof snappy, "snappy", NULL, unpack_snappy};
  static const epl_pack_codec zstd = {sizeof zstd, "zstd", NULL, unpack_zstd};
  static const epl_pack_codec* const codecs[] = {&snappy, &zstd};
  static const epl_pack pack = {.struct_size = sizeof(epl_pack),
                                .abi = EPL_PACK_ABI,
                                .name = "parquet",
                                .version = "snappy, Zstandard " ZSTD_VERSION_STRING,
                                .device = "",
                                .codecs = codecs,
                                .codec_count = 2};
  return &pack;
}
