// Dropout with Philox 4x32-10, many counters at once. See dropout.h.
#include "backends/cpu/kernels/dropout.h"

#include "hwy/highway.h"

namespace epl::cpu::EPL_SIMD {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint64_t>;
using V = hn::Vec<D>;
constexpr D u64;
constexpr int blocks = hn::MaxLanes(D());  // of four draws, one to a lane
constexpr int chains = 2;                  // computed side by side, to hide the latency of the products
constexpr int at_once = 4 * blocks * chains;
constexpr int tile = 512;  // draws kept at a time
static_assert(tile % at_once == 0);

// The low half of every lane, multiplied to 64 bits; high halves are ignored, so they may hold anything.
HWY_INLINE V product(V a, V b) {
  constexpr hn::Repartition<uint32_t, D> u32;
  return hn::MulEven(hn::BitCast(u32, a), hn::BitCast(u32, b));
}

// The words of blocks first, first + 1, ... (at_once of them): core/base/philox.h with a block to a lane.
void draw_blocks(uint64_t key, uint64_t first, uint32_t* words) {
  const V m0 = hn::Set(u64, 0xD2511F53), m1 = hn::Set(u64, 0xCD9E8D57);
  V c0[chains], c1[chains], c2[chains], c3[chains];
  for (int i = 0; i < chains; ++i) {
    c0[i] = hn::Iota(u64, first + static_cast<uint64_t>(i * blocks));
    c1[i] = hn::ShiftRight<32>(c0[i]);
    c2[i] = c3[i] = hn::Zero(u64);
  }
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const V key0 = hn::Set(u64, k0), key1 = hn::Set(u64, k1);
    for (int i = 0; i < chains; ++i) {
      V p0 = product(m0, c0[i]), p1 = product(m1, c2[i]);
      c0[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1), c1[i]), key0);
      c2[i] = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0), c3[i]), key1);
      c1[i] = p1;
      c3[i] = p0;
    }
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  const V low = hn::Set(u64, 0xffffffff);
  for (int i = 0; i < chains; ++i) {
    V first_two = hn::Or(hn::And(c0[i], low), hn::ShiftLeft<32>(c1[i]));
    V last_two = hn::Or(hn::And(c2[i], low), hn::ShiftLeft<32>(c3[i]));
    hn::StoreInterleaved2(first_two, last_two, u64, reinterpret_cast<uint64_t*>(words) + i * 2 * blocks);
  }
}

// y = x scale where the draw is at least the threshold, else 0.
void apply(const uint32_t* words, uint32_t threshold, float scale, const float* x, float* y, int64_t n) {
  constexpr hn::ScalableTag<float> f32;
  constexpr hn::RebindToSigned<decltype(f32)> s32;
  const auto limit = hn::Set(s32, static_cast<int32_t>(threshold) - 1);
  const auto factor = hn::Set(f32, scale);
  constexpr int64_t lanes = hn::MaxLanes(f32);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto draw = hn::BitCast(s32, hn::ShiftRight<8>(hn::LoadU(hn::RebindToUnsigned<decltype(f32)>(), words + i)));
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(f32, hn::Gt(draw, limit)), hn::Mul(hn::LoadU(f32, x + i), factor)),
               f32, y + i);
  }
  for (; i < n; ++i) y[i] = (words[i] >> 8) >= threshold ? x[i] * scale : 0.0f;
}

void dropout(uint64_t key, uint64_t first, uint32_t threshold, float scale, const float* x, float* y, uint8_t* mask,
             int64_t n) {
  alignas(64) uint32_t words[tile];
  for (int64_t done = 0; done < n;) {
    uint64_t element = first + static_cast<uint64_t>(done);
    for (int b = 0; b < tile; b += at_once) draw_blocks(key, element / 4 + static_cast<uint64_t>(b / 4), words + b);
    int64_t skip = static_cast<int64_t>(element % 4), count = n - done < tile - skip ? n - done : tile - skip;
    apply(words + skip, threshold, scale, x + done, y + done, count);
    if (mask) {
      for (int64_t i = 0; i < count; ++i) mask[done + i] = (words[skip + i] >> 8) >= threshold;
    }
    done += count;
  }
}

}  // namespace

const DropoutLoop dropout_loop = dropout;

}  // namespace epl::cpu::EPL_SIMD
