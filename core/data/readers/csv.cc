// Tables as text (RFC 4180): a head with the names of the columns, then a sample a line. Read in full when opened.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "core/base/file.h"
#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/data/encoding.h"
#include "core/data/table.h"

namespace epl {
namespace {

// Unicode in units of two or four bytes has a zero byte at the same position of nearly every unit, as long as most
// letters are Latin ones. Digits, separators and line ends are such in every language.
std::string wide_encoding(std::string_view bytes) {
  constexpr size_t enough = 4096;
  const std::string_view head = bytes.substr(0, enough);
  std::array<size_t, 4> zeros{};
  for (size_t i = 0; i < head.size(); ++i) zeros[i % 4] += head[i] == '\0';
  const size_t units = head.size() / 4;
  if (units == 0) return "";
  const auto mostly = [&](size_t at) { return zeros[at] * 10 >= units * 4; };
  const auto never = [&](size_t at) { return zeros[at] * 20 <= units; };
  if (never(0) && mostly(1) && mostly(2) && mostly(3)) return "UTF-32LE";
  if (mostly(0) && mostly(1) && mostly(2) && never(3)) return "UTF-32BE";
  if (never(0) && mostly(1) && never(2) && mostly(3)) return "UTF-16LE";
  if (mostly(0) && never(1) && mostly(2) && never(3)) return "UTF-16BE";
  return "";
}

// How a file begins that is no text, and what it then is.
struct Beginning {
  std::string_view bytes, what;
};
constexpr Beginning archives[] = {
    {{"PK\x03\x04", 4}, "a zip archive, as workbooks of spreadsheets are; save the table as CSV in UTF-8"},
    {{"\xd0\xcf\x11\xe0", 4}, "a workbook of a spreadsheet; save the table as CSV in UTF-8"},
    {{"\x1f\x8b", 2}, "compressed by gzip; unpack it, as by gunzip"},
    {{"\x28\xb5\x2f\xfd", 4}, "compressed by zstd; unpack it, as by unzstd"},
    {{"BZh", 3}, "compressed by bzip2; unpack it, as by bunzip2"},
    {{"\xfd"
      "7zXZ",
      5},
     "compressed by xz; unpack it, as by unxz"}};

// Why this is no text in UTF-8 with lines, and what to do: UTF-16 and UTF-32 with and without their marks, an archive,
// bytes that are zero, lines that end in carriage returns alone. Empty where it may be one.
std::string not_text(std::string_view bytes) {
  if (const std::string_view marked = marked_encoding(bytes); !marked.empty()) return convert_from(marked);
  for (const Beginning& archive : archives) {
    if (bytes.starts_with(archive.bytes)) return cat("the file is ", archive.what);
  }
  const size_t zero = bytes.find('\0');
  if (zero != std::string_view::npos) {
    if (const std::string wide = wide_encoding(bytes); !wide.empty()) return convert_from(wide);
    const auto line = 1 + std::ranges::count(bytes.substr(0, zero), '\n');
    return cat("line ", line, " (byte ", zero,
               ") has a byte that is zero, which no text has; the file is damaged, or is "
               "not a text");
  }
  if (bytes.find('\n') == std::string_view::npos && bytes.find('\r') != std::string_view::npos)
    return "the lines of the file end in carriage returns alone, as on old Macs; convert them, as by: tr '\\r' '\\n'";
  return "";
}

// The cells of a file, one after the other.
class CsvCells {
 public:
  CsvCells(std::string_view text, char separator, const std::string& path)
      : text_(text), separator_(separator), path_(&path) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;  // the mark that spreadsheets write in front of UTF-8
  }
  // Names for messages.
  void name_columns(const std::vector<std::string>* names) { names_ = names; }
  // Goes to the next line that holds something; false at the end of the file.
  bool next_line() {
    while (at_ < text_.size()) {
      size_t i = at_;
      while (i < text_.size() && (space(text_[i]) || text_[i] == '\r')) ++i;
      if (i == text_.size()) break;
      if (text_[i] != '\n') {
        column_ = 0;
        more_ = true;
        return true;
      }
      at_ = i + 1;
      ++line_;
    }
    return false;
  }
  bool more() const { return more_; }  // of this line
  // The next cell of the line, without the quotes around it. Valid until the next call.
  Status next(std::string_view& cell) {
    ++column_;
    cell_ = at_;
    cell_line_ = line_;
    size_t i = at_;
    while (i < text_.size() && space(text_[i])) ++i;
    if (i < text_.size() && text_[i] == '"') return next_quoted(i + 1, cell);
    size_t end = i;
    while (end < text_.size() && text_[end] != separator_ && text_[end] != '\n') ++end;
    cell = text_.substr(i, end - i);
    while (!cell.empty() &&
           (space(cell.back()) || (cell.back() == '\r' && (end == text_.size() || text_[end] == '\n'))))
      cell.remove_suffix(1);
    if (cell.find('\r') != std::string_view::npos) {
      return wrong(
          "a carriage return alone, which ends a line on old Macs; convert it to a line feed, or put quotes "
          "around the text that it is in");
    }
    leave(end);
    return {};
  }
  // An error in the cell that was read last.
  Status wrong(std::string_view what) const {
    const auto column = static_cast<size_t>(column_);
    const std::string name = names_ && column >= 1 && column <= names_->size() && !(*names_)[column - 1].empty()
                                 ? cat(" ", shown((*names_)[column - 1], 60))
                                 : "";
    return Status(
        Code::invalid_argument,
        cat("line ", cell_line_, ", column ", column_, name, " (byte ", static_cast<int64_t>(cell_), "): ", what),
        *path_);
  }

