// The loss over any number of batches, full or not: the sum of its terms over the sum of their weights, without
// rounding in between, so that it is the same number whatever the batch.
#pragma once

#include <span>
#include <vector>

#include "core/base/exact_sum.h"
#include "core/compile/compiled_plan.h"

namespace epl {

class MeanLoss {
 public:
  // Which outputs of the evaluate entry are needed, as room for them; the others are empty.
  static std::vector<Tensor> room(const Entry& evaluate);
  void add(const Entry& evaluate, std::span<const Tensor> outputs, int64_t samples);
  void merge(const MeanLoss& other);
  double value() const;  // NaN where nothing counted

 private:
  ExactSum terms_, weights_;
};

}  // namespace epl
