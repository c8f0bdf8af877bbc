// Casts to and from 16 bits of every kind of number, as lowering hands them to a backend.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/on_cpu.h"

namespace epl::cuda {

// Every pattern of 16 bits.
inline Tensor all_of_16_bits(DType type) {
  Tensor all(TensorType{type, {1 << 16}});
  for (int i = 0; i < 1 << 16; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(static_cast<std::byte*>(all.data()) + 2 * i, &bits, sizeof bits);
  }
  return all;
}

// For each number of 16 bits itself, the middle between it and the next, and the neighbours of that middle; then
// patterns of every exponent.
inline Tensor around_16_bits(DType type) {
  const Tensor narrow = all_of_16_bits(type);
  std::vector<float> values;
  for (int64_t i = 0; i < narrow.elements(); ++i) {
    const double own = narrow.get(i), next = i + 1 < narrow.elements() ? narrow.get(i + 1) : own;
    const double step = std::isfinite(next) || i == 0 ? next - own : own - narrow.get(i - 1);
    const auto middle = static_cast<float>(own + step / 2);
    for (const float value :
         {static_cast<float>(own), middle, std::nextafter(middle, -HUGE_VALF), std::nextafter(middle, HUGE_VALF)})
      values.push_back(value);
  }
  for (uint32_t i = 0; i < 1 << 16; ++i) values.push_back(std::bit_cast<float>(i * 65537u));
  Tensor wide(TensorType{DType::f32, {static_cast<int64_t>(values.size())}});
  std::memcpy(wide.data(), values.data(), values.size() * sizeof(float));
  return wide;
}

inline std::vector<std::pair<std::string, cpu::Launch>> narrow_casts() {
  const OpDef* op = op_table().find("cast");
  std::vector<std::pair<std::string, cpu::Launch>> all;
  const auto add = [&](Tensor x, DType to) {
    const std::string from(dtype_name(x.dtype())), text = cat(from, "[1] {to=@", dtype_name(to), "}");
    cpu::Launch launch = lowered(*op, *parse_sample(*op, text));
    launch.outputs = {TensorType{to, x.shape()}};
    launch.inputs = {std::move(x)};
    all.emplace_back(text, std::move(launch));
  };
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const DType to : {DType::f32, DType::f64, type == DType::f16 ? DType::bf16 : DType::f16})
      add(all_of_16_bits(type), to);
    add(around_16_bits(type), type);
  }
  return all;
}

}  // namespace epl::cuda
