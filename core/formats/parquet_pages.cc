// The pages of a Parquet column: levels, which say where a value is missing, and values.
#include <algorithm>

#include "core/base/shown.h"
#include "core/formats/parquet.h"
#include "core/formats/parquet_values.h"
#include "core/formats/thrift.h"

namespace epl {
namespace parquet {
namespace {

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
    if (!read_runs(page, bits, count, entries_)) return wrong(start, "its values are cut off or damaged");
    const size_t known = dictionary_.size();
    for (const uint32_t entry : entries_) {
      if (entry >= known) return wrong(start, cat("entry ", entry, " of a dictionary of ", known));
      if (column_.text()) {
        values_.text.push_back(dictionary_.text[entry]);
      } else if (is_real(column_)) {
        values_.real.push_back(dictionary_.real[entry]);
      } else {
        values_.integers.push_back(dictionary_.integers[entry]);
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
  std::vector<uint32_t> levels_, entries_;
};

}  // namespace
}  // namespace parquet

Status read_parquet_chunk(const FileReader& file, const ParquetColumn& column, const ParquetChunk& chunk, int64_t rows,
                          Codecs& codecs, const ParquetSink& sink) {
  return parquet::ChunkReader(file, column, chunk, codecs, sink).run(rows);
}

}  // namespace epl
