// Of which trained parameters the state has a gradient that no update has taken, where the trainer keeps gradients.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/compile/compiled_plan.h"

namespace epl {

class KeptGradients {
 public:
  explicit KeptGradients(const CompiledPlan& plan);
  // There is one of each parameter. `counts_nothing`: they come from a batch in which nothing counts.
  void computed(bool counts_nothing);
  // There is none of any parameter, for this reason.
  void taken(std::string_view why_not);
  // A value of the state was set.
  void note_set(const StateSlot& slot);
  // An update by gradients that are zero, of another batch's weights or applied already would change weights in
  // silence.
  Status check() const;
  bool count_nothing() const { return count_nothing_; }

 private:
  const CompiledPlan& plan_;
  std::vector<uint8_t> there_;  // by trained parameter; empty where no gradients are kept
  std::string_view why_not_;
  bool count_nothing_ = false;
};

}  // namespace epl
