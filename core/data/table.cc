#include "core/data/table.h"

#include <algorithm>
#include <cstring>

#include "core/base/shown.h"
#include "core/base/suggestion.h"
#include "core/data/table_layout.h"

namespace epl {
namespace {

// The cells of a field, a row after the other. One of the two has them.
struct Cells {
  size_t width = 0;
  std::vector<float> reals;
  std::vector<int64_t> integers;
};

struct Column {
  size_t field = 0, position = 0;                       // where its cells go
  std::map<std::string, int64_t, std::less<>> numbers;  // of the texts, in the order in which they came
  bool closed = false;                                  // the names were given: others are errors
};

// A cell without a value, which gets the mean of its column.
struct Gap {
  int64_t row = 0;
  size_t column = 0;
};

}  // namespace

struct Table::State {
  std::string path;
  std::vector<std::string> names;
  TableLayout layout;
  std::vector<Column> columns;
  std::vector<Cells> cells;  // of each field
  std::vector<Gap> gaps;
  std::vector<bool> dropped;
  std::vector<int64_t> kept;  // which rows of the file those that are left are; empty: all of them
  int64_t rows = 0;

  template <class T> T& at(std::vector<T>& values, int64_t row, size_t column) {
    const Column& c = columns[column];
    return values[static_cast<size_t>(row) * cells[c.field].width + c.position];
  }
  void sort_names();
  void leave_out_dropped();
};

namespace {

using FieldTypes = std::vector<std::pair<std::string, TensorType>>;

class TableReader : public Reader {
 public:
  TableReader(std::string path, TableLayout layout, std::vector<std::string> names, std::vector<Cells> cells,
              std::vector<ClassNames> classes, std::vector<Gap> gaps, std::vector<int64_t> kept, int64_t rows)
      : path_(std::move(path)),
        layout_(std::move(layout)),
        names_(std::move(names)),
        cells_(std::move(cells)),
        classes_(std::move(classes)),
        gaps_(std::move(gaps)),
        kept_(std::move(kept)),
        rows_(rows) {
    for (const TableLayout::Field& field : layout_.fields) {
      fields_.emplace_back(
          field.name,
          TensorType{field.dtype, field.scalar ? Shape{} : Shape{static_cast<int64_t>(field.columns.size())}});
      columns_.emplace_back();
      for (const size_t column : field.columns) columns_.back().push_back(names_[column]);
    }
  }
  const FieldTypes& fields() const override { return fields_; }
  int64_t samples() const override { return rows_; }
  int64_t row(int64_t index) const override { return kept_.empty() ? index : kept_[static_cast<size_t>(index)]; }
  Status read(int64_t index, int field, void* target) const override {
    const Cells& cells = cells_[static_cast<size_t>(field)];
    const size_t from = static_cast<size_t>(index) * cells.width;
    if (cells.reals.empty()) {
      std::memcpy(target, cells.integers.data() + from, cells.width * sizeof(int64_t));
    } else {
      std::memcpy(target, cells.reals.data() + from, cells.width * sizeof(float));
    }
    return {};
  }
  std::vector<ClassNames> classes() const override { return classes_; }
  std::vector<std::string> columns(int field) const override { return columns_[static_cast<size_t>(field)]; }
  std::string options_alike() const override;

