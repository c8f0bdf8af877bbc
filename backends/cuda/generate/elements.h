// Elements as memory holds them, and the numbers that ops compute with by their meaning.
#pragma once

#include <string>

#include "core/base/dtype.h"

namespace epl::cuda {

// `Memory`, the type in memory; `Wide`, float64 for real numbers, and for integers 64 bits; `loaded` and `rounded`
// between them. The text needs region_file.
std::string element_functions(DType type);

}  // namespace epl::cuda
