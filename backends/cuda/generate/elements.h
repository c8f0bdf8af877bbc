// Elements as memory holds them, and the numbers that ops compute with by their meaning.
#pragma once

#include <string>

#include "core/base/dtype.h"

namespace epl::cuda {

// `Memory`, the type in memory; `Wide`, float64 for real numbers, and for integers 64 bits; `loaded` and `rounded`
// between them. The text needs region_file.
std::string element_functions(DType type);
// `Memory`, and `Operand`, which reads such memory as float32 (backends/cuda/text/operand.cuh). Of float32, f16, bf16.
std::string operand_types(DType type);

}  // namespace epl::cuda
