#include "core/data/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace epl {
namespace {

constexpr int fraction_bits = 22;  // of a weight: 8 bits of a pixel and 2 of headroom are left of 32

// For each position of the result the first source pixel and the weights of it and of those behind it.
struct Weights {
  struct Taps {
    int64_t first = 0, count = 0;
    size_t at = 0;
  };
  std::vector<Taps> taps;
  std::vector<int32_t> weights;
};

Weights triangle(int64_t from, int64_t to) {
  Weights out;
  const double scale = static_cast<double>(from) / static_cast<double>(to), reach = std::max(scale, 1.0);
  std::vector<double> raw;
  for (int64_t i = 0; i < to; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - reach + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(center + reach + 0.5), from);
    raw.clear();
    double sum = 0;
    for (int64_t p = first; p < end; ++p) {
      const double distance = std::fabs((static_cast<double>(p) - center + 0.5) / reach);
      raw.push_back(std::max(1.0 - distance, 0.0));
      sum += raw.back();
    }
    out.taps.push_back({first, end - first, out.weights.size()});
    for (const double weight : raw)
      out.weights.push_back(static_cast<int32_t>(std::floor(weight / sum * (1 << fraction_bits) + 0.5)));
  }
  return out;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp((sum + (1 << (fraction_bits - 1))) >> fraction_bits, 0, 255));
}

// Along the rows (`step` is a pixel) or along the columns (`step` is a row) of the source.
Image resampled(const Image& image, int64_t height, int64_t width) {
  const bool columns = width != image.width;
  const Weights w = columns ? triangle(image.width, width) : triangle(image.height, height);
  Image out{height, width, image.channels, std::vector<uint8_t>(static_cast<size_t>(height * width * image.channels))};
  const int64_t row = image.width * image.channels, step = columns ? image.channels : row;
  uint8_t* to = out.pixels.data();
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const Weights::Taps& taps = w.taps[static_cast<size_t>(columns ? x : y)];
      const uint8_t* from = image.pixels.data() + (columns ? y * row : x * image.channels) + taps.first * step;
      for (int64_t c = 0; c < image.channels; ++c) {
        int32_t sum = 0;
        for (int64_t p = 0; p < taps.count; ++p)
          sum += from[p * step + c] * w.weights[taps.at + static_cast<size_t>(p)];
        *to++ = rounded(sum);
      }
    }
  }
  return out;
}

}  // namespace

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  Image out{height, width, image.channels, std::vector<uint8_t>(static_cast<size_t>(height * width * image.channels))};
  const auto bytes = static_cast<size_t>(width * image.channels);
  for (int64_t y = 0; y < height; ++y) {
    std::memcpy(out.pixels.data() + static_cast<size_t>(y) * bytes,
                image.pixels.data() + ((top + y) * image.width + left) * image.channels, bytes);
  }
  return out;
}

Image resize(const Image& image, int64_t height, int64_t width) {
  const Image wide = width == image.width ? image : resampled(image, image.height, width);
  return height == image.height ? wide : resampled(wide, height, width);
}

Image with_channels(Image image, int64_t channels) {
  if (image.channels == channels) return image;
  Image out{image.height, image.width, channels, {}};
  out.pixels.reserve(static_cast<size_t>(image.height * image.width * channels));
  for (size_t i = 0; i < image.pixels.size(); i += static_cast<size_t>(image.channels)) {
    const uint8_t* p = image.pixels.data() + i;
    if (channels == 1) {
      out.pixels.push_back(static_cast<uint8_t>((p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16));
    } else {
      out.pixels.insert(out.pixels.end(), 3, p[0]);
    }
  }
  return out;
}

}  // namespace epl
