// The pages of a Parquet column: levels, which say where a value is missing, and values in one of several encodings.
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "core/base/shown.h"
#include "core/formats/parquet.h"
#include "core/formats/thrift.h"
#include "core/formats/varint.h"

namespace epl {
namespace {

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

bool is_real(const ParquetColumn& column) { return column.type == ParquetType::f32 || column.type == ParquetType::f64; }

size_t width_of(ParquetType type) { return type == ParquetType::i64 || type == ParquetType::f64 ? 8 : 4; }

template <class T> T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

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

// The hybrid of runs and packed bits: `count` numbers of `bits` each.
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

// Differences, each block's packed over its smallest. Overflow wraps, which is what the format asks for.
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

// Each text begins with so many bytes of the one before it.
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

// The first bytes of all, then the second bytes of all.
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

struct PageHead {
  int64_t kind = -1, unpacked = -1, packed = -1, values = -1, encoding = -1, level_bytes = 0, repetition_bytes = 0;
  bool is_packed = true;
};

bool read_head(Thrift& in, PageHead& out) {
  return in.read_structure([&](Thrift::Field field) {
    const bool details = field.type == Thrift::structure && (field.id == 5 || field.id == 7 || field.id == 8);
    if (field.id == 1) {
      out.kind = in.integer();
    } else if (field.id == 2) {
      out.unpacked = in.integer();
    } else if (field.id == 3) {
      out.packed = in.integer();
    } else if (details) {
      const bool second = field.id == 8;
      in.read_structure([&](Thrift::Field f) {
        if (f.id == 1) {
          out.values = in.integer();
        } else if (f.id == (second ? 4 : 2)) {
          out.encoding = in.integer();
        } else if (second && f.id == 5) {
          out.level_bytes = in.integer();
        } else if (second && f.id == 6) {
          out.repetition_bytes = in.integer();
        } else if (second && f.id == 7) {
          out.is_packed = f.type == Thrift::yes;
        } else {
          in.skip(f.type);
        }
      });
    } else {
      in.skip(field.type);
    }
  });
}

// Goes through the pages of a chunk.
class ChunkReader {
 public:
  ChunkReader(const FileReader& file, const ParquetColumn& column, const ParquetChunk& chunk, Codecs& codecs,
              const ParquetSink& sink)
      : file_(file), column_(column), chunk_(chunk), codecs_(codecs), sink_(sink) {}

  Status run(int64_t rows) {
    EPL_TRY(name_codec());
    uint64_t at = chunk_.offset;
    while (done_ < rows) {
      if (at >= chunk_.offset + chunk_.bytes) return wrong(at, cat("the pages hold ", done_, " values of ", rows));
      EPL_TRY(read_page(at, rows));
    }
    return {};
  }

 private:
  Status wrong(uint64_t at, std::string what) const {
    return Status(Code::invalid_argument, cat("column ", shown(column_.name, 60), ", page at byte ", at, ": ", what),
                  file_.path());
  }

  Status name_codec() {
    static constexpr std::string_view names[] = {"", "snappy", "gzip", "lzo", "brotli", "lz4", "zstd", "lz4_raw"};
    if (chunk_.codec < 0 || chunk_.codec > 7) return wrong(chunk_.offset, cat("an unknown codec, ", chunk_.codec));
    codec_ = names[chunk_.codec];
    if (codec_ == "lzo" || codec_ == "brotli" || codec_ == "lz4" || codec_ == "lz4_raw") {
      return Status(Code::unsupported, cat("the file is packed with ", codec_, "; snappy, zstd and gzip are read"),
                    file_.path());
    }
    return {};
  }