 private:
  bool space(char c) const { return (c == ' ' || c == '\t') && c != separator_; }
  // Goes behind the cell, which ends at a separator, at a line's end or with the file.
  void leave(size_t end) {
    more_ = end < text_.size() && text_[end] == separator_;
    if (end < text_.size() && text_[end] == '\n') ++line_;
    at_ = std::min(end + 1, text_.size());
  }
  // From behind the opening quote. Lines may end inside.
  Status next_quoted(size_t i, std::string_view& cell) {
    unquoted_.clear();
    while (true) {
      const size_t quote = text_.find('"', i);
      if (quote == std::string_view::npos) return wrong("a quote that is never closed");
      const std::string_view part = text_.substr(i, quote - i);
      line_ += std::ranges::count(part, '\n');
      unquoted_ += part;
      i = quote + 1;
      if (i == text_.size() || text_[i] != '"') break;
      unquoted_ += '"';
      ++i;
    }
    while (i < text_.size() && space(text_[i])) ++i;
    if (i < text_.size() && text_[i] == '\r' && (i + 1 == text_.size() || text_[i + 1] == '\n')) ++i;
    if (i < text_.size() && text_[i] != separator_ && text_[i] != '\n') return wrong("text behind a closed quote");
    leave(i);
    cell = unquoted_;
    return {};
  }

  std::string_view text_;
  char separator_;
  const std::string* path_;
  const std::vector<std::string>* names_ = nullptr;
  std::string unquoted_;
  size_t at_ = 0, cell_ = 0;  // bytes of the file: the next cell, the last one
  int64_t line_ = 1, cell_line_ = 1, column_ = 0;
  bool more_ = false;
};

bool iequals(std::string_view a, std::string_view small) {
  return std::ranges::equal(a, small, [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x - 'A' + 'a' : x) == y; });
}

