// Attention of the templates, after Vaswani et al. 2017.
#pragma once

#include <array>
#include <string>

#include "frontends/onnx/writer.h"

namespace epl::onnx {

// Of heads that are split and turned: query and value [batch, heads, sequence, size], key [batch, heads, size,
// sequence]. `mask` is true where a position is seen. Gives [batch, sequence, heads * size].
std::string masked_attention(ModelWriter& model, const std::string& name, const std::array<std::string, 3>& heads,
                             const std::string& mask, int64_t count, int64_t size);

}  // namespace epl::onnx
