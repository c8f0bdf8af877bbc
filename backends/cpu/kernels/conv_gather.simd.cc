// The gathering packs of convolutions. Columns are taken in runs that share an output row: along a run the source is a
// span of an image's row, clipped by the padding.
#include "backends/cpu/kernels/conv_gather.h"

#include "backends/cpu/kernels/conv_panel.simd.h"
#include "backends/cpu/kernels/gemm_pack.simd.h"

namespace epl::cpu::EPL_SIMD {
namespace {

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a < b ? b : a; }

constexpr int64_t max_runs = gemm_k_block;  // a pack covers no more columns than this
constexpr int64_t max_spans = 1024;
constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));

// Neighbouring columns of one output row; `at` is where the source of tap 0 lies.
struct Run {
  const float* image;
  int64_t at[conv_dims];
  int64_t count;
};

// Cuts the columns [first, first + count) into runs; returns how many.
int64_t cut_runs(const Patches& p, int64_t group, int64_t first, int64_t count, Run* runs) {
  const int64_t columns = p.columns();
  int64_t image = first / columns, rest = first % columns;
  int64_t position[conv_dims] = {rest / (p.positions[1] * p.positions[2]), rest / p.positions[2] % p.positions[1],
                                 rest % p.positions[2]};
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

// Copies every second float. Whole vectors are read only where the float behind the last one is needed too.
HWY_INLINE void copy_even(const float* from, float* to, int64_t count) {
  const hn::CappedTag<float, 8> d;
  constexpr int64_t W = static_cast<int64_t>(hn::MaxLanes(hn::CappedTag<float, 8>()));
  int64_t i = 0;
  for (; i + W < count; i += W)
    hn::StoreU(hn::ConcatEven(d, hn::LoadU(d, from + 2 * i + W), hn::LoadU(d, from + 2 * i)), d, to + i);
  for (; i < count; ++i) to[i] = from[2 * i];
}

HWY_INLINE void clear_run(float* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) to[i] = 0;
}

// The part of a channel's row that a tap reads over a run begins at `row` + `x`; no row: all is padding.
struct Source {
  int64_t row, x;
  bool inside;
};
HWY_INLINE Source source_of(const Patches& p, const Run& run, const int64_t (&tap)[conv_dims]) {
  const int64_t z = run.at[0] + tap[0], y = run.at[1] + tap[1];
  return {(z * p.sizes[1] + y) * p.sizes[2], run.at[2] + tap[2], z >= 0 && z < p.sizes[0] && y >= 0 && y < p.sizes[1]};
}

// What a tap takes of a run: columns [begin, stop), from `offset` on behind the channel's first
// pixel; the others are padding.
struct Span {
  int64_t offset;
  int64_t begin, stop;
};

Span cut_span(const Patches& p, const Run& run, const int64_t (&tap)[conv_dims]) {
  const Source from = source_of(p, run, tap);
  if (!from.inside) return {0, 0, 0};
  // The first column at or behind the begin of the row, and the first at or behind its end.
  const int64_t step = p.step[2], round = step - 1;
  if (step == 1) {  // without divisions
    const int64_t begin = most(0, least(-from.x, run.count));
    return {from.row + from.x + begin, begin, most(begin, least(p.sizes[2] - from.x, run.count))};
  }
  const int64_t begin = from.x >= 0 ? 0 : least((round - from.x) / step, run.count);
  const int64_t stop =
      p.sizes[2] <= from.x ? begin : most(least((p.sizes[2] - from.x + round) / step, run.count), begin);
  return {from.row + from.x + begin * step, begin, stop};
}

HWY_INLINE void copy_span(const Run& run, const Span& span, int64_t channel_at, int64_t step, float* to) {
  const float* from = run.image + channel_at + span.offset;
  const int64_t count = span.stop - span.begin;
  clear_run(to, span.begin);
  if (step == 1) {
    copy_run(from, to + span.begin, count);
  } else if (step == 2) {
    copy_even(from, to + span.begin, count);
  } else {
    for (int64_t i = 0; i < count; ++i) to[span.begin + i] = from[i * step];
  }
  clear_run(to + span.stop, run.count - span.stop);
}

