// Products of operands of 16 bits have the bits of the products of these numbers as float32, and casts to and from 16
// bits are those of the host, for every number of 16 bits and beside every place where rounding turns.
#include <bit>

#include "core/base/converted.h"
#include "tests/kernels/kernel_harness.h"

namespace epl::cpu::narrow_operands_test {
namespace {

Tensor as(DType type, const Tensor& from) {
  Tensor out(TensorType{type, from.shape()});
  for (int64_t i = 0; i < out.elements(); ++i) out.set(i, from.get(i));
  return out;
}

struct Case {
  std::string op;
  Attributes attributes;
  std::vector<Shape> operands;
  Shape result;
  bool bias = false;
  Units units = {};
};

std::vector<Case> cases() {
  const Attributes conv = {
      {"strides", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}, {"groups", int64_t{1}}};
  const auto with = [](Attributes attributes, const char* name, const Attribute& value) {
    attributes.set(name, value);
    return attributes;
  };
  const Attributes product = {{"transpose_a", false}, {"transpose_b", true}};
  const Units four(4);
  return {
      {"matmul", product, {{3, 37, 70}, {3, 41, 70}}, {3, 37, 41}},
      {"linear", {{"transpose_w", false}}, {{150, 300}, {300, 65}}, {150, 65}, true},
      {"linear", {{"transpose_w", true}}, {{4, 90, 300}, {165, 300}}, {4, 90, 165}},
      {"matmul", {{"transpose_a", true}, {"transpose_b", false}}, {{2, 3, 70, 20}, {3, 70, 33}}, {2, 3, 20, 33}},
      {"matmul", {{"transpose_a", false}, {"transpose_b", false}}, {{1, 40}, {40, 50}}, {1, 50}},
      {"linear_grad_weight", {{"transpose_w", true}}, {{64, 33}, {64, 47}}, {47, 33}, false, four},
      {"linear_grad_weight", {{"transpose_w", false}}, {{3, 16, 33}, {3, 16, 47}}, {33, 47}, false, Units(4, 3)},
      {"conv", conv, {{4, 8, 12, 12}, {16, 8, 3, 3}}, {4, 16, 12, 12}, true},
      {"conv_grad_input", with(conv, "shape", Ints{4, 8, 12, 12}), {{4, 16, 12, 12}, {16, 8, 3, 3}}, {4, 8, 12, 12}},
      {"conv_grad_weight",
       with(conv, "shape", Ints{16, 8, 3, 3}),
       {{4, 8, 12, 12}, {4, 16, 12, 12}},
       {16, 8, 3, 3},
       false,
       four}};
}

TEST(NarrowOperands, GiveTheBitsOfTheSameNumbersInFloat32) {
  for (const DType type : {DType::bf16, DType::f16}) {
    for (const Case& one : cases()) {
      SCOPED_TRACE(cat(one.op, " ", dtype_name(type)));
      Launch narrow{
          .op = one.op, .attributes = one.attributes, .outputs = {{DType::f32, one.result}}, .units = one.units};
      narrow.attributes.set("wide", true);
      Launch wide = narrow;
      for (size_t i = 0; i < one.operands.size(); ++i) {
        narrow.inputs.push_back(as(type, random_f32(one.operands[i], i + 1)));
        wide.inputs.push_back(as(DType::f32, narrow.inputs.back()));
      }
      if (one.bias) {
        narrow.inputs.push_back(random_f32({one.result[1]}, 7));
        wide.inputs.push_back(narrow.inputs.back());
      }
      const std::vector<Tensor> here = launch_kernel(wide);
      for (const BitsLevel level : {BitsLevel::exact, BitsLevel::data}) {
        narrow.level = level;
        const std::vector<Tensor> there = launch_everywhere(narrow);
        ASSERT_EQ(there.size(), 1u);
        EXPECT_TRUE(identical(there[0], here[0])) << "level " << static_cast<int>(level);
      }
    }
  }
}

Tensor cast_by_kernel(const Tensor& x, DType to) {
  Launch launch{.op = "fused", .inputs = {x}, .outputs = {{to, x.shape()}}};
  launch.attributes = {{"expression", cat("x0; cast(%0,", dtype_name(to), ") -> %1")},
                       {"types", std::string(dtype_name(to))}};
  return launch_kernel(launch).at(0);
}

TEST(NarrowOperands, CastsAreThoseOfTheHost) {
  for (const DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(dtype_name(type));
    Tensor all(TensorType{type, {65536}});
    auto* const bits = static_cast<uint16_t*>(all.data());
    for (int i = 0; i < 65536; ++i) bits[i] = static_cast<uint16_t>(i);
    const Tensor wide = cast_by_kernel(all, DType::f32);
    const auto* const floats = static_cast<const float*>(wide.data());
    for (int i = 0; i < 65536; ++i) {
      const float expected = type == DType::f16 ? half_to_float(bits[i]) : bfloat_to_float(bits[i]);
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
    for (const uint32_t low :
         {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      Tensor from(TensorType{DType::f32, {65536}});
      auto* const values = static_cast<uint32_t*>(from.data());
      for (uint32_t i = 0; i < 65536; ++i) values[i] = (i << 16) | low;
      const Tensor narrow = cast_by_kernel(from, type);
      const auto* const found = static_cast<const uint16_t*>(narrow.data());
      for (int i = 0; i < 65536; ++i) {
        const float value = std::bit_cast<float>(values[i]);
        ASSERT_EQ(found[i], type == DType::f16 ? float_to_half(value) : float_to_bfloat(value)) << value << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace epl::cpu::narrow_operands_test
