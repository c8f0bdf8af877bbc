// Element types. The names are those of safetensors and of the text forms.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace epl {

enum class DType : uint8_t { f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean };
inline constexpr int dtype_count = 13;

std::string_view dtype_name(DType type);  // "f32", ..., "bool"
std::optional<DType> parse_dtype(std::string_view name);

constexpr size_t dtype_bytes(DType type) {
  switch (type) {
    case DType::f64:
    case DType::i64:
    case DType::u64:
      return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
  }
  return 0;
}
constexpr bool is_float(DType type) {
  return type == DType::f32 || type == DType::f64 || type == DType::f16 || type == DType::bf16;
}
constexpr bool is_integer(DType type) { return !is_float(type) && type != DType::boolean; }

// One element read or written through double or int64, whatever its type; half types round to nearest even, integers
// saturate from double. This is the slow, readable way that references use.
double load_double(DType type, const void* data, int64_t index);
void store_double(DType type, void* data, int64_t index, double value);
int64_t load_int(DType type, const void* data, int64_t index);
void store_int(DType type, void* data, int64_t index, int64_t value);

float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
float bfloat_to_float(uint16_t bits);
uint16_t float_to_bfloat(float value);

}  // namespace epl