  // The means of the columns that may lack values, over these rows; and into the gaps with them.
  Status learn_from(int64_t count, const std::function<int64_t(int64_t)>& sample) override {
    std::map<size_t, std::vector<bool>> missing;
    for (const Gap& gap : gaps_)
      missing.try_emplace(gap.column, static_cast<size_t>(rows_)).first->second[static_cast<size_t>(gap.row)] = true;
    for (size_t f = 0; f < layout_.fields.size(); ++f) {
      const std::vector<size_t>& columns = layout_.fields[f].columns;
      for (size_t position = 0; position < columns.size(); ++position) {
        const size_t column = columns[position];
        if (layout_.missing[column].kind != MissingRule::Kind::mean || cells_[f].reals.empty()) continue;
        const auto gaps = missing.find(column);
        double sum = 0;
        int64_t values = 0;
        for (int64_t i = 0; i < count; ++i) {
          const auto row = static_cast<size_t>(sample(i));
          if (gaps != missing.end() && gaps->second[row]) continue;
          sum += cells_[f].reals[row * columns.size() + position];
          ++values;
        }
        if (values > 0) {
          means_[column] = sum / static_cast<double>(values);
        } else if (gaps != missing.end()) {
          return Status(Code::invalid_argument,
                        cat("column ", shown(names_[column]), " has no value at all",
                            count < rows_ ? " in what is trained on" : "",
                            ", so no mean; leave it out by {\"ignore\": ", shown(names_[column]), "}"),
                        path_);
        }
        for (const Gap& gap : gaps_) {
          if (gap.column == column)
            cells_[f].reals[static_cast<size_t>(gap.row) * columns.size() + position] =
                static_cast<float>(means_[column]);
        }
      }
    }
    return {};
  }

 private:
  // The names behind a column's numbers; none where it has numbers of its own.
  Json names_in(const TableLayout::Field& field, size_t column) const {
    for (const ClassNames& c : classes_) {
      if (c.field == field.name && c.column == names_[column]) return Json(c.names);
    }
    return Json::array();
  }

