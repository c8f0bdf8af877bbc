/* The codecs of the pack, as core/base/pack_abi.h wants them. */
#ifndef EPL_BACKENDS_IMAGES_CODECS_H
#define EPL_BACKENDS_IMAGES_CODECS_H

#include <stdio.h>

#include "core/base/pack_abi.h"

int32_t epl_measure_jpeg(const void* packed, uint64_t packed_size, int64_t dims[3], const epl_pack_reason* failure);
int32_t epl_unpack_jpeg(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                        const epl_pack_reason* failure);
int32_t epl_measure_png(const void* packed, uint64_t packed_size, int64_t dims[3], const epl_pack_reason* failure);
int32_t epl_unpack_png(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                       const epl_pack_reason* failure);

static inline int32_t epl_codec_failed(const epl_pack_reason* failure, const char* what) {
  snprintf(failure->text, failure->size, "%s", what);
  return -1;
}

#endif
