// The gathering packs of convolutions. Columns are taken in runs that share an output row: along a run the source is a
// piece of an image's row, clipped by the padding.
#include "backends/cpu/kernels/conv_gather.h"

#include "backends/cpu/kernels/gemm_pack.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a < b ? b : a; }

constexpr int64_t most_runs = gemm_k_block;  // a pack covers no more columns than this

// Neighbouring columns of one output row; `at` is where the source of tap 0 lies, before division.
struct Run {
  const float* image;
  int64_t at[conv_dims];
  int64_t count;
};

// Cuts the columns [first, first + count) into runs; returns how many.
int64_t cut_runs(const Patches& p, int64_t group, int64_t first, int64_t count, Run* runs) {
  const int64_t columns = p.columns();
  int64_t image = first / columns, rest = first % columns;
  int64_t position[conv_dims] = {rest / (p.positions[1] * p.positions[2]), rest / p.positions[2] % p.positions[1], rest % p.positions[2]};
  int64_t made = 0;
  while (count > 0) {
    Run& run = runs[made++];
    run.image = p.data + image * p.image + group * p.group;
    for (int d = 0; d < conv_dims; ++d) run.at[d] = position[d] * p.step[d] + p.start[d];
    run.count = least(count, p.positions[2] - position[2]);
    count -= run.count;
    position[2] = 0;
    if (++position[1] == p.positions[1]) {
      position[1] = 0;
      if (++position[0] == p.positions[0]) {
        position[0] = 0;
        ++image;
      }
    }
  }
  return made;
}

// Copies a few floats: overlapping vectors rather than a tail of single ones.
HWY_INLINE void copy_run(const float* from, float* to, int64_t count) {
  const hn::CappedTag<float, 8> d;
  constexpr int64_t W = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<float, 8>()));
  const hn::FixedTag<float, 4> quarter;
  if (count >= W) {
    for (int64_t i = 0; i + W < count; i += W) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    hn::StoreU(hn::LoadU(d, from + count - W), d, to + count - W);
  } else if (count >= 4) {
    const auto low = hn::LoadU(quarter, from), high = hn::LoadU(quarter, from + count - 4);
    hn::StoreU(low, quarter, to);
    hn::StoreU(high, quarter, to + count - 4);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from[i];
  }
}

HWY_INLINE void clear_run(float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = 0;
}

// The coordinate of a tap's source, or -1 if there is none.
HWY_INLINE int64_t source(int64_t at, int64_t divide, int64_t size) {
  if (divide != 1) {
    if (at < 0 || at % divide != 0) return -1;
    at /= divide;
  }
  return at < size ? at : -1;
}

// One row of the matrix, over the runs.
void gather_row(const Patches& p, const Run* runs, int64_t run_count, int64_t channel, const int64_t (&tap)[conv_dims], float* to) {
  const int64_t width = p.sizes[2], step = p.step[2], divide = p.divide[2];
  for (int64_t r = 0; r < run_count; ++r) {
    const Run& run = runs[r];
    float* end = to + run.count;
    const int64_t z = source(run.at[0] + tap[0], p.divide[0], p.sizes[0]), y = source(run.at[1] + tap[1], p.divide[1], p.sizes[1]);
    if (z < 0 || y < 0) {
      clear_run(to, run.count);
      to = end;
      continue;
    }
    const float* row = run.image + channel * p.channel + (z * p.sizes[1] + y) * width;
    const int64_t x = run.at[2] + tap[2];
    if (step == 1 && divide == 1) {
      const int64_t begin = least(most(-x, 0), run.count), stop = most(least(width - x, run.count), begin);
      clear_run(to, begin);
      copy_run(row + x + begin, to + begin, stop - begin);
      clear_run(to + stop, run.count - stop);
    } else if (divide == 1) {
      for (int64_t i = 0, at = x; i < run.count; ++i, at += step) to[i] = at >= 0 && at < width ? row[at] : 0;
    } else {
      clear_run(to, run.count);
      int64_t i = (divide - x % divide) % divide;  // the first column whose source divides
      for (int64_t at = (x + i) / divide; i < run.count; i += divide, ++at)
        if (at >= 0 && at < width) to[i] = row[at];
    }
    to = end;
  }
}

// Walks over (channel, tap) in the order of the rows.
struct Walk {
  const Patches& p;
  int64_t channel, index[conv_dims], tap[conv_dims];
  Walk(const Patches& patches, int64_t row) : p(patches), channel(row / patches.taps()) {
    int64_t rest = row % p.taps();
    for (int d = conv_dims - 1; d >= 0; --d) {
      index[d] = rest % p.kernel[d];
      rest /= p.kernel[d];
      tap[d] = index[d] * p.tap_step[d];
    }
  }
  void next() {
    for (int d = conv_dims - 1; d >= 0; --d) {
      tap[d] += p.tap_step[d];
      if (++index[d] < p.kernel[d]) return;
      index[d] = 0;
      tap[d] = 0;
    }
    ++channel;
  }
};

}  // namespace

void pack_patches(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth, float* to, int64_t stride) {
  const Patches& p = *static_cast<const Patches*>(context);
  Run runs[most_runs];
  const int64_t run_count = cut_runs(p, group, first, count, runs);
  Walk walk(p, k);
  for (int64_t j = 0; j < depth; ++j, walk.next()) gather_row(p, runs, run_count, walk.channel, walk.tap, to + j * stride);
}

void pack_patches_across(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                         int64_t stride) {
  constexpr int64_t rows = 16, room = gemm_k_block + 8;
  const Patches& p = *static_cast<const Patches*>(context);
  Run runs[most_runs];
  float block[rows * room];  // gathered along the columns, then transposed
  const int64_t run_count = cut_runs(p, group, k, depth, runs);
  Walk walk(p, first);
  for (int64_t i = 0; i < count; i += rows) {
    const int64_t some = least(rows, count - i);
    for (int64_t r = 0; r < some; ++r, walk.next()) gather_row(p, runs, run_count, walk.channel, walk.tap, block + r * room);
    pack_transposed(block, room, some, depth, to + i, stride);
  }
}

void pack_images(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth, float* to, int64_t stride) {
  const Images& images = *static_cast<const Images*>(context);
  while (depth > 0) {
    const int64_t image = k / images.pixels, pixel = k % images.pixels, some = least(depth, images.pixels - pixel);
    const float* from = images.data + image * images.image + group * images.group + first * images.pixels + pixel;
    pack_panel(from, images.pixels, 1, count, some, to, stride);
    to += some * stride;
    k += some;
    depth -= some;
  }
}

void pack_turned_weights(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                         int64_t stride) {
  const TurnedWeights& w = *static_cast<const TurnedWeights*>(context);
  int64_t out = k / w.taps, tap = k % w.taps;
  for (int64_t j = 0; j < depth; ++j) {
    const float* from = w.data + group * w.group + (out * w.in + first) * w.taps + tap;
    for (int64_t i = 0; i < count; ++i) to[j * stride + i] = from[i * w.taps];
    if (++tap == w.taps) {
      tap = 0;
      ++out;
    }
  }
}

}  // namespace epl::cpu::EPL_SIMD
