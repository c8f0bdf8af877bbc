#include "core/base/tensor.h"

#include <gtest/gtest.h>

#include <bit>

#include "core/base/check.h"

namespace epl::tensor_test {
namespace {

uint64_t hash_of(const Tensor& t) {
  Hash64 hash;
  add_to_hash(hash, t);
  return hash.value();
}

Tensor of_bits(DType type, std::initializer_list<uint64_t> elements) {
  Tensor t(TensorType{type, {static_cast<int64_t>(elements.size())}});
  auto* to = static_cast<char*>(t.data());
  for (uint64_t bits : elements) {
    std::memcpy(to, &bits, dtype_bytes(type));
    to += dtype_bytes(type);
  }
  return t;
}

// Of every float type: two NaNs that differ in sign and payload, infinity, and the zero whose bits are the sign's
// alone.
struct FloatBits {
  DType type;
  uint64_t nan, other_nan, infinity, minus_zero;
};
constexpr FloatBits float_types[] = {
    {DType::f32, 0x7fc00000, 0xff800001, 0x7f800000, 0x80000000},
    {DType::f64, 0x7ff8000000000000, 0xfff0000000000001, 0x7ff0000000000000, 0x8000000000000000},
    {DType::f16, 0x7e00, 0xfc01, 0x7c00, 0x8000},
    {DType::bf16, 0x7fc0, 0xff81, 0x7f80, 0x8000}};

TEST(TensorType, HasNoOtherDimensionsThanItsOwn) {
  const TensorType type{DType::f32, {2, 3}};
  EXPECT_EQ(type.dim(1), 3);
  EXPECT_EQ(type.dim(-2), 2);
  EXPECT_THROW(static_cast<void>(type.dim(2)), InternalError);
  EXPECT_THROW(static_cast<void>(type.dim(-3)), InternalError);
  EXPECT_THROW(static_cast<void>(TensorType{}.dim(-1)), InternalError);
}

TEST(Identity, AnyNanIsLikeAnyOther) {
  for (const FloatBits& f : float_types) {
    SCOPED_TRACE(dtype_name(f.type));
    EXPECT_TRUE(identical(of_bits(f.type, {f.nan, 1}), of_bits(f.type, {f.other_nan, 1})));
    EXPECT_EQ(hash_of(of_bits(f.type, {f.nan, 1})), hash_of(of_bits(f.type, {f.other_nan, 1})));
    EXPECT_FALSE(identical(of_bits(f.type, {f.nan}), of_bits(f.type, {f.infinity})));
    EXPECT_FALSE(identical(of_bits(f.type, {f.minus_zero}), of_bits(f.type, {0}))) << "zeros keep their sign";
    EXPECT_NE(hash_of(of_bits(f.type, {f.minus_zero})), hash_of(of_bits(f.type, {0})));
  }
  EXPECT_FALSE(identical(of_bits(DType::i32, {0x7fc00000}), of_bits(DType::i32, {0xff800001})))
      << "integers have no NaN";
}

TEST(Identity, HashesOfWeightsAreThoseOfTheirBytes) {
  Tensor t(TensorType{DType::f32, {1500}});
  for (int64_t i = 0; i < t.elements(); ++i) t.set(i, 0.25 * static_cast<double>(i) - 7);
  Hash64 bytes;
  bytes.add(t.data(), static_cast<size_t>(t.bytes()));
  EXPECT_EQ(hash_of(t), bytes.value());
}

}  // namespace
}  // namespace epl::tensor_test
