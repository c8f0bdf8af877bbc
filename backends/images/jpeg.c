/* JPEG. The library leaves a decoder that fails by a call back, which must not return: it jumps out. */
#include <stdio.h>

/* It needs stdio.h before it. */
#include <jpeglib.h>
#include <setjmp.h>

#include "backends/images/codecs.h"

typedef struct decoder {
  struct jpeg_decompress_struct jpeg; /* the first member: its address is the decoder's */
  struct jpeg_error_mgr errors;
  struct jpeg_progress_mgr progress;
  jmp_buf out;
  char text[JMSG_LENGTH_MAX];
} decoder;

static void leave(j_common_ptr jpeg) {
  decoder* d = (decoder*)jpeg;
  jpeg->err->format_message(jpeg, d->text);
  longjmp(d->out, 1);
}

/* A warning means that something was made up: cut files come this way. */
static void hear(j_common_ptr jpeg, int level) {
  if (level < 0) leave(jpeg);
}

static void ignore(j_common_ptr jpeg) { (void)jpeg; }

/* A progressive file may have scans without end, each of which takes as long as a whole image. */
static void count_scans(j_common_ptr jpeg) {
  decoder* d = (decoder*)jpeg;
  if (d->jpeg.input_scan_number <= 500) return;
  snprintf(d->text, sizeof d->text, "more than 500 scans");
  longjmp(d->out, 1);
}

/* Up to the head; grey stays grey, all else becomes red, green and blue. */
static void start(decoder* d, const void* packed, uint64_t packed_size) {
  jpeg_create_decompress(&d->jpeg);
  jpeg_mem_src(&d->jpeg, (const unsigned char*)packed, (unsigned long)packed_size);
  jpeg_read_header(&d->jpeg, TRUE);
  d->jpeg.out_color_space = d->jpeg.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
  d->progress.progress_monitor = count_scans;
  d->jpeg.progress = &d->progress;
  jpeg_calc_output_dimensions(&d->jpeg);
}

static void prepare(decoder* d) {
  d->jpeg.err = jpeg_std_error(&d->errors);
  d->errors.error_exit = leave;
  d->errors.emit_message = hear;
  d->errors.output_message = ignore;
}

int32_t epl_measure_jpeg(const void* packed, uint64_t packed_size, int64_t dims[3], const epl_pack_reason* failure) {
  decoder d = {0};
  prepare(&d);
  if (setjmp(d.out)) {
    jpeg_destroy_decompress(&d.jpeg);
    return epl_codec_failed(failure, d.text);
  }
  start(&d, packed, packed_size);
  dims[0] = d.jpeg.output_height;
  dims[1] = d.jpeg.output_width;
  dims[2] = d.jpeg.out_color_space == JCS_GRAYSCALE ? 1 : 3;
  jpeg_destroy_decompress(&d.jpeg);
  return 0;
}

int32_t epl_unpack_jpeg(const void* packed, uint64_t packed_size, void* target, uint64_t target_size,
                        const epl_pack_reason* failure) {
  decoder d = {0};
  prepare(&d);
  if (setjmp(d.out)) {
    jpeg_destroy_decompress(&d.jpeg);
    return epl_codec_failed(failure, d.text);
  }
  start(&d, packed, packed_size);
  jpeg_start_decompress(&d.jpeg);
  const uint64_t row = (uint64_t)d.jpeg.output_width * (uint64_t)d.jpeg.output_components;
  if (row * d.jpeg.output_height != target_size) {
    jpeg_destroy_decompress(&d.jpeg);
    return epl_codec_failed(failure, "the image is of another size");
  }
  while (d.jpeg.output_scanline < d.jpeg.output_height) {
    JSAMPROW to = (JSAMPROW)target + row * d.jpeg.output_scanline;
    jpeg_read_scanlines(&d.jpeg, &to, 1);
  }
  jpeg_finish_decompress(&d.jpeg);
  jpeg_destroy_decompress(&d.jpeg);
  return 0;
}