  std::string path_;
  TableLayout layout_;
  std::vector<std::string> names_;
  FieldTypes fields_;
  std::vector<std::vector<std::string>> columns_;
  std::vector<Cells> cells_;
  std::vector<ClassNames> classes_;
  std::vector<Gap> gaps_;
  std::vector<int64_t> kept_;
  std::map<size_t, double> means_;  // by column
  int64_t rows_;
};

std::string TableReader::options_alike() const {
  Json out = Json::object(), inputs = Json::object(), missing = Json::object();
  for (size_t f = 0; f < layout_.fields.size(); ++f) {
    const TableLayout::Field& field = layout_.fields[f];
    Json list = Json::array(), known = Json::array();
    bool texts = false;
    for (const size_t column : field.columns) {
      list.push_back(names_[column]);
      known.push_back(names_in(field, column));
      texts = texts || layout_.kinds[column] == CellKind::text;
      const MissingRule& rule = layout_.missing[column];
      const auto mean = means_.find(column);
      if (mean != means_.end()) missing[names_[column]] = mean->second;
      if (rule.kind == MissingRule::Kind::number) missing[names_[column]] = rule.number;
      if (rule.kind == MissingRule::Kind::drop) missing[names_[column]] = "drop";
    }
    if (layout_.has_target && f + 1 == layout_.fields.size()) {
      out["target"] = list;
      out["classes"] = texts ? known[0] : Json(field.scalar);
    } else {
      inputs[field.name] = {{"columns", list}, {"dtype", std::string(dtype_name(field.dtype))}};
      if (texts) inputs[field.name]["classes"] = known;
    }
  }
  if (!layout_.has_target) out["target"] = Json();
  out["inputs"] = inputs;
  if (!missing.empty()) out["missing"] = missing;
  return print_json(out);
}

}  // namespace

std::vector<Option> Table::options() {
  return {
      {.name = "target",
       .value = std::string(),
       .doc = "the column of the target, a list of them, or `null` for none; the last column if not given",
       .json = true},
      {.name = "inputs",
       .value = std::string(),
       .doc =
           "the columns of each input: `{\"x\": [\"a\", \"b\"], \"cat\": \"c\"}`. `*` and `?` stand for parts of a "
           "name. Long form of a list: "
           "`{\"columns\": [...], \"dtype\": \"i64\"}`. Not given: all columns that are not the target are one field",
       .json = true},
      {.name = "input", .value = std::string("x"), .doc = "the name of that one field"},
      {.name = "ignore",
       .value = std::string(),
       .doc = "columns to leave out: a name or a list, `*` and `?` as above",
       .json = true},
      {.name = "classes",
       .value = std::string(),
       .doc =
           "what the target is: `true` for classes, which are integers or, if it holds texts, names; `\"names\"` for "
           "names that look like "
           "numbers; a list of the names in the order of their numbers; `false` for a quantity. Not given: names if it "
           "holds texts, else a quantity",
       .json = true},
      {.name = "missing",
       .value = std::string(),
       .doc = "what stands where a value is missing: `\"error\"` (default), `\"mean\"` of the column, a number, "
              "`\"drop\"` to leave the row out, or one of these "
              "for each column by name",
       .json = true}};
}

Table::Table(std::unique_ptr<State> state) : state_(std::move(state)) {}
Table::~Table() = default;

Result<std::unique_ptr<Table>> Table::create(const ReaderRequest& request, std::vector<std::string> names,
                                             const std::vector<bool>& texts) {
  auto state = std::make_unique<State>();
  state->path = request.path;
  state->names = std::move(names);
  EPL_ASSIGN(state->layout, lay_out(request, state->names, texts));
  state->columns.resize(state->names.size());
  for (size_t f = 0; f < state->layout.fields.size(); ++f) {
    const TableLayout::Field& field = state->layout.fields[f];
    state->cells.push_back({.width = field.columns.size()});
    for (size_t i = 0; i < field.columns.size(); ++i) {
      Column& column = state->columns[field.columns[i]];
      column.field = f;
      column.position = i;
      if (i >= field.classes.size()) continue;
      column.closed = true;
      for (const std::string& name : field.classes[i])
        column.numbers.emplace(name, static_cast<int64_t>(column.numbers.size()));
    }
  }
  return std::unique_ptr<Table>(new Table(std::move(state)));
}

const std::vector<CellKind>& Table::kinds() const { return state_->layout.kinds; }
int64_t Table::rows() const { return state_->rows; }

void Table::add_rows(int64_t count) {
  State& s = *state_;
  s.rows += count;
  for (size_t f = 0; f < s.cells.size(); ++f) {
    const size_t size = s.cells[f].width * static_cast<size_t>(s.rows);
    if (s.layout.fields[f].dtype == DType::f32) {
      s.cells[f].reals.resize(size);
    } else {
      s.cells[f].integers.resize(size);
    }
  }
  s.dropped.resize(static_cast<size_t>(s.rows), false);
}

void Table::set_real(int64_t row, size_t column, double value) {
  State& s = *state_;
  s.at(s.cells[s.columns[column].field].reals, row, column) = static_cast<float>(value);
}

void Table::set_integer(int64_t row, size_t column, int64_t value) {
  State& s = *state_;
  s.at(s.cells[s.columns[column].field].integers, row, column) = value;
}

Status Table::set_text(int64_t row, size_t column, std::string_view value) {
  State& s = *state_;
  if (!is_utf8(value)) return invalid(not_utf8(value));
  Column& c = s.columns[column];
  auto found = c.numbers.find(value);
  if (found == c.numbers.end()) {
    if (c.closed) {
      std::vector<std::string> known;
      for (const auto& [name, number] : c.numbers) known.push_back(name);
      return invalid(shown(value, 80), " is none of the classes that were given", choices(value, known));
    }
    found = c.numbers.emplace(std::string(value), static_cast<int64_t>(c.numbers.size())).first;
  }
  s.at(s.cells[c.field].integers, row, column) = found->second;
  return {};
}

Status Table::set_missing(int64_t row, size_t column, std::string_view text) {
  State& s = *state_;
  const MissingRule& rule = s.layout.missing[column];
  const CellKind kind = s.layout.kinds[column];
  const bool target = s.layout.has_target && s.columns[column].field + 1 == s.layout.fields.size();
  if (rule.kind == MissingRule::Kind::drop) {
    s.dropped[static_cast<size_t>(row)] = true;
    return {};
  }
  if (rule.kind == MissingRule::Kind::error || (kind != CellKind::real && rule.kind == MissingRule::Kind::mean) ||
      kind == CellKind::text) {
    return invalid("the value is missing (", shown(text, 20), "); the option missing says what to do: ",
                   target                   ? "\"drop\" leaves such rows out"
                   : kind == CellKind::real ? "\"drop\" leaves such rows out, \"mean\" or a number fills in"
                                            : "\"drop\" leaves such rows out, a number fills in");
  }
  if (rule.kind == MissingRule::Kind::mean) {
    s.gaps.push_back({row, column});
  } else if (kind == CellKind::integer) {
    set_integer(row, column, static_cast<int64_t>(rule.number));
  } else {
    s.at(s.cells[s.columns[column].field].reals, row, column) = static_cast<float>(rule.number);
  }
  return {};
}

// Gives texts their numbers in the order of the alphabet, whatever the order of the rows.
void Table::State::sort_names() {
  for (size_t i = 0; i < columns.size(); ++i) {
    Column& c = columns[i];
    if (layout.kinds[i] != CellKind::text || c.closed) continue;
    std::vector<int64_t> sorted(c.numbers.size());
    int64_t next = 0;
    for (auto& [name, number] : c.numbers) {
      sorted[static_cast<size_t>(number)] = next;
      number = next++;
    }
    if (sorted.empty()) continue;
    for (int64_t row = 0; row < rows; ++row) {
      if (dropped[static_cast<size_t>(row)]) continue;
      int64_t& value = at(cells[c.field].integers, row, i);
      value = sorted[static_cast<size_t>(value)];
    }
  }
}

void Table::State::leave_out_dropped() {
  if (std::ranges::find(dropped, true) == dropped.end()) return;
  std::erase_if(gaps, [&](const Gap& gap) { return dropped[static_cast<size_t>(gap.row)]; });
  std::vector<int64_t> position(static_cast<size_t>(rows));
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    position[static_cast<size_t>(row)] = count;
    if (dropped[static_cast<size_t>(row)]) continue;
    kept.push_back(row);
    for (Cells& c : cells) {
      const auto from = static_cast<long>(static_cast<size_t>(row) * c.width),
                 to = static_cast<long>(static_cast<size_t>(count) * c.width), width = static_cast<long>(c.width);
      if (!c.reals.empty()) std::copy_n(c.reals.begin() + from, width, c.reals.begin() + to);
      if (!c.integers.empty()) std::copy_n(c.integers.begin() + from, width, c.integers.begin() + to);
    }
    ++count;
  }
  for (Gap& gap : gaps) gap.row = position[static_cast<size_t>(gap.row)];
  rows = count;
}

