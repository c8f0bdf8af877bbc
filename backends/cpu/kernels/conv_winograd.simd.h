// What Winograd's convolution (conv_winograd.h) and its gradient by the weights share.
#pragma once

#include "backends/cpu/kernels/conv_winograd.h"
#include "backends/cpu/kernels/gemm_micro.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"
// Behind what it needs.
#include "backends/cpu/kernels/conv_winograd_transforms.simd.h"

namespace epl::cpu::EPL_SIMD::winograd {

inline int64_t least(int64_t left, int64_t right) { return left < right ? left : right; }
inline int64_t clamp(int64_t value, int64_t low, int64_t high) { return value < low ? low : least(value, high); }

// Neighbouring tiles of a row of tiles; `row` and `column` are those of the first output.
struct TileRun {
  int64_t image, row, column, count;
};
inline TileRun run_at(const int64_t (&tiles)[2], int64_t tile, int64_t end) {
  const int64_t of_image = tiles[0] * tiles[1], rest = tile % of_image, column = rest % tiles[1];
  return {tile / of_image, rest / tiles[1] * outputs, column * outputs, least(tiles[1] - column, end - tile)};
}

inline void clear(float* to, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i) hn::StoreU(hn::Zero(Floats()), Floats(), to + i * lanes);
}

// A window of `count` channels as `rows` rows of `width` vectors; 0 outside of the planes, which follow one another.
inline void stage_window(const float* planes, const int64_t (&sizes)[2], int64_t count, int64_t top, int64_t left,
                         int64_t rows, int64_t width, float* stage) {
  const int64_t begin = clamp(-left, 0, width), stop = clamp(sizes[1] - left, begin, width);
  for (int64_t row = top; row < top + rows; ++row, stage += width * lanes) {
    if (row < 0 || row >= sizes[0]) {
      clear(stage, width);
      continue;
    }
    clear(stage, begin);
    pack_panel(planes + row * sizes[1] + left + begin, sizes[0] * sizes[1], 1, count, stop - begin,
               stage + begin * lanes, lanes);
    clear(stage + stop * lanes, width - stop);
  }
}

}  // namespace epl::cpu::EPL_SIMD::winograd
