// Parquet tables, read in full when opened: the columns that are used.
#include "core/formats/parquet.h"

#include <cmath>

#include "core/base/shown.h"
#include "core/data/table.h"

namespace epl {
namespace {

// Puts the values of a column into a table.
class Filler {
 public:
  Filler(Table& table, size_t column, const std::string& name, const std::string& path)
      : table_(table), column_(column), kind_(table.kinds()[column]), name_(name), path_(path) {}

  ParquetSink sink() {
    return {.missing = [this] { return said(table_.set_missing(row_, column_, "null")); },
            .integer = [this](int64_t value) { return said(set_integer(value)); },
            .real = [this](double value) { return said(set_real(value)); },
            .text =
                [this](std::string_view value) {
                  return said(kind_ == CellKind::text ? table_.set_text(row_, column_, value)
                                                      : invalid(shown(value, 40), " is not a number"));
                }};
  }

 private:
  // Goes to the next row, or says which one is wrong.
  Status said(Status status) {
    ++row_;
    return status.ok() ? status
                       : Status(Code::invalid_argument,
                                cat("row ", row_, ", column ", shown(name_, 60), ": ", status.message()), path_);
  }
  Status set_integer(int64_t value) {
    if (kind_ == CellKind::text) return table_.set_text(row_, column_, std::to_string(value));
    if (kind_ == CellKind::real) {
      table_.set_real(row_, column_, static_cast<double>(value));
    } else {
      table_.set_integer(row_, column_, value);
    }
    return {};
  }
  Status set_real(double value) {
    if (std::isnan(value)) return table_.set_missing(row_, column_, "nan");
    if (kind_ == CellKind::text) return table_.set_text(row_, column_, number_text(value));
    if (kind_ == CellKind::integer) {
      if (value != std::floor(value) || std::fabs(value) > 9007199254740992.0)
        return invalid(value, " is not an integer, as a class is");
      return set_integer(static_cast<int64_t>(value));
    }
    if (!std::isfinite(static_cast<float>(value)))
      return invalid(value, std::isfinite(value) ? " is too large for a 32-bit number" : " is not a finite number");
    table_.set_real(row_, column_, value);
    return {};
  }

  Table& table_;
  const size_t column_;
  const CellKind kind_;
  const std::string &name_, &path_;
  int64_t row_ = 0;
};

Result<std::unique_ptr<Reader>> open_parquet(const ReaderRequest& request) {
  EPL_ASSIGN(const std::shared_ptr<const FileReader> file, FileReader::open(request.path));
  EPL_ASSIGN(const ParquetFile parquet, read_parquet(*file));
  std::vector<std::string> names;
  std::vector<bool> texts;
  for (const ParquetColumn& column : parquet.columns) {
    names.push_back(column.name);
    texts.push_back(column.text());
  }
  EPL_ASSIGN(std::unique_ptr<Table> table, Table::create(request, names, texts));
  for (size_t c = 0; c < names.size(); ++c) {
    const std::string& why = parquet.columns[c].unreadable;
    if (table->kinds()[c] == CellKind::unused || why.empty()) continue;
    return Status(
        Code::unsupported,
        cat("column ", shown(names[c], 60), " ", why, ". Or leave it out by {\"ignore\": ", shown(names[c]), "}"),
        request.path);
  }
  table->add_rows(parquet.rows);
  Codecs codecs(request.packs);
  for (size_t c = 0; c < names.size(); ++c) {
    if (table->kinds()[c] == CellKind::unused) continue;
    Filler filler(*table, c, names[c], request.path);
    const ParquetSink sink = filler.sink();
    for (const ParquetFile::Group& group : parquet.groups) {
      EPL_TRY(request.stop.check());
      EPL_TRY(read_parquet_chunk(*file, parquet.columns[c], group.chunks[c], group.rows, codecs, sink));
    }
  }
  return Table::finish(std::move(table));
}

}  // namespace

EPL_READER(parquet) {
  return {.doc =
              "A Parquet table of numbers, truths and texts; the options are those of csv. Pages packed with snappy or "
              "zstd need the pack `parquet` (docs/packs.md).",
          .options = Table::options(),
          .suffixes = {".parquet", ".pq"},
          .recognises = [](std::string_view head) { return head.starts_with("PAR1") || head.starts_with("PARE"); },
          .open = open_parquet};
}

}  // namespace epl
