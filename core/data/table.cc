#include "core/data/table.h"

#include <algorithm>
#include <cstring>

#include "core/data/table_layout.h"

namespace epl {
namespace {

// The cells of a field, a row after the other. One of the two has them.
struct Cells {
  size_t width = 0;
  std::vector<float> reals;
  std::vector<int64_t> wholes;
};

struct Column {
  size_t field = 0, position = 0;   // where its cells go
  std::map<std::string, int64_t, std::less<>> numbers;   // of the texts, in the order in which they came
  bool closed = false;              // the names were given: others are errors
  double sum = 0;
  int64_t count = 0;
};

class TableReader;

}  // namespace

struct Table::State {
  std::string path;
  std::vector<std::string> names;
  TableLayout layout;
  std::vector<Column> columns;
  std::vector<Cells> cells;   // of each field
  std::vector<std::pair<int64_t, size_t>> to_fill;   // row and column: the mean comes here
  std::vector<bool> dropped;
  int64_t rows = 0;

  template <class T>
  T& at(std::vector<T>& values, int64_t row, size_t column) {
    const Column& c = columns[column];
    return values[static_cast<size_t>(row) * cells[c.field].width + c.position];
  }
  Status fill_means();
  void sort_names();
  void leave_out_dropped();
};

namespace {

using FieldTypes = std::vector<std::pair<std::string, TensorType>>;

class TableReader : public Reader {
 public:
  TableReader(const TableLayout& layout, const std::vector<std::string>& names, std::vector<Cells> cells, std::vector<ClassNames> classes, std::string alike, int64_t rows)
      : cells_(std::move(cells)), classes_(std::move(classes)), alike_(std::move(alike)), rows_(rows) {
    for (const TableLayout::Field& field : layout.fields) {
      fields_.emplace_back(field.name, TensorType{field.dtype, field.scalar ? Shape{} : Shape{static_cast<int64_t>(field.columns.size())}});
      columns_.emplace_back();
      for (const size_t column : field.columns) columns_.back().push_back(names[column]);
    }
  }
  const FieldTypes& fields() const override { return fields_; }
  int64_t samples() const override { return rows_; }
  Status read(int64_t index, int field, void* target) const override {
    const Cells& cells = cells_[static_cast<size_t>(field)];
    const size_t from = static_cast<size_t>(index) * cells.width;
    if (cells.reals.empty()) {
      std::memcpy(target, cells.wholes.data() + from, cells.width * sizeof(int64_t));
    } else {
      std::memcpy(target, cells.reals.data() + from, cells.width * sizeof(float));
    }
    return {};
  }
  std::vector<ClassNames> classes() const override { return classes_; }
  std::vector<std::string> columns(int field) const override { return columns_[static_cast<size_t>(field)]; }
  std::string options_alike() const override { return alike_; }

 private:
  FieldTypes fields_;
  std::vector<std::vector<std::string>> columns_;
  std::vector<Cells> cells_;
  std::vector<ClassNames> classes_;
  std::string alike_;
  int64_t rows_;
};

// The options that read another file to the same meaning.
std::string alike(const TableLayout& layout, const std::vector<std::string>& names, const std::vector<Column>& columns, const std::vector<ClassNames>& classes) {
  Json out = Json::object(), inputs = Json::object(), missing = Json::object();
  const auto names_in = [&](const TableLayout::Field& field, size_t column) {
    for (const ClassNames& c : classes) {
      if (c.field == field.name && c.column == names[column]) return Json(c.names);
    }
    return Json::array();
  };
  for (size_t f = 0; f < layout.fields.size(); ++f) {
    const TableLayout::Field& field = layout.fields[f];
    Json list = Json::array(), known = Json::array();
    bool texts = false;
    for (const size_t column : field.columns) {
      list.push_back(names[column]);
      known.push_back(names_in(field, column));
      texts = texts || layout.kinds[column] == CellKind::text;
      const MissingRule& rule = layout.missing[column];
      if (rule.kind == MissingRule::Kind::mean && columns[column].count > 0) missing[names[column]] = columns[column].sum / static_cast<double>(columns[column].count);
      if (rule.kind == MissingRule::Kind::number) missing[names[column]] = rule.number;
      if (rule.kind == MissingRule::Kind::drop) missing[names[column]] = "drop";
    }
    if (layout.has_target && f + 1 == layout.fields.size()) {
      out["target"] = list;
      out["classes"] = texts ? known[0] : Json(field.scalar);
    } else {
      inputs[field.name] = {{"columns", list}, {"dtype", std::string(dtype_name(field.dtype))}};
      if (texts) inputs[field.name]["classes"] = known;
    }
  }
  if (!layout.has_target) out["target"] = nullptr;
  out["inputs"] = inputs;
  if (!missing.empty()) out["missing"] = missing;
  return print_json(out);
}

}  // namespace

std::vector<ReaderOption> Table::options() {
  return {{"target", std::string(), "the column of the target, a list of them, or `null` for none; the last column if not given", true},
          {"inputs", std::string(), "the columns of each input: `{\"x\": [\"a\", \"b\"], \"cat\": \"c\"}`. `*` and `?` stand for parts of a name. Long form of a list: "
                                    "`{\"columns\": [...], \"dtype\": \"i64\"}`. Not given: all columns that are not the target are one field", true},
          {"input", std::string("x"), "the name of that one field"},
          {"ignore", std::string(), "columns to leave out: a name or a list, `*` and `?` as above", true},
          {"classes", std::string(), "what the target is: `true` for classes, which are whole numbers or, if it holds texts, names; `\"names\"` for names that look like "
                                     "numbers; a list of the names in the order of their numbers; `false` for a quantity. Not given: names if it holds texts, else a quantity", true},
          {"missing", std::string(), "what stands where a value is missing: `\"error\"` (default), `\"mean\"` of the column, a number, `\"drop\"` to leave the row out, or one of these "
                                     "for each column by name", true}};
}

Table::Table(std::unique_ptr<State> state) : state_(std::move(state)) {}
Table::~Table() = default;

Result<std::unique_ptr<Table>> Table::create(const std::string& path, std::vector<std::string> names, const std::vector<bool>& texts, const Attributes& options) {
  auto state = std::make_unique<State>();
  state->path = path;
  state->names = std::move(names);
  EPL_ASSIGN(state->layout, lay_out(path, state->names, texts, options));
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
      for (const std::string& name : field.classes[i]) column.numbers.emplace(name, static_cast<int64_t>(column.numbers.size()));
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
      s.cells[f].wholes.resize(size);
    }
  }
  s.dropped.resize(static_cast<size_t>(s.rows), false);
}

