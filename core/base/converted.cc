#include "core/base/converted.h"

#include <algorithm>
#include <cstring>

namespace epl {
namespace {

class Mapping : public TensorSource {
 public:
  Mapping(Tensor from, DType to, std::function<double(int64_t, double)> f)
      : from_(std::move(from)), to_(to), f_(std::move(f)) {}

  Status read(int64_t begin, int64_t bytes, void* target) const override {
    constexpr int64_t chunk = 4096;  // elements
    const int64_t from_size = static_cast<int64_t>(dtype_bytes(from_.dtype())),
                  to_size = static_cast<int64_t>(dtype_bytes(to_));
    std::byte in[chunk * 8], out[chunk * 8];
    auto* at = static_cast<std::byte*>(target);
    const int64_t end = begin + bytes;
    for (int64_t first = begin / to_size; first * to_size < end; first += chunk) {
      const int64_t count = std::min(chunk, (end + to_size - 1) / to_size - first);
      EPL_TRY(from_.read(first * from_size, count * from_size, in));
      for (int64_t i = 0; i < count; ++i) {
        const double value = load_double(from_.dtype(), in, i);
        store_double(to_, out, i, f_ ? f_(first + i, value) : value);
      }
      // What was asked for may begin or end inside an element.
      const int64_t low = std::max(begin, first * to_size), high = std::min(end, (first + count) * to_size);
      std::memcpy(at + (low - begin), out + (low - first * to_size), static_cast<size_t>(high - low));
    }
    return {};
  }

 private:
  Tensor from_;
  DType to_;
  std::function<double(int64_t, double)> f_;  // none: as it is
};

}  // namespace

Tensor converted(const Tensor& value, DType dtype) {
  if (value.dtype() == dtype || value.empty()) return value;
  return Tensor({dtype, value.shape()}, std::make_shared<const Mapping>(value, dtype, nullptr));
}

Tensor mapped(const Tensor& value, std::function<double(int64_t, double)> f) {
  return Tensor(value.type(), std::make_shared<const Mapping>(value, value.dtype(), std::move(f)));
}

}  // namespace epl