  // Reads the page at `at` and goes behind it.
  Status read_page(uint64_t& at, int64_t rows) {
    constexpr uint64_t max_head = 1 << 16;  // statistics may stand in it
    const uint64_t start = at, end = chunk_.offset + chunk_.bytes;
    std::string front(std::min(max_head, end - at), '\0');
    EPL_TRY(file_.read(at, front.data(), front.size()));
    Thrift in(front);
    PageHead head;
    if (!read_head(in, head)) return wrong(start, "its head is damaged");
    at += in.position();
    if (head.packed < 0 || head.unpacked < 0 || static_cast<uint64_t>(head.packed) > end - at)
      return wrong(start, cat(head.packed, " bytes, where the column ends before"));
    // No codec packs a page much tighter, so memory is bounded by the file.
    if (head.unpacked > (int64_t{1} << 24) && head.unpacked / 1024 > head.packed)
      return wrong(start, cat(head.packed, " bytes cannot be ", head.unpacked));
    std::vector<std::byte> packed(static_cast<size_t>(head.packed));
    EPL_TRY(file_.read(at, packed.data(), packed.size()));
    at += packed.size();
    if (head.kind == 1) return {};  // an index
    if (head.kind != 0 && head.kind != 2 && head.kind != 3)
      return wrong(start, cat("an unknown kind of page, ", head.kind));
    const bool is_dictionary = head.kind == 2;
    if (head.values < 0 || head.values > (is_dictionary ? head.unpacked * 8 : rows - done_))
      return wrong(start, cat(head.values, " values"));
    std::vector<char> page;
    EPL_TRY(unpack(start, head, packed, page));
    const Bytes bytes(page.data(), page.size());
    if (!is_dictionary) return read_data(start, head, bytes);
    dictionary_ = {};
    dictionary_page_ = std::move(page);  // texts are views into it
    if (head.encoding != plain && head.encoding != plain_dictionary)
      return wrong(start, cat("a dictionary in encoding ", head.encoding));
    if (!read_plain(column_, {dictionary_page_.data(), dictionary_page_.size()}, static_cast<size_t>(head.values),
                    dictionary_))
      return wrong(start, "its dictionary is cut off");
    return {};
  }

  // The levels of a page of the second kind stand unpacked in front of it.
  Status unpack(uint64_t start, const PageHead& head, std::span<const std::byte> packed, std::vector<char>& page) {
    const int64_t levels = head.kind == 3 ? head.level_bytes : 0;
    if (levels < 0 || levels > std::min(head.packed, head.unpacked))
      return wrong(start, "its levels do not fit into it");
    if (head.kind == 3 && head.repetition_bytes != 0)
      return wrong(start, "it has levels of lists, and the column is none");
    page.resize(static_cast<size_t>(head.unpacked));
    const auto front = static_cast<size_t>(levels);
    std::ranges::copy(packed.first(front), std::as_writable_bytes(std::span(page)).begin());
    const std::span<std::byte> rest = std::as_writable_bytes(std::span(page)).subspan(front);
    packed = packed.subspan(front);
    if (codec_.empty() || (head.kind == 3 && !head.is_packed)) {
      if (packed.size() != rest.size())
        return wrong(start, cat(packed.size(), " bytes, and ", rest.size(), " are to come of it"));
      std::ranges::copy(packed, rest.begin());
      return {};
    }
    if (rest.empty()) return {};  // only missing values
    Status status = codecs_.unpack(codec_, packed, rest);
    return status.ok() || status.code() != Code::invalid_argument ? status : wrong(start, status.message());
  }

  Status read_data(uint64_t start, const PageHead& head, Bytes page) {
    const auto count = static_cast<size_t>(head.values);
    size_t present = count;
    if (column_.optional) {
      Bytes levels;
      if (head.kind == 3) {
        levels = page.substr(0, static_cast<size_t>(head.level_bytes));
        page.remove_prefix(levels.size());
      } else {
        const uint32_t bytes = page.size() < 4 ? 0 : load<uint32_t>(page.data());
        if (page.size() < 4 || bytes > page.size() - 4) return wrong(start, "its levels are cut off");
        levels = page.substr(4, bytes);
        page.remove_prefix(4 + size_t{bytes});
      }
      if (!read_runs(levels, 1, count, levels_)) return wrong(start, "its levels are damaged");
      present = static_cast<size_t>(std::ranges::count(levels_, 1u));
    } else {
      if (head.kind == 3) page.remove_prefix(static_cast<size_t>(head.level_bytes));
      levels_.assign(count, 1);
    }
    EPL_TRY(decode(start, head.encoding, page, present));
    return deliver();
  }

