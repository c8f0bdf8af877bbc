/* PNG. As with JPEG a failure jumps out. */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "backends/images/codecs.h"

typedef struct source {
  const unsigned char* at;
  uint64_t left;
  char text[200];
} source;

static void leave(png_structp png, png_const_charp what) {
  source* s = (source*)png_get_error_ptr(png);
  snprintf(s->text, sizeof s->text, "%s", what);
  longjmp(png_jmpbuf(png), 1);
}

static void ignore(png_structp png, png_const_charp what) {
  (void)png;
  (void)what;
}

static void take(png_structp png, png_bytep to, size_t bytes) {
  source* s = (source*)png_get_io_ptr(png);
  if (bytes > s->left) png_error(png, "the file is cut off");
  memcpy(to, s->at, bytes);
  s->at += bytes;
  s->left -= bytes;
}

/* Reads the head and asks for 8 bits a channel, no palette and no transparency; gives the number of passes. */
static int start(png_structp png, png_infop info) {
  png_read_info(png, info);
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  return passes;
}

/* With `target` the whole image, without the sizes alone. */
static int32_t read_png(const void* packed, uint64_t packed_size, int64_t dims[3], unsigned char* target,
                        uint64_t target_size, const epl_pack_reason* failure) {
  source s = {(const unsigned char*)packed, packed_size, ""};
  png_bytep* volatile rows = NULL;
  png_infop info = NULL;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &s, leave, ignore);
  if (png != NULL) info = png_create_info_struct(png);
  if (info == NULL) {
    png_destroy_read_struct(&png, NULL, NULL);
    return epl_codec_failed(failure, "there is no memory");
  }
  if (setjmp(png_jmpbuf(png))) {
    free((void*)rows);
    png_destroy_read_struct(&png, &info, NULL);
    return epl_codec_failed(failure, s.text);
  }
  png_set_read_fn(png, &s, take);
  start(png, info);
  dims[0] = png_get_image_height(png, info);
  dims[1] = png_get_image_width(png, info);
  dims[2] = png_get_channels(png, info);
  if (target != NULL) {
    const uint64_t row = png_get_rowbytes(png, info);
    if (row * (uint64_t)dims[0] != target_size || row != (uint64_t)(dims[1] * dims[2]))
      png_error(png, "the image is of another size");
    rows = (png_bytep*)malloc((size_t)dims[0] * sizeof(png_bytep));
    if (rows == NULL) png_error(png, "there is no memory");
    for (int64_t i = 0; i < dims[0]; ++i) rows[i] = target + row * (uint64_t)i;
    png_read_image(png, rows);
    png_read_end(png, NULL);
    free((void*)rows);
  }
  png_destroy_read_struct(&png, &info, NULL);
  return 0;
}

int32_t epl_measure_png(const void* packed, uint64_t packed_size, int64_t dims[3], const epl_pack_reason* failure) {
  return read_png(packed, packed_size, dims, NULL, 0, failure);
}

int32_t epl_unpack_png(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                       const epl_pack_reason* failure) {
  int64_t dims[3];
  return read_png(packed, packed_size, dims, (unsigned char*)target, target_size, failure);
}
