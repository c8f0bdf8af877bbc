// Launches that several rows are made of: copies between layouts, fills, reductions in the canonical order.
#pragma once

#include <string>
#include <string_view>

#include "backends/cuda/generate/program.h"
#include "core/base/units.h"

namespace epl::cuda {

inline constexpr std::string_view reduce_file = "backends/cuda/text/reduce.cuh";
inline constexpr std::string_view rows_file = "backends/cuda/text/rows.cuh";

int64_t line_aligned(int64_t bytes);  // rounded up, so that what follows in a workspace is aligned

// to[where element i of `target` lies] = from[where element i of `source` lies]; both have the same sizes. Elements are
// bytes of one size.
void add_copy(Kernel& kernel, DType type, Argument from, Argument to, const Walks& source, const Walks& target,
              int64_t first_source = 0, int64_t first_target = 0);
// `count` elements with the bits of `bits`, an expression of the element's type.
void add_fill(Kernel& kernel, DType type, Argument to, int64_t count, std::string_view bits = "0");
// `count` copies of the element at `from`.
void add_spread(Kernel& kernel, DType type, Argument from, Argument to, int64_t count);

// Which elements of a tensor stay and which are reduced, row-major each.
struct Reduction {
  Walks kept, folded;
  int64_t outputs = 1, reduced = 1;
  Units units{};

  Reduction(const Shape& shape, const std::vector<int64_t>& axes, Units units);
  int64_t run() const { return reduced / units.count; }
  int64_t segments() const;  // of a unit
  int64_t parts() const { return units.count * segments(); }
  int64_t workspace_bytes() const { return parts() == 1 ? 0 : line_aligned(parts() * outputs * 4); }
};
// `op`: Sum, Max, Min or Product. Partial results go to the workspace from `offset` on. Where nothing is reduced the
// results are the operation's identity.
void add_reduction(Kernel& kernel, const Reduction& reduction, std::string_view op, Argument x, Argument y,
                   int64_t offset);

// `bool joined(float* tree, long long unit, long long units, float* sum)`: joins the sum of a unit with those before it
// by the binary tree; true behind the last unit, when it is the sum of all. The other one is for sums that are rounded
// to what memory holds, by functions of generate/elements.h.
inline constexpr std::string_view join_rounded_function = R"text(
inline bool joined(Wide* tree, long long unit, long long units, Wide* sum) {
  *sum = loaded(rounded(*sum));
  int level = 0;
  for (long long bit = unit; bit & 1; bit >>= 1, ++level) *sum = loaded(rounded(tree[level] + *sum));
  tree[level] = *sum;
  return unit + 1 == units;
}
)text";
inline constexpr std::string_view join_function = R"text(
inline bool joined(float* tree, long long unit, long long units, float* sum) {
  int level = 0;
  for (long long bit = unit; bit & 1; bit >>= 1, ++level) *sum = tree[level] + *sum;
  tree[level] = *sum;
  return unit + 1 == units;
}
)text";

// `long long position(long long i)`: which position is number i if units follow one another.
std::string position_function(Units units, int64_t n);

// A tensor as rows along one axis.
struct AxisRows {
  int64_t rows = 1, n = 1, inner = 1;
  AxisRows(const TensorType& type, int axis);
  int64_t elements() const { return rows * n; }
};

// Brings operands whose rows are not contiguous into the workspace, and results out of it.
class RowLayout {
 public:
  RowLayout(Kernel& kernel, const AxisRows& rows) : kernel_(kernel), rows_(rows) {}
  // Where contiguous rows of `x` are.
  Argument read(Argument x);
  // Where contiguous rows of `y` are to be written; `finish` brings them there.
  Argument write(Argument y);
  void finish();

 private:
  Argument room();
  Walks in_memory() const;
  Walks in_rows() const;
  Kernel& kernel_;
  AxisRows rows_;
  std::vector<std::pair<Argument, Argument>> results_;
};

}  // namespace epl::cuda