  Status decode(uint64_t start, int64_t encoding, Bytes page, size_t count) {
    values_ = {};
    bool fine = false;
    const bool integer = column_.type == ParquetType::i32 || column_.type == ParquetType::i64;
    if (encoding == plain) {
      fine = read_plain(column_, page, count, values_);
    } else if (encoding == dictionary || encoding == plain_dictionary) {
      return look_up(start, page, count);
    } else if (encoding == run_length && column_.type == ParquetType::boolean && page.size() >= 4) {
      page.remove_prefix(4);  // their length
      std::vector<uint32_t> bits;
      fine = read_runs(page, 1, count, bits);
      values_.integers.assign(bits.begin(), bits.end());
    } else if (encoding == delta_integers && integer) {
      fine = read_deltas(page, count, values_.integers);
      for (int64_t& value : values_.integers) {
        if (column_.type == ParquetType::i32)
          value = column_.is_unsigned ? int64_t{static_cast<uint32_t>(value)} : int64_t{static_cast<int32_t>(value)};
      }
    } else if (encoding == delta_lengths && column_.text()) {
      fine = read_delta_lengths(page, count, values_.text);
    } else if (encoding == delta_text && column_.text()) {
      fine = read_delta_texts(page, count, values_);
    } else if (encoding == split && !column_.text() && column_.type != ParquetType::boolean) {
      fine = read_split(column_, page, count, values_);
    } else {
      return wrong(start, cat("encoding ", encoding, " is not one of its type"));
    }
    return fine && values_.size() == count ? Status() : wrong(start, "its values are cut off or damaged");
  }

  Status look_up(uint64_t start, Bytes page, size_t count) {
    if (count == 0) return {};
    if (page.empty()) return wrong(start, "it is empty");
    const int bits = static_cast<unsigned char>(page.front());
    page.remove_prefix(1);
    if (!read_runs(page, bits, count, places_)) return wrong(start, "its values are cut off or damaged");
    const size_t known = dictionary_.size();
    for (const uint32_t place : places_) {
      if (place >= known) return wrong(start, cat("entry ", place, " of a dictionary of ", known));
      if (column_.text()) {
        values_.text.push_back(dictionary_.text[place]);
      } else if (is_real(column_)) {
        values_.real.push_back(dictionary_.real[place]);
      } else {
        values_.integers.push_back(dictionary_.integers[place]);
      }
    }
    return {};
  }

  // To whoever takes them, who may find fault with a value and says where it stands.
  Status deliver() {
    size_t next = 0;
    for (const uint32_t level : levels_) {
      Status status;
      if (level != 1) {
        status = sink_.missing();
      } else if (column_.text()) {
        status = sink_.text(values_.text[next++]);
      } else if (is_real(column_)) {
        status = sink_.real(values_.real[next++]);
      } else if (column_.unit != 1) {
        status = sink_.real(static_cast<double>(values_.integers[next++]) * column_.unit);
      } else {
        const int64_t value = values_.integers[next++];
        const bool large = column_.is_unsigned && column_.type == ParquetType::i64 && value < 0;  // beyond 63 bits
        status = large ? sink_.real(static_cast<double>(static_cast<uint64_t>(value))) : sink_.integer(value);
      }
      EPL_TRY(status);
      ++done_;
    }
    return {};
  }

  const FileReader& file_;
  const ParquetColumn& column_;
  const ParquetChunk& chunk_;
  Codecs& codecs_;
  const ParquetSink& sink_;
  std::string_view codec_;
  int64_t done_ = 0;
  Values dictionary_, values_;
  std::vector<char> dictionary_page_;
  std::vector<uint32_t> levels_, places_;
};

}  // namespace

Status read_parquet_chunk(const FileReader& file, const ParquetColumn& column, const ParquetChunk& chunk, int64_t rows,
                          Codecs& codecs, const ParquetSink& sink) {
  return ChunkReader(file, column, chunk, codecs, sink).run(rows);
}

}  // namespace epl
