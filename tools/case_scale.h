// What errors of a case count against. This is the one place that says so.
//
// An error is relative to the value that the reference has. A value that is zero in truth (the gradient of a key's bias
// under softmax, the running mean of what was centred before) is nothing but rounding in a reference, and so is any
// error relative to it. Such a value lies below `zero_share` of the largest of its kind, and its error counts against
// `rounding_share` of that: within a tolerance of 1e-3 it may be a millionth of its kind, which is a few roundings of
// float32. A value that should be zero and is not is an error as before.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>

#include "tools/reference.h"

namespace epl::tools {

class Scale {
 public:
  static constexpr double zero_share = 1e-7, rounding_share = 1e-3;
  Scale() = default;
  explicit Scale(const Norms& kind) {
    for (const auto& [name, norm] : kind) add(norm);
  }
  void add(double value) { largest_ = std::max(largest_, std::fabs(value)); }
  bool is_zero(double expected) const { return std::fabs(expected) < zero_share * largest_; }
  double of(double expected) const {
    return std::max(is_zero(expected) ? rounding_share * largest_ : std::fabs(expected), 1e-12);
  }
  double error(double ours, double expected) const { return std::fabs(ours - expected) / of(expected); }

 private:
  double largest_ = 0;
};

// Of a running statistic: the statistics of its own norm, whose names differ behind the last dot alone. A mean counts
// against a standard deviation, not against its square.
inline Scale scale_of_statistic(const Norms& all, const std::string& name) {
  const auto norm_of = [](const std::string& statistic) { return statistic.substr(0, statistic.rfind('.')); };
  Scale scale;
  for (const auto& [other, value] : all) {
    if (norm_of(other) != norm_of(name)) continue;
    scale.add(value);
    if (other != name && other.ends_with("var")) scale.add(std::sqrt(value));
  }
  return scale;
}

}  // namespace epl::tools