Result<std::unique_ptr<Reader>> Table::finish(std::unique_ptr<Table> table) {
  State& s = *table->state_;
  if (s.rows == 0) return Status(Code::invalid_argument, "the table has no line below its head", s.path);
  s.sort_names();
  s.leave_out_dropped();
  if (s.rows == 0)
    return Status(Code::invalid_argument, "every row has a missing value, so the option missing leaves none", s.path);
  std::vector<ClassNames> classes;
  for (const TableLayout::Field& field : s.layout.fields) {
    for (const size_t column : field.columns) {
      if (s.layout.kinds[column] != CellKind::text) continue;
      ClassNames names{field.name, s.names[column], std::vector<std::string>(s.columns[column].numbers.size())};
      for (const auto& [name, number] : s.columns[column].numbers) names.names[static_cast<size_t>(number)] = name;
      classes.push_back(std::move(names));
    }
  }
  auto reader = std::make_unique<TableReader>(s.path, s.layout, s.names, std::move(s.cells), std::move(classes),
                                              std::move(s.gaps), std::move(s.kept), s.rows);
  EPL_TRY(reader->learn_from(s.rows, [](int64_t i) { return i; }));
  return std::unique_ptr<Reader>(std::move(reader));
}

std::string not_utf8(std::string_view name) {
  size_t at = 0;
  while (at < name.size() && utf8_sequence(name.substr(at)) > 0) at += utf8_sequence(name.substr(at));
  return cat(
      shown(to_utf8(name)), " is not in UTF-8 (byte ", at,
      " of it); the file may be in ISO-8859-1 or Windows-1252: convert it, as by: iconv -f WINDOWS-1252 -t UTF-8");
}

bool is_missing(std::string_view text) {
  static constexpr std::string_view words[] = {"",     "NA",   "N/A",  "n/a",  "NaN",  "nan",  "NAN",
                                               "-nan", "null", "NULL", "None", "<NA>", "#N/A", "?"};
  return std::ranges::find(words, text) != std::end(words);
}

}  // namespace epl
