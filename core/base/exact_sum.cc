#include "core/base/exact_sum.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace epl {

void ExactSum::add(double term) {
  if (!std::isfinite(term)) {
    special_ += term;
    return;
  }
  size_t kept = 0;
  for (double part : parts_) {
    if (std::fabs(term) < std::fabs(part)) std::swap(term, part);
    const double sum = term + part;
    const double low = part - (sum - term);
    if (low != 0) parts_[kept++] = low;
    term = sum;
  }
  parts_.resize(kept);
  if (!std::isfinite(term)) {
    special_ += term;
    parts_.clear();
  } else if (term != 0) {
    parts_.push_back(term);
  }
}

void ExactSum::add(const ExactSum& other) {
  const std::vector<double> parts = other.parts_;  // a copy: `other` may be this sum
  special_ += other.special_;
  for (double part : parts) add(part);
}

double ExactSum::value() const {
  if (special_ != 0) return special_;  // also where it is a NaN
  size_t i = parts_.size();
  if (i == 0) return 0;
  double sum = parts_[--i], low = 0;
  while (i > 0) {
    const double large = sum, small = parts_[--i];
    sum = large + small;
    low = small - (sum - large);
    if (low != 0) break;
  }
  // Halfway between two doubles: the parts below decide the direction.
  if (i > 0 && ((low < 0 && parts_[i - 1] < 0) || (low > 0 && parts_[i - 1] > 0))) {
    const double twice = low * 2, moved = sum + twice;
    if (twice == moved - sum) sum = moved;
  }
  return sum;
}

double ExactSum::rest() const {
  ExactSum left = *this;
  left.add(-value());
  return left.value();
}

}  // namespace epl
