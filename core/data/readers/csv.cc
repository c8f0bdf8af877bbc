// Tables of numbers (RFC 4180): a head with the names of the columns, then a sample a line. Read whole when opened.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/base/file.h"
#include "core/data/reader.h"

namespace epl {
namespace {

// The cells of a file, one after the other.
class Cells {
 public:
  Cells(std::string_view text, char separator, const std::string& path) : text_(text), separator_(separator), path_(path) {
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;   // the mark that spreadsheets write in front of UTF-8
  }
  // Goes to the next line that holds something; false at the end of the file.
  bool next_line() {
    while (at_ < text_.size()) {
      ++line_;
      const size_t end = std::min(text_.find('\n', at_), text_.size());
      rest_ = text_.substr(at_, end - at_);
      begin_ = at_;
      at_ = end + (end < text_.size());
      if (rest_.ends_with('\r')) rest_.remove_suffix(1);
      column_ = 0;
      more_ = true;
      if (!trimmed(rest_).empty()) return true;
    }
    return false;
  }
  bool more() const { return more_; }   // of this line
  // The next cell of the line, without the quotes around it.
  Result<std::string> next() {
    ++column_;
    cell_ = begin_;
    std::string out;
    size_t length = std::min(rest_.find(separator_), rest_.size());
    if (trimmed(rest_).starts_with('"')) {
      std::string_view inner = trimmed(rest_).substr(1);
      while (true) {
        const size_t quote = inner.find('"');
        if (quote == std::string_view::npos) return wrong("a quote that the line does not close");
        out += inner.substr(0, quote);
        inner.remove_prefix(quote + 1);
        if (!inner.starts_with('"')) break;
        out += '"';
        inner.remove_prefix(1);
      }
      const std::string_view after = trimmed(inner);
      if (!after.empty() && after[0] != separator_) return wrong("text behind a closed quote");
      length = after.empty() ? rest_.size() : static_cast<size_t>(after.data() - rest_.data());
    } else {
      out = trimmed(rest_.substr(0, length));
    }
    more_ = length < rest_.size();
    begin_ += length + more_;
    rest_.remove_prefix(length + more_);
    return out;
  }
  // An error in the cell that was read last.
  Status wrong(std::string_view what) const {
    return Status(Code::data_loss, cat("line ", line_, ", column ", column_, " (byte ", static_cast<int64_t>(cell_), "): ", what), path_);
  }

 private:
  bool space(char c) const { return (c == ' ' || c == '\t') && c != separator_; }
  std::string_view trimmed(std::string_view text) const {
    while (!text.empty() && space(text.front())) text.remove_prefix(1);
    while (!text.empty() && space(text.back())) text.remove_suffix(1);
    return text;
  }
  std::string_view text_, rest_;
  char separator_;
  const std::string& path_;
  size_t at_ = 0, begin_ = 0, cell_ = 0;   // bytes of the file: the next line, the next cell, the last cell
  int64_t line_ = 0, column_ = 0;
  bool more_ = false;
};

template <class T>
Result<T> number_in(const Cells& cells, const std::string& cell, std::string_view what) {
  T value{};
  const char* end = cell.data() + cell.size();
  const auto [stop, failure] = std::from_chars(cell.data(), end, value);
  bool right = failure == std::errc() && stop == end;
  if constexpr (std::is_floating_point_v<T>) right = right && std::isfinite(value);
  if (!right) return cells.wrong(cat(quoted(excerpt(cell, 40)), " is no ", what));
  return value;
}

class CsvReader : public Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(const std::string& path, const Attributes& options) {
    auto reader = std::make_unique<CsvReader>();
    EPL_ASSIGN(auto file, FileReader::open(path));
    EPL_ASSIGN(std::vector<std::byte> text, file->read_all());
    const std::string& separator = options.text("separator");
    if (separator.size() != 1 || separator == "\"" || separator == "\n") return invalid("option separator of reader csv is ", quoted(separator), "; it is one character");
    Cells cells({reinterpret_cast<const char*>(text.data()), text.size()}, separator[0], path);
    reader->classes_ = options.flag("classes");
    EPL_TRY(reader->read_head(cells, options.text("target"), path));
    while (cells.next_line()) EPL_TRY(reader->read_line(cells));
    if (reader->samples_ == 0) return Status(Code::data_loss, "the table has no line below its head", path);
    reader->fields_ = {{options.text("input"), {DType::f32, {reader->columns_ - 1}}},
                       {"target", reader->classes_ ? TensorType{DType::i64, {}} : TensorType{DType::f32, {1}}}};
    return std::unique_ptr<Reader>(std::move(reader));
  }

  const std::vector<std::pair<std::string, TensorType>>& fields() const override { return fields_; }
  int64_t samples() const override { return samples_; }
  Status read(int64_t index, int field, void* target) const override {
    const size_t row = static_cast<size_t>(index), width = static_cast<size_t>(columns_ - 1);
    if (field == 0) {
      std::memcpy(target, inputs_.data() + row * width, width * sizeof(float));
    } else if (classes_) {
      std::memcpy(target, labels_.data() + row, sizeof(int64_t));
    } else {
      std::memcpy(target, targets_.data() + row, sizeof(float));
    }
    return {};
  }

 private:
  Status read_head(Cells& cells, const std::string& target, const std::string& path) {
    std::vector<std::string> names;
    if (!cells.next_line()) return Status(Code::data_loss, "the table is empty", path);
    while (cells.more()) {
      EPL_ASSIGN(std::string name, cells.next());
      names.push_back(std::move(name));
    }
    columns_ = static_cast<int64_t>(names.size());
    if (columns_ < 2) return cells.wrong("a table needs two columns, one of them the target; is the option separator right?");
    const auto found = target.empty() ? names.end() - 1 : std::ranges::find(names, target);
    if (found == names.end()) {
      const std::string near = nearest(target, names);
      return Status(Code::not_found, cat("no column ", quoted(target), near.empty() ? "" : cat("; did you mean ", near, "?")), path);
    }
    target_ = found - names.begin();
    return {};
  }

  Status read_line(Cells& cells) {
    int64_t column = 0;
    for (; cells.more(); ++column) {
      EPL_ASSIGN(std::string cell, cells.next());
      if (column == columns_) return cells.wrong(cat("a cell too many; the head names ", columns_, " columns"));
      if (column == target_ && classes_) {
        EPL_ASSIGN(int64_t label, number_in<int64_t>(cells, cell, "whole number, as the option classes wants"));
        labels_.push_back(label);
      } else {
        EPL_ASSIGN(float value, number_in<float>(cells, cell, "finite number"));
        (column == target_ ? targets_ : inputs_).push_back(value);
      }
    }
    if (column < columns_) return cells.wrong(cat("the line ends after ", column, " cells; the head names ", columns_, " columns"));
    ++samples_;
    return {};
  }

  int64_t columns_ = 0, target_ = 0, samples_ = 0;
  bool classes_ = false;
  std::vector<float> inputs_, targets_;
  std::vector<int64_t> labels_;
  std::vector<std::pair<std::string, TensorType>> fields_;
};

}  // namespace

EPL_READER(csv) {
  return {.doc = "A table of numbers with the columns' names in its first line. The column `target` (the last) is the field target: f32[1], or "
                 "with `classes` an i64; the others, in order, are the field named by `input`.",
          .options = {{"target", std::string()}, {"classes", false}, {"input", std::string("x")}, {"separator", std::string(",")}},
          .suffixes = {".csv"},
          .open = CsvReader::open};
}

}  // namespace epl
