// A panel of patches gathered by masked loads. A panel of columns may cross rows of the output, or the padding. So each
// of its vectors is put together from a few spans of rows, without a branch on where they begin and end.
#pragma once

#include <hwy/highway.h>

#include <cstdint>

namespace epl::cpu::EPL_SIMD {
namespace hn = hwy::HWY_NAMESPACE;

// `step`: neighbouring columns of a row lie so many elements apart.
template <int step> class PanelTable {
 public:
  static constexpr int64_t lanes = static_cast<int64_t>(hn::MaxLanes(hn::ScalableTag<float>()));
  static constexpr int64_t max_spans = 4;      // of a vector
  static constexpr int64_t max_vectors = 128;  // of all taps together

  // For `taps` taps and panels of `vectors` full vectors; taps * vectors <= max_vectors.
  PanelTable(int64_t taps, int64_t vectors) : taps_(taps), vectors_(vectors) {
    for (int64_t i = 0; i < taps * vectors; ++i) used_[i] = 0;
  }

  // The columns [begin, stop) of the panel are neighbours for this tap, column `begin` at `offset`. False where a
  // vector has too many spans.
  bool add(int64_t tap, int64_t begin, int64_t stop, int64_t offset) {
    for (int64_t v = begin / lanes; v * lanes < stop; ++v) {
      const int64_t at = tap * vectors_ + v, first = v * lanes;
      if (used_[at] == max_spans) return false;
      Span& span = spans_[at * max_spans + used_[at]++];
      span.offset = offset + (first - begin) * step;
      for (int64_t i = 0; i < step * lanes; ++i)
        span.mask[i] = i % step == 0 && first + i / step >= begin && first + i / step < stop ? -1 : 0;
      if (used_[at] > depth_) depth_ = used_[at];
    }
    return true;
  }

  // Writes `depth` rows of (channel, tap), from `tap` of the channel at `channel` on; channels are `next` apart.
  void gather(const float* channel, int64_t next, int64_t tap, int64_t depth, float* to, int64_t stride) {
    for (int64_t at = 0; at < taps_ * vectors_; ++at)
      while (used_[at] < depth_) clear(spans_[at * max_spans + used_[at]++]);
    if (depth_ == 1) return gather_spans<1>(channel, next, tap, depth, to, stride);
    if (depth_ == 2) return gather_spans<2>(channel, next, tap, depth, to, stride);
    if (depth_ == 3) return gather_spans<3>(channel, next, tap, depth, to, stride);
    return gather_spans<max_spans>(channel, next, tap, depth, to, stride);
  }

 private:
  struct Span {
    int64_t offset;
    int32_t mask[step * lanes];
  };
  static void clear(Span& span) {
    span.offset = 0;
    for (int32_t& lane : span.mask) lane = 0;
  }

  using D = hn::ScalableTag<float>;
  static HWY_INLINE hn::Vec<D> load_part(const Span& span, const float* channel, int64_t at) {
    const D d;
    const hn::RebindToSigned<D> integer;
    const auto mask = hn::MaskFromVec(hn::BitCast(d, hn::LoadU(integer, span.mask + at)));
    return hn::MaskedLoad(mask, d, channel + span.offset + at);
  }
  static HWY_INLINE hn::Vec<D> load(const Span& span, const float* channel) {
    if constexpr (step == 1) {
      return load_part(span, channel, 0);
    } else {
      static_assert(step == 2);
      return hn::ConcatEven(D(), load_part(span, channel, lanes), load_part(span, channel, 0));
    }
  }

  template <int P>
  void gather_spans(const float* channel, int64_t next, int64_t tap, int64_t depth, float* to, int64_t stride) const {
    // Channels lie too far apart for the processor to foresee.
    const int64_t ahead = (taps_ >= 8 ? 1 : 8 / taps_) * next;
    for (int64_t j = 0; j < depth; ++j, to += stride) {
      const Span* span = spans_ + tap * vectors_ * max_spans;
      for (int64_t v = 0; v < vectors_; ++v, span += max_spans) {
        __builtin_prefetch(channel + span->offset + ahead);
        auto sum = load(span[0], channel);
        if constexpr (P > 1) sum = hn::Or(sum, load(span[1], channel));
        if constexpr (P > 2) sum = hn::Or(sum, load(span[2], channel));
        if constexpr (P > 3) sum = hn::Or(sum, load(span[3], channel));
        hn::StoreU(sum, D(), to + v * lanes);
      }
      if (++tap == taps_) {
        tap = 0;
        channel += next;
      }
    }
  }

  int64_t taps_, vectors_;
  int64_t depth_ = 1;  // spans of every vector, empty ones included
  int64_t used_[max_vectors];
  Span spans_[max_vectors * max_spans];
};

}  // namespace epl::cpu::EPL_SIMD
