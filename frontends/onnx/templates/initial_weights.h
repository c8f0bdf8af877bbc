// Initial weights, drawn from Philox: a tensor's numbers depend on the seed and its name alone.
#pragma once

#include <cstdint>
#include <string>

#include "frontends/onnx/writer.h"

namespace epl::onnx {

// Normal with mean 0.
ModelWriter::Fill normal_weights(uint64_t seed, std::string name, double deviation);
// Uniform in [-bound, bound).
ModelWriter::Fill uniform_weights(uint64_t seed, std::string name, double bound);
ModelWriter::Fill constant_weights(double value);

// The option as a size, or an error that names it: from 1 to 2^31 - 1.
Result<int64_t> size_option(const Attributes& options, std::string_view name);

// Refuses sizes that nobody means before anything is made: `numbers` weights in `layers` layers.
Status check_template_size(double numbers, int64_t layers);

}  // namespace epl::onnx
