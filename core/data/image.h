// Pixels: resizing, and turning into numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace epl {

// Rows from the top, a byte for each channel of a pixel.
struct Image {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;
};

// The part of an image from (top, left) on.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width);
// Each pixel of the result is the mean of those that it covers, weighted by a triangle over twice its size where the
// image shrinks and over two pixels where it grows: columns first, then rows, each rounded to 8 bits, as Pillow's
// BILINEAR.
Image resize(const Image& image, int64_t height, int64_t width);
// To 1 channel by the weights of ITU-R 601, or to 3 equal ones.
Image with_channels(Image image, int64_t channels);

}  // namespace epl