// One row of the matrix, over the runs.
void gather_row(const Patches& p, const Run* runs, int64_t run_count, int64_t channel, const int64_t (&tap)[conv_dims],
                float* to) {
  for (int64_t r = 0; r < run_count; to += runs[r++].count)
    copy_span(runs[r], cut_span(p, runs[r], tap), channel * p.channel, p.step[2], to);
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

// pack_patches for panels of full vectors where the positions are `step` apart; false where the table has no room, or
// would serve too few channels to be worth making.
template <int step>
HWY_NOINLINE bool gather_panel(const Patches& p, const Run* runs, int64_t run_count, int64_t count, int64_t k,
                               int64_t depth, float* to, int64_t stride) {
  const int64_t taps = p.taps();
  if (count % lanes != 0 || taps * (count / lanes) > PanelTable<step>::max_vectors || depth < 4 * taps) return false;
  PanelTable<step> table(taps, count / lanes);
  Walk walk(p, k);
  for (int64_t t = 0; t < least(taps, depth); ++t, walk.next()) {
    int64_t column = 0;
    for (int64_t r = 0; r < run_count; column += runs[r++].count) {
      const Span span = cut_span(p, runs[r], walk.tap);
      if (span.begin == span.stop) continue;
      const int64_t offset = runs[r].image - p.data + span.offset;
      if (!table.add((k + t) % taps, column + span.begin, column + span.stop, offset)) return false;
    }
  }
  table.gather(p.data + k / taps * p.channel, p.channel, k % taps, depth, to, stride);
  return true;
}

}  // namespace

void pack_patches(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                  int64_t stride) {
  const Patches& p = *static_cast<const Patches*>(context);
  Run runs[max_runs];
  const int64_t run_count = cut_runs(p, group, first, count, runs);
  const int64_t taps = p.taps();
  Walk walk(p, k);
  if (taps * run_count > max_spans) {
    for (int64_t j = 0; j < depth; ++j, walk.next())
      gather_row(p, runs, run_count, walk.channel, walk.tap, to + j * stride);
    return;
  }
  if (p.step[2] == 1 && gather_panel<1>(p, runs, run_count, count, k, depth, to, stride)) return;
  if (p.step[2] == 2 && gather_panel<2>(p, runs, run_count, count, k, depth, to, stride)) return;
  // The spans of a tap are the same for every channel.
  Span spans[max_spans];
  const int64_t first_tap = k % taps;
  for (int64_t t = 0; t < least(taps, depth); ++t, walk.next())
    for (int64_t r = 0; r < run_count; ++r)
      spans[(first_tap + t) % taps * run_count + r] = cut_span(p, runs[r], walk.tap);
  int64_t tap = first_tap, channel_at = k / taps * p.channel;
  for (int64_t j = 0; j < depth; ++j, to += stride) {
    const Span* span = spans + tap * run_count;
    float* at = to;
    for (int64_t r = 0; r < run_count; at += runs[r++].count) copy_span(runs[r], span[r], channel_at, p.step[2], at);
    if (++tap == taps) {
      tap = 0;
      channel_at += p.channel;
    }
  }
}

void pack_patches_across(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth,
                         float* to, int64_t stride) {
  constexpr int64_t rows = 16, room = gemm_k_block + 8;
  const Patches& p = *static_cast<const Patches*>(context);
  Run runs[max_runs];
  float block[rows * room];  // gathered along the columns, then transposed
  const int64_t run_count = cut_runs(p, group, k, depth, runs);
  Walk walk(p, first);
  for (int64_t i = 0; i < count; i += rows) {
    const int64_t some = least(rows, count - i);
    for (int64_t r = 0; r < some; ++r, walk.next())
      gather_row(p, runs, run_count, walk.channel, walk.tap, block + r * room);
    pack_transposed(block, room, some, depth, PutWords{to + i, stride});
  }
}

void pack_images(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth, float* to,
                 int64_t stride) {
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

void pack_flipped_weights(const void* context, int64_t group, int64_t first, int64_t count, int64_t k, int64_t depth,
                          float* to, int64_t stride) {
  const FlippedWeights& w = *static_cast<const FlippedWeights*>(context);
  const int64_t taps = w.used[0] * w.used[1] * w.used[2];
  if (taps == w.taps) {  // the taps of a channel are contiguous
    while (depth > 0) {
      const int64_t some = least(depth, taps - k % taps);
      pack_panel(w.data + group * w.group + (k / taps * w.in + first) * taps + k % taps, taps, 1, count, some, to,
                 stride);
      to += some * stride;
      k += some;
      depth -= some;
    }
    return;
  }
  int64_t out = k / taps, rest = k % taps;
  int64_t index[conv_dims] = {rest / (w.used[1] * w.used[2]), rest / w.used[2] % w.used[1], rest % w.used[2]};
  for (int64_t j = 0; j < depth; ++j, to += stride) {
    int64_t tap = 0;
    for (int d = 0; d < conv_dims; ++d) tap = tap * w.kernel[d] + w.first[d] + index[d] * w.skip[d];
    const float* from = w.data + group * w.group + (out * w.in + first) * w.taps + tap;
    for (int64_t i = 0; i < count; ++i) to[i] = from[i * w.taps];
    int d = conv_dims - 1;
    while (d >= 0 && ++index[d] == w.used[d]) index[d--] = 0;
    if (d < 0) ++out;
  }
}

}  // namespace epl::cpu::EPL_SIMD
