// Compiled once per level of processor: plain loops that the compiler turns into vectors.
#include "backends/cpu/reduce.h"

#include <cstring>

namespace epl::cpu::EPL_SIMD {
namespace {

constexpr int64_t block = 256;  // elements reduced at a time
constexpr int max_depth = 11;   // of a tree over 1024 ranks, with room

struct Half {
  uint16_t bits;
};
struct Bfloat {
  uint16_t bits;
};

inline float widen(Bfloat x) {
  const uint32_t bits = static_cast<uint32_t>(x.bits) << 16;
  float y;
  std::memcpy(&y, &bits, sizeof y);
  return y;
}
inline Bfloat narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1);
  const uint32_t quiet = bits | 0x400000;
  return {static_cast<uint16_t>((x != x ? quiet : rounded) >> 16)};
}

template <class T> inline T add(T a, T b) { return a + b; }
inline int64_t add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
inline Bfloat add(Bfloat a, Bfloat b) { return narrow(widen(a) + widen(b)); }
inline Half add(Half a, Half b) { return {float_to_half(half_to_float(a.bits) + half_to_float(b.bits))}; }

template <class T> inline T value(T x) { return x; }
inline float value(Bfloat x) { return widen(x); }
inline float value(Half x) { return half_to_float(x.bits); }

template <Reduction reduction, class T> inline T combine(T a, T b) {
  if constexpr (reduction == Reduction::sum) {
    return add(a, b);
  } else {
    const auto x = value(a), y = value(b);
    if constexpr (reduction == Reduction::max) return (x > y || x != x) ? a : b;
    return (x < y || x != x) ? a : b;
  }
}

template <Reduction reduction, class T> class Tree {
 public:
  Tree(std::span<const void* const> sources, int64_t begin, int64_t count)
      : sources_(sources), begin_(begin), count_(count) {}

  // The reduction of ranks [first, first + ranks): where it lies, which is the source itself for one rank.
  const T* reduce(int first, int ranks, int depth, int side) {
    if (ranks == 1) return static_cast<const T*>(sources_[first]) + begin_;
    int left = 1;
    while (2 * left < ranks) left *= 2;
    const T* a = reduce(first, left, depth + 1, 0);
    const T* b = reduce(first + left, ranks - left, depth + 1, 1);
    T* y = scratch_[depth][side];
    for (int64_t i = 0; i < count_; ++i) y[i] = combine<reduction>(a[i], b[i]);
    return y;
  }

 private:
  std::span<const void* const> sources_;
  int64_t begin_, count_;
  alignas(64) T scratch_[max_depth + 1][2][block];
};

// Of two ranks nothing has to be kept in between. A target may be a source.
template <Reduction reduction, class T>
void two(const T* a, const T* b, T* first, T* second, int64_t begin, int64_t end) {
  if (first == second) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) first[i] = combine<reduction>(a[i], b[i]);
    return;
  }
#pragma GCC ivdep
  for (int64_t i = begin; i < end; ++i) {
    const T y = combine<reduction>(a[i], b[i]);
    first[i] = y;
    second[i] = y;
  }
}

template <Reduction reduction, class T>
void run(std::span<const void* const> sources, std::span<void* const> targets, int64_t begin, int64_t end) {
  if (sources.size() == 2 && targets.size() <= 2 && !targets.empty()) {
    return two<reduction>(static_cast<const T*>(sources[0]), static_cast<const T*>(sources[1]),
                          static_cast<T*>(targets.front()), static_cast<T*>(targets.back()), begin, end);
  }
  for (int64_t at = begin; at < end; at += block) {
    const int64_t count = end - at < block ? end - at : block;
    Tree<reduction, T> tree(sources, at, count);
    const T* sum = tree.reduce(0, static_cast<int>(sources.size()), 0, 0);
    for (void* target : targets) {
      T* to = static_cast<T*>(target) + at;
      if (to != sum) std::memcpy(to, sum, static_cast<size_t>(count) * sizeof(T));
    }
  }
}

template <class T>
void pick(std::span<const void* const> sources, std::span<void* const> targets, int64_t begin, int64_t end,
          Reduction reduction) {
  switch (reduction) {
    case Reduction::sum:
      return run<Reduction::sum, T>(sources, targets, begin, end);
    case Reduction::max:
      return run<Reduction::max, T>(sources, targets, begin, end);
    case Reduction::min:
      return run<Reduction::min, T>(sources, targets, begin, end);
  }
}

}  // namespace

void reduce_ranks(std::span<const void* const> sources, std::span<void* const> targets, int64_t begin, int64_t end,
                  DType dtype, Reduction reduction) {
  switch (dtype) {
    case DType::f32:
      return pick<float>(sources, targets, begin, end, reduction);
    case DType::f64:
      return pick<double>(sources, targets, begin, end, reduction);
    case DType::f16:
      return pick<Half>(sources, targets, begin, end, reduction);
    case DType::bf16:
      return pick<Bfloat>(sources, targets, begin, end, reduction);
    case DType::i64:
      return pick<int64_t>(sources, targets, begin, end, reduction);
    default:
      return;  // can_reduce says no
  }
}

}  // namespace epl::cpu::EPL_SIMD
