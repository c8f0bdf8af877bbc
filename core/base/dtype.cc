#include "core/base/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace epl {
namespace {

constexpr std::array<std::string_view, dtype_count> names = {"f32", "f64", "f16", "bf16", "i8",  "i16", "i32",
                                                             "i64", "u8",  "u16", "u32",  "u64", "bool"};

// Calls f with a pointer of the element type; the one place that switches on it.
template <class Void, class F> decltype(auto) with_pointer(DType type, Void* data, F&& f) {
  constexpr bool constant = std::is_const_v<Void>;
  auto as = [&]<class T>(T*) { return reinterpret_cast<std::conditional_t<constant, const T, T>*>(data); };
  switch (type) {
    case DType::f32:
      return f(as((float*)nullptr));
    case DType::f64:
      return f(as((double*)nullptr));
    case DType::i8:
      return f(as((int8_t*)nullptr));
    case DType::i16:
      return f(as((int16_t*)nullptr));
    case DType::i32:
      return f(as((int32_t*)nullptr));
    case DType::i64:
      return f(as((int64_t*)nullptr));
    case DType::u16:
      return f(as((uint16_t*)nullptr));
    case DType::u32:
      return f(as((uint32_t*)nullptr));
    case DType::u64:
      return f(as((uint64_t*)nullptr));
    default:
      return f(as((uint8_t*)nullptr));
  }
}

template <class T> T saturate(double value) {
  if (std::isnan(value)) return 0;
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double high = static_cast<double>(std::numeric_limits<T>::max());
  if (value <= low) return std::numeric_limits<T>::min();
  if (value >= high) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

}  // namespace

std::string_view dtype_name(DType type) { return names[static_cast<size_t>(type)]; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

#include "core/base/half.inc"

double load_double(DType type, const void* data, int64_t index) {
  if (type == DType::f16) return half_to_float(static_cast<const uint16_t*>(data)[index]);
  if (type == DType::bf16) return bfloat_to_float(static_cast<const uint16_t*>(data)[index]);
  return with_pointer(type, data, [&](auto* p) { return static_cast<double>(p[index]); });
}

void store_double(DType type, void* data, int64_t index, double value) {
  if (type == DType::f16) {
    static_cast<uint16_t*>(data)[index] = float_to_half(round_to_odd(value));
  } else if (type == DType::bf16) {
    static_cast<uint16_t*>(data)[index] = float_to_bfloat(round_to_odd(value));
  } else if (type == DType::boolean) {
    static_cast<uint8_t*>(data)[index] = value != 0;
  } else {
    with_pointer(type, data, [&](auto* p) {
      using T = std::remove_pointer_t<decltype(p)>;
      if constexpr (std::is_floating_point_v<T>) {
        p[index] = static_cast<T>(value);
      } else {
        p[index] = saturate<T>(value);
      }
    });
  }
}

int64_t load_int(DType type, const void* data, int64_t index) {
  if (is_float(type)) return saturate<int64_t>(load_double(type, data, index));
  return with_pointer(type, data, [&](auto* p) { return static_cast<int64_t>(p[index]); });
}

void store_int(DType type, void* data, int64_t index, int64_t value) {
  if (is_float(type)) return store_double(type, data, index, static_cast<double>(value));
  if (type == DType::boolean) value = value != 0;
  with_pointer(type, data, [&](auto* p) { p[index] = static_cast<std::remove_pointer_t<decltype(p)>>(value); });
}

}  // namespace epl