// A number as people and programs write it: "+2", "1e-60", "True". Nothing for what is none; infinities are.
std::optional<double> number_in(std::string_view cell) {
  if (iequals(cell, "true")) return 1;
  if (iequals(cell, "false")) return 0;
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  double value = 0;
  const auto [stop, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (cell.empty() || stop != cell.data() + cell.size() || failure == std::errc::invalid_argument) return std::nullopt;
  if (failure == std::errc::result_out_of_range) {
    // Too small is zero, too large infinite; a negative exponent tells them apart where the mantissa is as short as
    // any.
    const size_t exponent = cell.find_first_of("eE");
    const bool small = exponent != std::string_view::npos ? cell.substr(exponent + 1).starts_with('-')
                                                          : cell.find_first_of("123456789") > cell.find('.');
    return small ? 0.0 : HUGE_VAL;
  }
  return value;
}

std::optional<int64_t> integer_in(std::string_view cell) {
  if (cell.starts_with('+') && !cell.starts_with("+-")) cell.remove_prefix(1);
  int64_t value = 0;
  const auto [stop, failure] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (failure == std::errc() && stop == cell.data() + cell.size()) return value;
  const std::optional<double> real = number_in(cell);  // "0.0", as pandas writes a column that once had a gap
  if (!real || *real != std::floor(*real) || std::fabs(*real) > 9007199254740992.0) return std::nullopt;
  return static_cast<int64_t>(*real);
}

class Csv {
 public:
  Csv(const ReaderRequest& request, char separator) : request_(request), separator_(separator) {}

  Result<std::unique_ptr<Reader>> read() {
    EPL_ASSIGN(std::shared_ptr<const FileReader> file, FileReader::open(request_.path));
    EPL_ASSIGN(const std::vector<std::byte> bytes, file->read_all());
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (const std::string why = not_text(text); !why.empty()) return Status(Code::invalid_argument, why, request_.path);
    CsvCells cells(text, separator_, request_.path);
    EPL_TRY(read_head(cells));
    cells.name_columns(&names_);
    EPL_ASSIGN(const std::vector<bool> texts, find_texts(cells));
    EPL_ASSIGN(table_, Table::create(request_, names_, texts));
    while (cells.next_line()) {
      if (table_->rows() % rows_between_stops == 0) EPL_TRY(request_.stop.check());
      EPL_TRY(read_line(cells));
    }
    return Table::finish(std::move(table_));
  }

 private:
  // The names of the columns; where there are none the cells are where they were, and columns are called by their
  // numbers.
  Status read_head(CsvCells& cells) {
    const std::string& header = request_.options.text("header");
    if (!header.empty() && header != "true" && header != "false")
      return invalid("option header of a table is ", shown_plain(header, 40), "; true or false is expected");
    const CsvCells start = cells;
    if (!cells.next_line()) return Status(Code::invalid_argument, "the table is empty", request_.path);
    bool numbers = true;
    while (cells.more()) {
      std::string_view name;
      EPL_TRY(cells.next(name));
      if (header != "false" && !is_utf8(name)) return cells.wrong(not_utf8(name));
      numbers = numbers && number_in(name);
      names_.emplace_back(name);
    }
    if (header == "false") {
      for (size_t i = 0; i < names_.size(); ++i) names_[i] = std::to_string(i + 1);
      cells = start;
    } else if (header.empty() && numbers) {
      return Status(Code::invalid_argument,
                    cat("the first line has no names but numbers (", short_list(names_),
                        "): say {\"header\": false} if it is a sample like the others, "
                        "{\"header\": true} if the columns are really called so"),
                    request_.path);
    }
    if (names_.size() == 1) {
      for (const char other : {';', '\t', ','}) {
        if (other != separator_ && names_[0].find(other) != std::string::npos) {
          const std::string character = other == '\t' ? "\"\\t\"" : quoted(std::string(1, other));
          return cells.wrong(
              cat("a table needs two columns, one of them the target; this one seems to be separated by ",
                  other == '\t' ? "tabs" : character, ": {\"separator\": ", character, "}"));
        }
      }
    }
    return {};
  }

  // A column holds texts if the first value in it is not a number.
  Result<std::vector<bool>> find_texts(CsvCells cells) const {
    std::vector<bool> texts(names_.size()), known(names_.size());
    size_t unknown = names_.size();
    while (unknown > 0 && cells.next_line()) {
      for (size_t i = 0; cells.more(); ++i) {
        std::string_view cell;
        EPL_TRY(cells.next(cell));
        if (i >= known.size() || known[i] || is_missing(cell)) continue;
        known[i] = true;
        texts[i] = !number_in(cell);
        --unknown;
      }
    }
    return texts;
  }

  Status read_line(CsvCells& cells) {
    const std::vector<CellKind>& kinds = table_->kinds();
    const int64_t row = table_->rows();
    table_->add_rows(1);
    size_t column = 0;
    for (; cells.more(); ++column) {
      std::string_view cell;
      EPL_TRY(cells.next(cell));
      if (column == kinds.size()) return cells.wrong(cat("a cell too many; the head names ", kinds.size(), " columns"));
      if (kinds[column] == CellKind::unused) continue;
      Status status = is_missing(cell) ? table_->set_missing(row, column, cell) : set(row, column, kinds[column], cell);
      if (!status.ok()) return cells.wrong(status.message());
    }
    if (column < kinds.size())
      return cells.wrong(cat("the line ends after ", column, " cells; the head names ", kinds.size(), " columns"));
    return {};
  }

  Status set(int64_t row, size_t column, CellKind kind, std::string_view cell) {
    if (kind == CellKind::text) return table_->set_text(row, column, cell);
    if (kind == CellKind::integer) {
      const std::optional<int64_t> value = integer_in(cell);
      if (!value)
        return invalid(shown(cell, 40), " is not an integer",
                       number_in(cell) ? ", as a class is" : "; {\"classes\": \"names\"} takes texts as classes");
      table_->set_integer(row, column, *value);
      return {};
    }
    const std::optional<double> value = number_in(cell);
    if (!value) return invalid(shown(cell, 40), " is not a number");
    if (!std::isfinite(static_cast<float>(*value)))
      return invalid(shown(cell, 40),
                     std::isfinite(*value) ? " is too large for a 32-bit number" : " is not a finite number");
    table_->set_real(row, column, *value);
    return {};
  }

  static constexpr int64_t rows_between_stops = 256;

  const ReaderRequest& request_;
  const char separator_;
  std::vector<std::string> names_;
  std::unique_ptr<Table> table_;
};

Result<std::unique_ptr<Reader>> open_csv(const ReaderRequest& request) {
  const std::string& separator = request.options.text("separator");
  if (separator.size() != 1 || separator == "\"" || separator == "\n" || separator == "\r")
    return invalid("option separator of a table is ", shown(separator), "; it is one character");
  return Csv(request, separator[0]).read();
}

std::vector<Option> options(const char* separator) {
  std::vector<Option> all = Table::options();
  all.push_back(
      {.name = "header",
       .value = std::string(),
       .doc = "whether the first line has the names of the columns; without it they are called `1`, `2`, ... Not "
              "given: `true`, and an error where that line is all numbers",
       .json = true});
  all.push_back({.name = "separator", .value = std::string(separator), .doc = "the character between two cells"});
  return all;
}

}  // namespace

EPL_READER(csv) {
  return {.doc = "A table as text with the columns' names in its first line and a sample in each line below.",
          .options = options(","),
          .suffixes = {".csv"},
          .open = open_csv};
}

EPL_READER(tsv) {
  return {.doc = "The same with tabs between the cells.",
          .options = options("\t"),
          .suffixes = {".tsv", ".tab"},
          .open = open_csv};
}

}  // namespace epl
