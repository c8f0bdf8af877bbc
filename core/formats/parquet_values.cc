#include "core/formats/parquet_values.h"

#include "core/formats/varint.h"

namespace epl::parquet {
namespace {

size_t width_of(ParquetType type) { return type == ParquetType::i64 || type == ParquetType::f64 ? 8 : 4; }

// An element of a fixed width.
void add_fixed(const ParquetColumn& column, const char* at, Values& out) {
  switch (column.type) {
    case ParquetType::i32:
      out.integers.push_back(column.is_unsigned ? int64_t{load<uint32_t>(at)} : int64_t{load<int32_t>(at)});
      break;
    case ParquetType::i64:
      out.integers.push_back(load<int64_t>(at));
      break;
    case ParquetType::f32:
      out.real.push_back(load<float>(at));
      break;
    default:
      out.real.push_back(load<double>(at));
      break;
  }
}

}  // namespace

bool read_plain(const ParquetColumn& column, Bytes in, size_t count, Values& out) {
  if (column.type == ParquetType::boolean) {
    if (in.size() < (count + 7) / 8) return false;
    for (size_t i = 0; i < count; ++i) out.integers.push_back(static_cast<unsigned char>(in[i / 8]) >> (i % 8) & 1);
    return true;
  }
  if (column.text()) {
    for (size_t i = 0; i < count; ++i) {
      if (in.size() < 4) return false;
      const auto size = load<uint32_t>(in.data());
      if (size > in.size() - 4) return false;
      out.text.push_back(in.substr(4, size));
      in.remove_prefix(4 + size_t{size});
    }
    return true;
  }
  const size_t width = width_of(column.type);
  if (in.size() / width < count) return false;
  for (size_t i = 0; i < count; ++i) add_fixed(column, in.data() + i * width, out);
  return true;
}

bool read_runs(Bytes& in, int bits, size_t count, std::vector<uint32_t>& out) {
  if (bits < 0 || bits > 32) return false;
  out.clear();
  const size_t bytes = static_cast<size_t>(bits + 7) / 8;
  while (out.size() < count) {
    uint64_t head = 0;
    for (int shift = 0;; shift += 7) {
      if (in.empty() || shift > 35) return false;
      const auto one = static_cast<unsigned char>(in.front());
      in.remove_prefix(1);
      head |= static_cast<uint64_t>(one & 127) << shift;
      if (one < 128) break;
    }
    if ((head & 1) == 0) {  // a run
      const size_t run = std::min<size_t>(head >> 1, count - out.size());
      if (in.size() < bytes || head == 0) return false;
      uint32_t value = 0;
      std::memcpy(&value, in.data(), bytes);
      in.remove_prefix(bytes);
      out.insert(out.end(), run, value);
    } else {  // groups of eight, packed from the lowest bit
      const uint64_t groups = head >> 1;
      if (groups == 0 || (bits > 0 && groups > in.size() / static_cast<size_t>(bits) + 1)) return false;
      const size_t packed = std::min<size_t>(groups * static_cast<size_t>(bits), in.size());
      const size_t values = std::min<size_t>(groups * 8, count - out.size());
      if (packed * 8 < values * static_cast<size_t>(bits)) return false;
      uint64_t held = 0;
      int have = 0;
      size_t at = 0;
      for (size_t i = 0; i < values; ++i) {
        while (have < bits) {
          held |= static_cast<uint64_t>(static_cast<unsigned char>(in[at++])) << have;
          have += 8;
        }
        out.push_back(static_cast<uint32_t>(held & ((uint64_t{1} << bits) - 1)));
        held >>= bits;
        have -= bits;
      }
      in.remove_prefix(packed);
    }
  }
  return true;
}

bool read_deltas(Bytes& in, size_t count, std::vector<int64_t>& out) {
  uint64_t block = 0, miniblocks = 0, total = 0, first = 0;
  if (!read_varint(in, block) || !read_varint(in, miniblocks) || !read_varint(in, total) || !read_varint(in, first))
    return false;
  if (block == 0 || block > (1 << 20) || miniblocks == 0 || block % miniblocks != 0 || (block / miniblocks) % 8 != 0 ||
      total != count)
    return false;
  const size_t miniblock = block / miniblocks;
  if (count == 0) return true;
  auto value = static_cast<uint64_t>(from_zigzag(first));
  out.push_back(static_cast<int64_t>(value));
  while (out.size() < count) {
    uint64_t least = 0;
    if (!read_varint(in, least) || in.size() < miniblocks) return false;
    const Bytes widths = in.substr(0, miniblocks);
    in.remove_prefix(miniblocks);
    for (size_t p = 0; p < miniblocks && out.size() < count; ++p) {
      const auto bits = static_cast<unsigned char>(widths[p]);
      if (bits > 64 || in.size() < miniblock / 8 * bits) return false;
      for (size_t i = 0; i < miniblock && out.size() < count; ++i) {
        uint64_t delta = 0;
        for (size_t b = 0, from = i * bits; b < bits;) {  // up to the end of each byte
          const size_t at = from + b, take = std::min<size_t>(8 - at % 8, bits - b);
          const uint64_t part =
              static_cast<uint64_t>(static_cast<unsigned char>(in[at / 8])) >> (at % 8) & ((1u << take) - 1);
          delta |= part << b;
          b += take;
        }
        value += static_cast<uint64_t>(from_zigzag(least)) + delta;
        out.push_back(static_cast<int64_t>(value));
      }
      in.remove_prefix(miniblock / 8 * bits);
    }
  }
  return true;
}

bool read_delta_lengths(Bytes& in, size_t count, std::vector<Bytes>& out) {
  std::vector<int64_t> lengths;
  if (!read_deltas(in, count, lengths)) return false;
  for (const int64_t length : lengths) {
    if (length < 0 || static_cast<uint64_t>(length) > in.size()) return false;
    out.push_back(in.substr(0, static_cast<size_t>(length)));
    in.remove_prefix(static_cast<size_t>(length));
  }
  return true;
}

bool read_delta_texts(Bytes in, size_t count, Values& out) {
  std::vector<int64_t> shared;
  std::vector<Bytes> ends;
  if (!read_deltas(in, count, shared) || !read_delta_lengths(in, count, ends)) return false;
  size_t total = 0;
  out.made.reserve(count);  // views stay valid
  for (size_t i = 0; i < count; ++i) {
    const Bytes before = i > 0 ? Bytes(out.made.back()) : Bytes();
    if (shared[i] < 0 || static_cast<uint64_t>(shared[i]) > before.size()) return false;
    total += static_cast<size_t>(shared[i]) + ends[i].size();
    if (total > (size_t{1} << 31)) return false;
    std::string text(before.substr(0, static_cast<size_t>(shared[i])));
    text += ends[i];
    out.made.push_back(std::move(text));
    out.text.push_back(out.made.back());
  }
  return true;
}

bool read_split(const ParquetColumn& column, Bytes in, size_t count, Values& out) {
  const size_t width = width_of(column.type);
  if (in.size() / width < count) return false;
  for (size_t i = 0; i < count; ++i) {
    char element[8];
    for (size_t b = 0; b < width; ++b) element[b] = in[b * count + i];
    add_fixed(column, element, out);
  }
  return true;
}

}  // namespace epl::parquet
