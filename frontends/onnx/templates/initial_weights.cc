#include "frontends/onnx/templates/initial_weights.h"

#include <cmath>

#include "core/base/math.h"
#include "core/base/philox.h"

namespace epl::onnx {

// The transform of Box and Muller on pairs of 32-bit draws; logarithm and cosine are our own, so that every machine
// writes the same file.
ModelWriter::Fill normal_weights(uint64_t seed, std::string name, double deviation) {
  return [=](epl::Tensor& out) {
    const uint64_t key = random_key(seed, 0, name);
    float* to = out.as<float>().data();
    for (int64_t i = 0, n = out.elements(); i < n; i += 2) {
      const PhiloxBlock bits = philox(key, static_cast<uint64_t>(i / 2));
      for (int64_t j = 0; j < 2 && i + j < n; ++j) {
        const double u = (bits[2 * j] + 1.0) * 0x1p-32, v = bits[2 * j + 1] * 0x1p-32;
        to[i + j] = static_cast<float>(deviation * std::sqrt(-2 * math::log(u)) * math::cos(2 * math::pi * v));
      }
    }
  };
}

ModelWriter::Fill uniform_weights(uint64_t seed, std::string name, double bound) {
  return [=](epl::Tensor& out) {
    const uint64_t key = random_key(seed, 0, name);
    float* to = out.as<float>().data();
    for (int64_t i = 0, n = out.elements(); i < n; ++i) {
      to[i] = static_cast<float>(bound * (2.0 * philox_uniform(key, static_cast<uint64_t>(i)) - 1));
    }
  };
}

ModelWriter::Fill constant_weights(double value) {
  return [=](epl::Tensor& out) {
    for (int64_t i = 0; i < out.elements(); ++i) out.set(i, value);
  };
}

Result<int64_t> size_option(const Attributes& options, std::string_view name) {
  const int64_t value = options.integer(name);
  if (value < 1 || value > INT32_MAX) return invalid("option ", name, " is ", value, "; it is a size, 1 or more");
  return value;
}

Status check_template_size(double numbers, int64_t layers) {
  constexpr double max_numbers = 68'719'476'736.0;  // 2^36: 256 GiB
  constexpr int64_t max_layers = 10'000;
  if (layers > max_layers) return invalid(layers, " layers; a template has up to ", max_layers);
  if (!(numbers <= max_numbers)) return invalid("a model of ", numbers, " numbers; a template has up to ", max_numbers);
  return {};
}

}  // namespace epl::onnx
