// Elements as memory holds them, and the numbers that ops compute with by their meaning.
#pragma once

#include <string>
#include <string_view>

#include "core/base/dtype.h"

namespace epl::cuda {

inline constexpr DType float_types[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
inline constexpr DType other_floats[] = {DType::f64, DType::bf16, DType::f16};  // the CPU has no kernels for them
inline constexpr std::string_view half_file = "backends/cuda/text/half.cuh";

// `Memory`, the type in memory; `Wide`, float64 for real numbers, and for integers 64 bits; `loaded` and `rounded`
// between them. The text needs half_file.
std::string element_functions(DType type);
// The same of real numbers as the CPU computes with them: `Wide` is float32 where memory holds that, for which the CPU
// has kernels; for all others it follows the ops' meanings.
std::string number_functions(DType type);
// `Memory`, and `Operand`, which reads such memory as float32 (backends/cuda/text/operand.cuh). Of float32, f16, bf16.
std::string operand_types(DType type);

}  // namespace epl::cuda
