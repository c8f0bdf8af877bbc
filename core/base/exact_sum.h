// A sum of doubles without error: the same number whatever the order of the terms and however they were grouped.
//
// The running sum is kept as doubles that do not overlap, smallest first (Shewchuk, "Adaptive precision floating-point
// arithmetic", 1997); few of them are ever alive. `value` rounds it once, to nearest even.
#pragma once

#include <vector>

namespace epl {

class ExactSum {
 public:
  void add(double term);
  void add(const ExactSum& other);
  // The sum, rounded; NaN or an infinity where a term was one (or where the sum left the range of doubles on its way).
  double value() const;
  // What `value` leaves out, rounded: value() + rest() is the sum to about 106 bits.
  double rest() const;

 private:
  std::vector<double> parts_;
  double special_ = 0;  // the sum of the terms that are not finite
};

}  // namespace epl
