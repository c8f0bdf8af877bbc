// The text of an elementwise region: a scalar expression for one element, as the CPU's engine computes it
// (backends/cpu/kernels/elementwise_prepare.cc): in which class of numbers each operation runs, and where it rounds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/kernel.h"

namespace epl::cuda {

// The files that its text needs.
inline constexpr std::string_view region_file = "backends/cuda/text/region.cuh";

struct Region {
  std::string functions;             // where each operand's elements lie
  std::string loads;                 // of element `e`, from pointers x0, x1, ...: statements
  std::vector<std::string> results;  // expressions: each result as memory holds it
};
// Or why a region is not served: elements of u64.
Result<Region> make_region(const Body& body, const std::vector<TensorType>& inputs,
                           const std::vector<TensorType>& outputs);

}  // namespace epl::cuda
