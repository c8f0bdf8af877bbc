// Dropout with Philox 4x32-10, many counters at once. See dropout.h.
#include "backends/cpu/kernels/dropout.h"

namespace epl::cpu::EPL_SIMD {
namespace {

constexpr int at_once = 16;             // blocks of four draws, computed together in vectors
constexpr int tile = 4 * at_once * 8;   // draws kept at a time

// The four words of blocks first, first + 1, ...: core/base/philox.h with the loop over blocks innermost.
void draw_blocks(uint64_t key, uint64_t first, uint32_t* words) {
  uint32_t c0[at_once], c1[at_once], c2[at_once] = {}, c3[at_once] = {};
  for (int i = 0; i < at_once; ++i) {
    c0[i] = static_cast<uint32_t>(first + i);
    c1[i] = static_cast<uint32_t>((first + i) >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < at_once; ++i) {
      uint64_t p0 = uint64_t{0xD2511F53} * c0[i], p1 = uint64_t{0xCD9E8D57} * c2[i];
      uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c0[i] = n0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = n2;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  for (int i = 0; i < at_once; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

void dropout(uint64_t key, uint64_t first, uint32_t threshold, float scale, const float* x, float* y, uint8_t* mask, int64_t n) {
  alignas(64) uint32_t words[tile];
  for (int64_t done = 0; done < n;) {
    uint64_t element = first + static_cast<uint64_t>(done);
    for (int b = 0; b < tile; b += 4 * at_once) draw_blocks(key, element / 4 + static_cast<uint64_t>(b / 4), words + b);
    int64_t skip = static_cast<int64_t>(element % 4), count = n - done < tile - skip ? n - done : tile - skip;
    for (int64_t i = 0; i < count; ++i) {
      bool keep = (words[skip + i] >> 8) >= threshold;
      y[done + i] = keep ? x[done + i] * scale : 0.0f;
    }
    if (mask) {
      for (int64_t i = 0; i < count; ++i) mask[done + i] = (words[skip + i] >> 8) >= threshold;
    }
    done += count;
  }
}

}  // namespace

const DropoutLoop dropout_loop = dropout;

}  // namespace epl::cpu::EPL_SIMD
