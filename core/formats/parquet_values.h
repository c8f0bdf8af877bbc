// The encodings of values and of levels in the pages of a Parquet column. Each reader gives false where the bytes end
// before the values or cannot be what they should.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "core/formats/parquet.h"

namespace epl::parquet {

enum Encoding : int64_t {
  plain = 0,
  plain_dictionary = 2,
  run_length = 3,
  delta_integers = 5,
  delta_lengths = 6,
  delta_text = 7,
  dictionary = 8,
  split = 9
};

using Bytes = std::string_view;

// What a page's values are decoded to: integers, real ones, or texts, which are views into the page or into `made`.
struct Values {
  std::vector<int64_t> integers;
  std::vector<double> real;
  std::vector<Bytes> text;
  std::vector<std::string> made;  // texts that stand nowhere in one run
  size_t size() const { return std::max({integers.size(), real.size(), text.size()}); }
};

inline bool is_real(const ParquetColumn& column) {
  return column.type == ParquetType::f32 || column.type == ParquetType::f64;
}

template <class T> T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool read_plain(const ParquetColumn& column, Bytes in, size_t count, Values& out);
// The hybrid of runs and packed bits: `count` numbers of `bits` each.
bool read_runs(Bytes& in, int bits, size_t count, std::vector<uint32_t>& out);
// Differences, each block's packed over its smallest. Overflow wraps, which is what the format asks for.
bool read_deltas(Bytes& in, size_t count, std::vector<int64_t>& out);
bool read_delta_lengths(Bytes& in, size_t count, std::vector<Bytes>& out);
// Each text begins with so many bytes of the one before it.
bool read_delta_texts(Bytes in, size_t count, Values& out);
// The first bytes of all, then the second bytes of all.
bool read_split(const ParquetColumn& column, Bytes in, size_t count, Values& out);

}  // namespace epl::parquet
