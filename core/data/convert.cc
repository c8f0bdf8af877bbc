#include "core/data/convert.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace epl {
namespace {

Shape without_ones(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// The largest n below which `type` has every integer.
double exact_below(DType type) {
  switch (type) {
    case DType::f16:
      return 2048;
    case DType::bf16:
      return 256;
    case DType::f32:
      return 16777216;
    default:
      return 9007199254740992.0;
  }
}

Status cannot_hold(int64_t index, int64_t count, double value, DType to, std::string_view why) {
  return Status(Code::invalid_argument, cat(count > 1 ? cat("element ", index, " is ") : "the value is ", value,
                                            ", which ", dtype_name(to), " cannot hold", why));
}

template <class T> Status integer_from_double(DType from, const void* source, T* target, DType to, int64_t count) {
  // Limits as doubles: the first value above the largest, which a double has for every width.
  constexpr double low = static_cast<double>(std::numeric_limits<T>::min());
  const double high = std::ldexp(1.0, std::numeric_limits<T>::digits);
  const double exact = exact_below(from);
  for (int64_t i = 0; i < count; ++i) {
    const double value = load_double(from, source, i);
    if (!(value >= low && value < high)) return cannot_hold(i, count, value, to, "");
    if (value != std::floor(value)) return cannot_hold(i, count, value, to, ": it is not an integer");
    if (std::fabs(value) > exact)
      return cannot_hold(i, count, value, to,
                         cat(" for certain: beyond ", exact, " ", dtype_name(from),
                             " does not have every integer; store integers as such"));
    target[i] = static_cast<T>(value);
  }
  return {};
}

template <class T> Status integer_from_integer(DType from, const void* source, T* target, DType to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t value = from == DType::u64 ? 0 : load_int(from, source, i);
    const bool fits =
        from == DType::u64 ? std::in_range<T>(static_cast<const uint64_t*>(source)[i]) : std::in_range<T>(value);
    if (!fits) return cannot_hold(i, count, load_double(from, source, i), to, "");
    target[i] = from == DType::u64 ? static_cast<T>(static_cast<const uint64_t*>(source)[i]) : static_cast<T>(value);
  }
  return {};
}

template <class T> Status to_integer(DType from, const void* source, void* target, DType to, int64_t count) {
  T* values = static_cast<T*>(target);
  return is_float(from) ? integer_from_double(from, source, values, to, count)
                        : integer_from_integer(from, source, values, to, count);
}

// The pairs that most files are made of, without a switch at each element.
template <class T> Status to_float(const T* source, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    target[i] = static_cast<float>(source[i]);
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isinf(target[i]) && !std::isinf(source[i]))
        return cannot_hold(i, count, source[i], DType::f32, ": it is too large");
    }
  }
  return {};
}

Status to_real(DType from, const void* source, DType to, void* target, int64_t count) {
  if (to == DType::f32) {
    auto* floats = static_cast<float*>(target);
    if (from == DType::f64) return to_float(static_cast<const double*>(source), floats, count);
    if (from == DType::u8 || from == DType::boolean)
      return to_float(static_cast<const uint8_t*>(source), floats, count);
    if (from == DType::i64) return to_float(static_cast<const int64_t*>(source), floats, count);
  }
  for (int64_t i = 0; i < count; ++i) {
    const double value = load_double(from, source, i);
    store_double(to, target, i, value);
    if (std::isfinite(value) && !std::isfinite(load_double(to, target, i)))
      return cannot_hold(i, count, value, to, ": it is too large");
  }
  return {};
}

Status to_truth(DType from, const void* source, void* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const double value = load_double(from, source, i);
    if (value != 0 && value != 1) return cannot_hold(i, count, value, DType::boolean, ": it is neither 0 nor 1");
    static_cast<uint8_t*>(target)[i] = value != 0;
  }
  return {};
}

}  // namespace

bool can_stand_for(const TensorType& from, const TensorType& to) {
  return without_ones(from.shape) == without_ones(to.shape);
}

Status convert_elements(DType from, const void* source, DType to, void* target, int64_t count) {
  switch (to) {
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16:
      return to_real(from, source, to, target, count);
    case DType::i8:
      return to_integer<int8_t>(from, source, target, to, count);
    case DType::i16:
      return to_integer<int16_t>(from, source, target, to, count);
    case DType::i32:
      return to_integer<int32_t>(from, source, target, to, count);
    case DType::i64:
      return to_integer<int64_t>(from, source, target, to, count);
    case DType::u8:
      return to_integer<uint8_t>(from, source, target, to, count);
    case DType::u16:
      return to_integer<uint16_t>(from, source, target, to, count);
    case DType::u32:
      return to_integer<uint32_t>(from, source, target, to, count);
    case DType::u64:
      return to_integer<uint64_t>(from, source, target, to, count);
    case DType::boolean:
      return to_truth(from, source, target, count);
  }
  return {};
}

std::unique_ptr<ConvertingReader> ConvertingReader::over(const Reader& reader, std::vector<TensorType> wanted) {
  std::unique_ptr<ConvertingReader> out(new ConvertingReader(reader));
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [name, type] = reader.fields()[i];
    out->fields_.emplace_back(name, std::move(wanted[i]));
  }
  return out;
}

Status ConvertingReader::read_samples(std::span<const int64_t> samples, int field, void* target) const {
  const TensorType &from = reader_.fields()[static_cast<size_t>(field)].second,
                   &to = fields_[static_cast<size_t>(field)].second;
  if (from.dtype == to.dtype) return reader_.read_samples(samples, field, target);
  const Scratch scratch(*this, static_cast<size_t>(from.bytes()) * samples.size());  // no lock while the reader reads
  EPL_TRY(reader_.read_samples(samples, field, scratch.data()));
  for (size_t i = 0; i < samples.size(); ++i) {
    const Status status =
        convert_elements(from.dtype, scratch.data() + static_cast<size_t>(from.bytes()) * i, to.dtype,
                         static_cast<std::byte*>(target) + static_cast<size_t>(to.bytes()) * i, to.elements());
    if (!status.ok())
      return status.with_context(
          cat("field ", fields_[static_cast<size_t>(field)].first, ", ", position_of(reader_, samples[i])));
  }
  return {};
}

ConvertingReader::Scratch::Scratch(const ConvertingReader& reader, size_t bytes) : reader_(reader) {
  {
    std::lock_guard lock(reader_.mutex_);
    if (!reader_.scratch_.empty()) {
      bytes_ = std::move(reader_.scratch_.back());
      reader_.scratch_.pop_back();
    }
  }
  if (bytes_.size() < bytes) bytes_.resize(bytes);
}

ConvertingReader::Scratch::~Scratch() {
  std::lock_guard lock(reader_.mutex_);
  if (reader_.scratch_.size() < reader_.scratch_.capacity()) reader_.scratch_.push_back(std::move(bytes_));
}

}  // namespace epl
