#include "backends/cuda/generate/elements.h"

#include "backends/cuda/generate/program.h"
#include "core/base/text.h"

namespace epl::cuda {

std::string element_functions(DType type) {
  const std::string_view wide = is_float(type) ? "double" : type == DType::u64 ? "uint64_t" : "int64_t";
  std::string_view in = "m", out = "(Memory)v";
  if (type == DType::f16) in = "widened_half(m)", out = "half_of(v)";
  if (type == DType::bf16) in = "epl::bfloat_to_float(m)", out = "bfloat_of(v)";
  return cat("using Memory = ", memory_type(type), ";\nusing Wide = ", wide,
             ";\ninline Wide loaded(Memory m) { return (Wide)", in, "; }\ninline Memory rounded(Wide v) { return ", out,
             "; }\n");
}

std::string number_functions(DType type) {
  if (type != DType::f32) return element_functions(type);
  return "using Memory = float;\nusing Wide = float;\ninline Wide loaded(Memory m) { return m; }\n"
         "inline Memory rounded(Wide v) { return v; }\n";
}

std::string operand_types(DType type) {
  const std::string_view operand = type == DType::f16 ? "Halves" : type == DType::bf16 ? "Bfloats" : "const float*";
  return cat("using Memory = ", memory_type(type), ";\nusing Operand = ", operand, ";\n");
}

}  // namespace epl::cuda
