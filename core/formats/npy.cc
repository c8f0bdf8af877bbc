#include "core/formats/npy.h"

#include <charconv>
#include <cstring>
#include <optional>

#include "core/base/shown.h"

namespace epl {
namespace {

constexpr uint64_t max_npy_header = 1 << 20;

Status damaged_npy(const std::string& name, std::string message) {
  return Status(Code::invalid_argument, cat("not a .npy array: ", message), name);
}

// The header's line, a Python dictionary of three entries; nothing else of Python is understood.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}
  bool take(char c) {
    skip();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) {
    skip();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  std::optional<std::string> quoted_text() {
    skip();
    if (text_.empty() || (text_.front() != '\'' && text_.front() != '"')) return std::nullopt;
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string out(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return out;
  }
  std::optional<int64_t> size() {
    skip();
    int64_t value = 0;
    const auto [stop, failure] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    if (failure != std::errc() || value < 0) return std::nullopt;
    text_.remove_prefix(static_cast<size_t>(stop - text_.data()));
    take('L');  // Python 2 wrote long numbers so
    return value;
  }
  bool at_end() {
    skip();
    return text_.empty();
  }
  std::string_view rest() const { return text_; }

 private:
  void skip() {
    while (!text_.empty() &&
           (text_.front() == ' ' || text_.front() == '\t' || text_.front() == '\n' || text_.front() == '\r'))
      text_.remove_prefix(1);
  }
  std::string_view text_;
};

// "<f4": the order of bytes, the kind and the width.
Status read_dtype(const std::string& name, const std::string& descr, NpyHeader& header) {
  static constexpr std::pair<std::string_view, DType> known[] = {
      {"f4", DType::f32}, {"f8", DType::f64}, {"f2", DType::f16}, {"i1", DType::i8},
      {"i2", DType::i16}, {"i4", DType::i32}, {"i8", DType::i64}, {"u1", DType::u8},
      {"u2", DType::u16}, {"u4", DType::u32}, {"u8", DType::u64}, {"b1", DType::boolean}};
  if (descr.size() >= 2 && std::string_view("<>=|").find(descr[0]) != std::string_view::npos) {
    for (const auto& [text, dtype] : known) {
      if (descr.substr(1) != text) continue;
      header.type.dtype = dtype;
      header.swapped = descr[0] == '>' && dtype_bytes(dtype) > 1;
      return {};
    }
  }
  std::string why = "is not an element type that EPL has";
  if (descr.find('O') != std::string::npos) why = "is Python objects, which are not read; save numbers";
  if (descr.find('U') != std::string::npos || descr.find('S') != std::string::npos)
    why = "is texts; save their numbers: numpy.unique(texts, return_inverse=True)[1]";
  if (descr.find('c') != std::string::npos) why = "is complex numbers; save real and imaginary parts";
  return Status(Code::unsupported, cat("the array's element type ", shown(descr, 40), " ", why), name);
}

Status read_shape(const std::string& name, Literal& in, Shape& shape) {
  if (!in.take('(')) return damaged_npy(name, cat("its shape is not a tuple: ", shown(in.rest(), 60)));
  int64_t elements = 1;
  while (!in.take(')')) {
    const std::optional<int64_t> size = in.size();
    if (!size || shape.size() == 32)
      return damaged_npy(name, cat("its shape has an entry that is not a size: ", shown(in.rest(), 60)));
    if (*size > 0 && elements > (int64_t{1} << 58) / *size) return damaged_npy(name, "its shape has impossible sizes");
    if (*size > 0) elements *= *size;  // a zero does not make the others possible
    shape.push_back(*size);
    if (!in.take(',')) {
      if (!in.take(')')) return damaged_npy(name, cat("its shape does not end: ", shown(in.rest(), 60)));
      return {};
    }
  }
  return {};
}

Status read_literal(const std::string& name, std::string_view text, NpyHeader& header) {
  Literal in(text);
  bool descr = false, order = false, shape = false;
  if (!in.take('{')) return damaged_npy(name, cat("its header is not a dictionary: ", shown(text, 60)));
  while (!in.take('}')) {
    const std::optional<std::string> key = in.quoted_text();
    if (!key || !in.take(':')) return damaged_npy(name, cat("its header has no key here: ", shown(in.rest(), 60)));
    if (*key == "descr" && !descr) {
      descr = true;
      const std::optional<std::string> value = in.quoted_text();
      if (!value)
        return Status(Code::unsupported,
                      "the array's elements are records of several fields; save one array for each field, "
                      "numpy.savez(FILE, x=..., target=...)",
                      name);
      EPL_TRY(read_dtype(name, *value, header));
    } else if (*key == "fortran_order" && !order) {
      order = true;
      header.column_major = in.take("True");
      if (!header.column_major && !in.take("False"))
        return damaged_npy(name, cat("fortran_order is neither True nor False: ", shown(in.rest(), 60)));
    } else if (*key == "shape" && !shape) {
      shape = true;
      EPL_TRY(read_shape(name, in, header.type.shape));
    } else {
      return damaged_npy(name, cat("its header has the key ", shown(*key, 40), " unexpectedly"));
    }
    if (!in.take(',')) {
      if (!in.take('}')) return damaged_npy(name, cat("its header does not end: ", shown(in.rest(), 60)));
      break;
    }
  }
  if (!in.at_end()) return damaged_npy(name, cat("behind its header stands ", shown(in.rest(), 60)));
  if (!descr || !order || !shape) return damaged_npy(name, "its header lacks descr, fortran_order or shape");
  return {};
}

}  // namespace

Result<NpyHeader> read_npy_header(const std::string& name, uint64_t size, const ReadBytes& read) {
  unsigned char start[12] = {};
  if (size < 10) return damaged_npy(name, cat("it has ", size, " bytes"));
  EPL_TRY(read(0, start, static_cast<size_t>(std::min<uint64_t>(size, sizeof start))));
  if (std::memcmp(start, "\x93NUMPY", 6) != 0) return damaged_npy(name, "it does not begin with \\x93NUMPY");
  const int version = start[6];
  if (version < 1 || version > 3 || start[7] != 0)
    return Status(Code::unsupported,
                  cat("version ", version, ".", int{start[7]}, " of the npy format; 1.0 to 3.0 are read"), name);
  const uint64_t front = version == 1 ? 10 : 12;
  uint64_t length = start[8] | uint64_t{start[9]} << 8;
  if (version > 1) length |= uint64_t{start[10]} << 16 | uint64_t{start[11]} << 24;
  if (size < front || length > size - front || length > max_npy_header)
    return damaged_npy(name, cat("a header of ", length, " bytes in ", size, "; is it truncated?"));
  std::string text(length, '\0');
  EPL_TRY(read(front, text.data(), text.size()));
  NpyHeader header;
  EPL_TRY(read_literal(name, text, header));
  header.data = front + length;
  const auto wanted = static_cast<uint64_t>(header.type.bytes());
  if (size - header.data != wanted) {
    return damaged_npy(name, cat(header.type.text(), " takes ", wanted, " bytes, there are ", size - header.data,
                                 size - header.data < wanted ? "; is it truncated?" : ""));
  }
  return header;
}

}  // namespace epl
