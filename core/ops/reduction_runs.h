// Which elements a reduction joins.
#pragma once

#include <span>

#include "core/ops/common.h"

namespace epl::ops {

// The elements that reduce to each output element, in logical order.
class ReductionRuns {
 public:
  ReductionRuns(std::span<const int64_t> shape, const Ints& axes) : sizes_(shape), reduced_(sizes_.size()) {
    for (int64_t axis : axes) reduced_[axis < 0 ? axis + sizes_.size() : axis] = 1;
    for (size_t d = 0; d < sizes_.size(); ++d) (reduced_[d] ? length_ : outputs_) *= sizes_[d];
  }
  int64_t outputs() const { return outputs_; }
  int64_t length() const { return length_; }
  // Element k of those that reduce to output o.
  int64_t at(int64_t o, int64_t k) const {
    int64_t linear = 0, stride = 1;
    for (size_t d = sizes_.size(); d-- > 0; stride *= sizes_[d]) {
      int64_t& rest = reduced_[d] ? k : o;
      linear += rest % sizes_[d] * stride;
      rest /= sizes_[d];
    }
    return linear;
  }

 private:
  Dims sizes_, reduced_;
  int64_t outputs_ = 1, length_ = 1;
};

}  // namespace epl::ops
