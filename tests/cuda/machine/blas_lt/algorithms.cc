// Algorithms of the stand-in: number 0 takes any product, number 1 can add up parts of a sum in a step of its own, as
// split-K does, and wants operands aligned to 16 bytes. Numbers 2 and 3 are the same of operands of 16 bits, where
// number 3 multiplies matrices of them. Which one is suggested follows, as in the real library, from all sizes, the
// batch among them.
#include <algorithm>

#include "tests/cuda/machine/blas_lt/objects.h"

namespace epl::cuda_blas {
namespace {

constexpr uint32_t kTiles[] = {0, 5, 11, 15, 20};  // undefined, 16 x 16, 32 x 32, 64 x 64, 128 x 128
constexpr int64_t kSizes[] = {32, 16, 32, 64, 128};
constexpr uint64_t kFma = 0x01, kMatrices = 0x02, kSumFloat32 = 0x02 << 8;
constexpr uint32_t kApart = 2;

// What an algorithm is made of.
uint64_t numerics_of(const Product& p, bool matrices) {
  const uint64_t operands = p.a.type == kFloat32 ? 0x08 : p.a.type == kFloat16 ? 0x01 : 0x02;
  return operands << 16 | kSumFloat32 | (matrices ? kMatrices : kFma);
}
int32_t first_algorithm(const Product& p) { return p.a.type == kFloat32 ? 0 : 2; }

int64_t tiles_of(const Product& p, size_t tile) {
  const int64_t size = kSizes[tile];
  return (p.m + size - 1) / size * ((p.n + size - 1) / size) * p.batch;
}

// The alignment of all that lies behind the beginnings of the operands.
uint32_t alignment_inside(const Product& p) {
  int64_t all = 16;
  const auto divide = [&](int64_t bytes) {
    while (bytes % all != 0) all /= 2;
  };
  for (const Product::Matrix* matrix : {&p.a, &p.b, &p.c, &p.d}) {
    divide(matrix->bytes() * matrix->leading);
    if (p.batch > 1) divide(matrix->bytes() * matrix->stride);
  }
  return static_cast<uint32_t>(all);
}

}  // namespace

Choice check(const Algorithm& algorithm, const Product& p) {
  require(algorithm.mark == kAlgorithmMark, kInvalidValue, "these bytes are no algorithm of this library");
  require(algorithm.id >= 0 && algorithm.id <= 3, kInvalidValue, "there is no such algorithm");
  require(algorithm.id / 2 * 2 == first_algorithm(p), kNotSupported, "the algorithm is for operands of another type");
  const auto* tile = std::find(std::begin(kTiles), std::end(kTiles), algorithm.tile);
  require(tile != std::end(kTiles), kNotSupported, "tile " + std::to_string(algorithm.tile));
  require(algorithm.swizzle <= 1 && algorithm.custom == 0 && algorithm.inner == 0 && algorithm.cluster == 0,
          kNotSupported, "an option that the algorithm does not have");
  require(algorithm.splits >= 1 && (algorithm.splits == 1) == (algorithm.reduction == 0), kInvalidValue,
          "parts of a sum without a way to add them up, or the other way round");
  require(algorithm.splits == 1 || (algorithm.id % 2 == 1 && algorithm.reduction == kApart && algorithm.splits <= p.k),
          kNotSupported, "the algorithm cannot compute so many parts of a sum");
  require(alignment_inside(p) % algorithm.align == 0, kInvalidValue,
          "leading dimensions and strides are not aligned to " + std::to_string(algorithm.align) + " bytes");
  Choice choice{.algorithm = algorithm};
  choice.workspace = algorithm.splits == 1 ? 0 : static_cast<uint64_t>(4 * algorithm.splits * p.m * p.n * p.batch);
  choice.waves = static_cast<float>(tiles_of(p, static_cast<size_t>(tile - kTiles))) / 132;
  return choice;
}

std::vector<Choice> choose(const Product& p, const Object& preference, int wanted) {
  std::vector<Choice> found;
  const auto allowed = preference.get<uint64_t>(kNumerics, ~uint64_t{0});
  const auto may = [&](bool matrices) {
    const uint64_t needs = numerics_of(p, matrices);
    return (allowed & needs) == needs;
  };
  const int32_t first = first_algorithm(p);
  uint32_t align = alignment_inside(p);
  for (const int attribute : {kAlignA, kAlignB, kAlignC, kAlignD})
    align = std::min(align, preference.get<uint32_t>(attribute, 256));
  const auto least = static_cast<uint32_t>(p.a.bytes());
  require(align >= least, kNotSupported, "elements that are not aligned to their " + std::to_string(least) + " bytes");
  size_t tile = std::size(kTiles) - 1;
  while (tile > 1 && tiles_of(p, tile) < 132) --tile;
  const auto add = [&](Algorithm algorithm) {
    algorithm.mark = kAlgorithmMark;
    algorithm.tile = kTiles[tile];
    algorithm.align = algorithm.id % 2 == 1 ? 16 : least;
    if (static_cast<int>(found.size()) < wanted) found.push_back(check(algorithm, p));
  };
  const auto workspace = preference.get<uint64_t>(kWorkspace);
  const bool may_split = (preference.get<uint32_t>(kReductions, 7) & kApart) != 0;
  const bool aligned = align == 16 && may(first != 0);
  if (aligned && may_split && p.k >= 128 && tiles_of(p, tile) < 132 &&
      static_cast<uint64_t>(16 * p.m * p.n * p.batch) <= workspace)
    add({.id = first + 1, .splits = 4, .reduction = kApart, .stages = 8});
  if (aligned) add({.id = first + 1, .stages = 8});
  if (may(false)) add({.id = first, .stages = 2});
  return found;
}

}  // namespace epl::cuda_blas
