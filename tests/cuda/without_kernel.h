// Ops that the CUDA pack has no kernel for: a plan for a GPU has what they are written in instead. An op that is
// missing here and has none has lost it; one that is here and has one leaves the list.
#pragma once

#include <set>
#include <string>

namespace epl::cuda {

inline const std::set<std::string>& ops_without_kernel() {
  static const std::set<std::string> ops = {"clip", "fused_sum"};
  return ops;
}

}  // namespace epl::cuda