void Table::set_real(int64_t row, size_t column, double value) {
  State& s = *state_;
  s.at(s.cells[s.columns[column].field].reals, row, column) = static_cast<float>(value);
  s.columns[column].sum += value;
  ++s.columns[column].count;
}

void Table::set_whole(int64_t row, size_t column, int64_t value) {
  State& s = *state_;
  s.at(s.cells[s.columns[column].field].wholes, row, column) = value;
}

Status Table::set_text(int64_t row, size_t column, std::string_view value) {
  State& s = *state_;
  Column& c = s.columns[column];
  auto found = c.numbers.find(value);
  if (found == c.numbers.end()) {
    if (c.closed) {
      std::vector<std::string> known;
      for (const auto& [name, number] : c.numbers) known.push_back(name);
      const std::string near = nearest(value, known);
      return invalid(quoted(excerpt(value, 80)), " is none of the classes that were given", near.empty() ? "" : cat("; did you mean ", near, "?"), "; they are: ", short_list(known));
    }
    found = c.numbers.emplace(std::string(value), static_cast<int64_t>(c.numbers.size())).first;
  }
  s.at(s.cells[c.field].wholes, row, column) = found->second;
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
  if (rule.kind == MissingRule::Kind::error || (kind != CellKind::real && rule.kind == MissingRule::Kind::mean) || kind == CellKind::text) {
    return invalid("the value is missing (", quoted(excerpt(text, 20)), "); the option missing says what to do: ",
                   target ? "\"drop\" leaves such rows out" : kind == CellKind::real ? "\"drop\" leaves such rows out, \"mean\" or a number fills in" : "\"drop\" leaves such rows out, a number fills in");
  }
  if (rule.kind == MissingRule::Kind::mean) {
    s.to_fill.emplace_back(row, column);
  } else if (kind == CellKind::whole) {
    set_whole(row, column, static_cast<int64_t>(rule.number));
  } else {
    s.at(s.cells[s.columns[column].field].reals, row, column) = static_cast<float>(rule.number);
  }
  return {};
}

Status Table::State::fill_means() {
  for (const auto& [row, column] : to_fill) {
    const Column& c = columns[column];
    if (c.count == 0) return Status(Code::data_loss, cat("column ", quoted(names[column]), " has no value at all, so no mean; leave it out by {\"ignore\": ", quoted(names[column]), "}"), path);
    at(cells[c.field].reals, row, column) = static_cast<float>(c.sum / static_cast<double>(c.count));
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
      int64_t& value = at(cells[c.field].wholes, row, i);
      value = sorted[static_cast<size_t>(value)];
    }
  }
}

void Table::State::leave_out_dropped() {
  if (std::ranges::find(dropped, true) == dropped.end()) return;
  int64_t kept = 0;
  for (int64_t row = 0; row < rows; ++row) {
    if (dropped[static_cast<size_t>(row)]) continue;
    for (Cells& c : cells) {
      const auto from = static_cast<long>(static_cast<size_t>(row) * c.width), to = static_cast<long>(static_cast<size_t>(kept) * c.width), width = static_cast<long>(c.width);
      if (!c.reals.empty()) std::copy_n(c.reals.begin() + from, width, c.reals.begin() + to);
      if (!c.wholes.empty()) std::copy_n(c.wholes.begin() + from, width, c.wholes.begin() + to);
    }
    ++kept;
  }
  rows = kept;
}

Result<std::unique_ptr<Reader>> Table::finish(std::unique_ptr<Table> table) {
  State& s = *table->state_;
  if (s.rows == 0) return Status(Code::data_loss, "the table has no line below its head", s.path);
  EPL_TRY(s.fill_means());
  s.sort_names();
  s.leave_out_dropped();
  if (s.rows == 0) return Status(Code::data_loss, "every row has a missing value, so the option missing leaves none", s.path);
  std::vector<ClassNames> classes;
  for (const TableLayout::Field& field : s.layout.fields) {
    for (const size_t column : field.columns) {
      if (s.layout.kinds[column] != CellKind::text) continue;
      ClassNames names{field.name, s.names[column], std::vector<std::string>(s.columns[column].numbers.size())};
      for (const auto& [name, number] : s.columns[column].numbers) names.names[static_cast<size_t>(number)] = name;
      classes.push_back(std::move(names));
    }
  }
  std::string options = alike(s.layout, s.names, s.columns, classes);
  return std::unique_ptr<Reader>(std::make_unique<TableReader>(s.layout, s.names, std::move(s.cells), std::move(classes), std::move(options), s.rows));
}

bool is_missing(std::string_view text) {
  static constexpr std::string_view words[] = {"", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "-nan", "null", "NULL", "None", "<NA>", "#N/A", "?"};
  return std::ranges::find(words, text) != std::end(words);
}

}  // namespace epl
