#include "core/data/table_layout.h"

#include <algorithm>
#include <cmath>

#include "core/base/shown.h"
#include "core/base/suggestion.h"

namespace epl {
namespace {

class Layouter {
 public:
  Layouter(const ReaderRequest& request, const std::vector<std::string>& names, const std::vector<bool>& texts)
      : path_(request.path),
        target_name_(request.target_name),
        names_(names),
        texts_(texts),
        options_(request.options),
        user_(names.size()) {
    out_.kinds.assign(names.size(), CellKind::unused);
    out_.missing.resize(names.size());
  }

  Result<TableLayout> run() {
    EPL_TRY(read_ignored());
    EPL_ASSIGN(std::vector<size_t> target, read_target());
    EPL_TRY(read_inputs(target));
    if (!target.empty()) EPL_TRY(add_target(std::move(target)));
    if (out_.fields.empty())
      return invalid("the options leave no column of the table to be read; there are: ", short_list(names_)).at(path_);
    EPL_TRY(read_missing());
    return std::move(out_);
  }

 private:
  Status wrong(std::string_view option, const std::string& what) const {
    return Status(Code::invalid_argument, cat("option ", option, " of a table: ", what), path_);
  }

  // The JSON of an option, null where it is not given.
  Result<Json> option(std::string_view name) const {
    const std::string& text = options_.text(name);
    if (text.empty()) return Json();
    auto json = parse_json(text);
    if (!json.ok()) return wrong(name, cat(shown_plain(text, 80), " is not JSON: ", json.status().message()));
    return json;
  }

  Result<size_t> find(std::string_view option, const std::string& name) const {
    const auto found = std::ranges::find(names_, name);
    if (found != names_.end()) {
      if (std::find(found + 1, names_.end(), name) != names_.end())
        return wrong(option, cat("two columns are called ", shown(name), "; give them different names"));
      return static_cast<size_t>(found - names_.begin());
    }
    return Status(Code::not_found,
                  cat("option ", option, " of a table: there is no column ", shown(name), choices(name, names_)),
                  path_);
  }

  // A column by its name, or those that a glob fits and nothing else has taken.
  Status add_columns(std::string_view option, const std::string& name, std::vector<size_t>& columns) const {
    const bool glob = name.find_first_of("*?") != std::string::npos && std::ranges::find(names_, name) == names_.end();
    if (!glob) {
      EPL_ASSIGN(const size_t column, find(option, name));
      columns.push_back(column);
      return {};
    }
    const size_t before = columns.size();
    for (size_t i = 0; i < names_.size(); ++i) {
      if (user_[i].empty() && glob_match(name, names_[i])) columns.push_back(i);
    }
    if (columns.size() == before)
      return wrong(option, cat("no column that is left fits ", shown(name), "; there are: ", short_list(names_)));
    return {};
  }

  // A name or a list of names.
  Result<std::vector<size_t>> columns_of(std::string_view option, const Json& json) const {
    std::vector<size_t> columns;
    const Json list = json.is_string() ? Json::array({json}) : json;
    if (!list.is_array() || list.empty()) return wrong(option, "the name of a column or a list of names is expected");
    for (const Json& name : list) {
      if (!name.is_string()) return wrong(option, cat(excerpt(print_json(name), 80), " is not the name of a column"));
      EPL_TRY(add_columns(option, name.text(), columns));
    }
    return columns;
  }

  // `user` has the columns from now on.
  Status take(std::string_view option, const std::vector<size_t>& columns, const std::string& user) {
    for (const size_t column : columns) {
      if (!user_[column].empty())
        return wrong(option, cat("column ", shown(names_[column]), " is in ", user_[column], " and in ", user));
      user_[column] = user;
    }
    return {};
  }

  Status read_ignored() {
    EPL_ASSIGN(const Json json, option("ignore"));
    if (json.is_null()) return {};
    EPL_ASSIGN(const std::vector<size_t> columns, columns_of("ignore", json));
    return take("ignore", columns, "the option ignore");
  }

  Result<std::vector<size_t>> read_target() {
    EPL_ASSIGN(const Json json, option("target"));
    const bool given = !options_.text("target").empty();
    if (given && json.is_null()) return std::vector<size_t>{};
    std::vector<size_t> columns;
    if (!given || json == "") {  // the last one that is not ignored
      size_t last = names_.size();
      while (last > 0 && !user_[last - 1].empty()) --last;
      if (last == 0) return wrong("ignore", "it leaves no column for the target");
      columns = {last - 1};
    } else {
      EPL_ASSIGN(columns, columns_of("target", json));
    }
    EPL_TRY(take("target", columns, "the target"));
    return columns;
  }

  Status read_inputs(const std::vector<size_t>& target) {
    EPL_ASSIGN(const Json json, option("inputs"));
    if (!json.is_null()) {
      if (!json.is_object())
        return wrong("inputs", "an object is expected, a list of columns for each field: {\"x\": [\"a\", \"b\"]}");
      for (const auto& [field, columns] : json.items()) EPL_TRY(read_input(field, columns));
      return {};
    }
    TableLayout::Field rest{.name = options_.text("input")};
    for (size_t i = 0; i < names_.size(); ++i) {
      if (!user_[i].empty()) continue;
      if (names_[i].empty()) {
        return wrong("ignore", cat("column ", i + 1,
                                   " has no name, like the index that pandas writes. Leave it out by {\"ignore\": "
                                   "\"\"}, or write the file with index=False"));
      }
      if (std::ranges::count(names_, names_[i]) > 1)
        return Status(Code::invalid_argument,
                      cat("two columns are called ", shown(names_[i]), "; give them different names"), path_);
      if (texts_[i]) {
        return wrong("inputs", cat("column ", shown(names_[i]),
                                   " holds texts, no numbers. Leave it out by {\"ignore\": ", shown(names_[i]),
                                   "}, or give the model its class numbers as an input of their own: {\"inputs\": {\"",
                                   shown_plain(rest.name), "\": [...], \"", shown_plain(names_[i]),
                                   "\": ", shown(names_[i]), "}}"));
      }
      rest.columns.push_back(i);
    }
    if (rest.columns.empty()) {
      return target.empty() ? Status()
                            : Status(Code::invalid_argument,
                                     cat("line 1: a table needs two columns, one of them the target; the one here is ",
                                         shown(names_[target[0]], 80), ". Is the option separator right?"),
                                     path_);
    }
    return add_field(std::move(rest));
  }

  // {"columns": ..., "dtype": "i64", "classes": [[...], ...]}, or the columns alone.
  Status read_input(const std::string& name, const Json& json) {
    TableLayout::Field field{.name = name};
    const std::string option = cat("inputs, field ", shown(name));
    if (!json.is_object()) {
      EPL_ASSIGN(field.columns, columns_of(option, json));
      return add_field(std::move(field));
    }
    for (const auto& [key, value] : json.items()) {
      if (key == "columns") {
        EPL_ASSIGN(field.columns, columns_of(option, value));
      } else if (key == "dtype" && (value == "i64" || value == "f32")) {
        field.dtype = value == "i64" ? DType::i64 : DType::f32;
      } else if (key == "classes" && value.is_array()) {
        for (const Json& names : value) {
          std::vector<std::string> list;
          EPL_TRY(read_names(option, names, list));
          field.classes.push_back(std::move(list));
        }
      } else {
        return wrong(
            option,
            cat("\"", key, "\": ", excerpt(print_json(value), 80),
                " is not one of columns, dtype (\"f32\" or \"i64\") and classes (a list of names for each column)"));
      }
    }
    if (field.columns.empty()) return wrong(option, "it has no columns");
    if (!field.classes.empty() && field.classes.size() != field.columns.size())
      return wrong(option, "classes has a list of names for each column");
    return add_field(std::move(field));
  }

  Status read_names(std::string_view option, const Json& json, std::vector<std::string>& out) const {
    if (!json.is_array()) return wrong(option, "the names of classes are a list of texts");
    for (const Json& name : json) {
      if (!name.is_string())
        return wrong(option, cat("the names of classes are texts; one is ", excerpt(print_json(name), 40)));
      if (std::ranges::find(out, name.text()) != out.end())
        return wrong(option, cat("class ", shown(name.text()), " comes twice"));
      out.push_back(name.text());
    }
    return {};
  }

  // A field of inputs: all its columns hold numbers, or all hold texts.
  Status add_field(TableLayout::Field field) {
    EPL_TRY(take("inputs", field.columns, cat("field ", field.name)));
    std::erase_if(field.classes, [](const auto& names) { return names.empty(); });
    const bool given = !field.classes.empty();
    const size_t first_text = static_cast<size_t>(
        std::ranges::find_if(field.columns, [&](size_t c) { return texts_[c]; }) - field.columns.begin());
    if (!given && first_text < field.columns.size()) {
      for (const size_t column : field.columns) {
        if (texts_[column]) continue;
        return wrong("inputs", cat("column ", shown(names_[field.columns[first_text]]), " of field ", field.name,
                                   " holds texts, column ", shown(names_[column]),
                                   " numbers; give the texts a field of their own"));
      }
    }
    const CellKind kind = given || first_text < field.columns.size() ? CellKind::text
                          : field.dtype == DType::i64                ? CellKind::integer
                                                                     : CellKind::real;
    if (kind == CellKind::text) field.dtype = DType::i64;
    for (const size_t column : field.columns) out_.kinds[column] = kind;
    out_.fields.push_back(std::move(field));
    return {};
  }

  Status add_target(std::vector<size_t> columns) {
    EPL_ASSIGN(const Json json, option("classes"));
    TableLayout::Field field{.name = target_name_, .columns = std::move(columns)};
    const bool one = field.columns.size() == 1;
    const std::string name = names_[field.columns[0]];
    const bool texts = std::ranges::any_of(field.columns, [&](size_t c) { return texts_[c]; });
    CellKind kind = CellKind::real;
    if (json.is_array()) {
      field.classes.resize(1);
      EPL_TRY(read_names("classes", json, field.classes[0]));
      kind = CellKind::text;
    } else if (json == "names" || (texts && (json.is_null() || json == true))) {
      kind = CellKind::text;
    } else if (json == true) {
      kind = CellKind::integer;
    } else if (!json.is_null() && json != false) {
      return wrong("classes", "true, false, \"names\" or a list of names is expected");
    } else if (texts) {
      return wrong("classes", cat("it is false, and the target ", shown(name), " holds texts"));
    }
    if (kind != CellKind::real && !one) return wrong("target", "classes are one column; several columns are numbers");
    field.scalar = kind != CellKind::real;
    if (field.scalar) field.dtype = DType::i64;
    for (const size_t column : field.columns) out_.kinds[column] = kind;
    out_.has_target = true;
    out_.fields.push_back(std::move(field));
    return {};
  }

  Status read_rule(const Json& json, MissingRule& rule) const {
    if (json == "error") {
      rule.kind = MissingRule::Kind::error;
    } else if (json == "mean") {
      rule.kind = MissingRule::Kind::mean;
    } else if (json == "drop") {
      rule.kind = MissingRule::Kind::drop;
    } else if (json.is_number()) {
      rule = {MissingRule::Kind::number, json.get<double>()};
    } else {
      return wrong("missing",
                   cat(excerpt(print_json(json), 80), " is not one of \"error\", \"mean\", \"drop\" and a number"));
    }
    return {};
  }

  Status read_missing() {
    EPL_ASSIGN(const Json json, option("missing"));
    if (json.is_null()) return {};
    MissingRule all;
    if (!json.is_object()) EPL_TRY(read_rule(json, all));
    for (const TableLayout::Field& field : out_.fields) {
      const bool target = out_.has_target && &field == &out_.fields.back();
      // A target is not made up: its row is left out or is an error.
      if (!target || all.kind == MissingRule::Kind::drop) {
        for (const size_t column : field.columns) out_.missing[column] = all;
      }
    }
    if (json.is_object()) {
      for (const auto& [name, value] : json.items()) {
        EPL_ASSIGN(const size_t column, find("missing", name));
        EPL_TRY(read_rule(value, out_.missing[column]));
      }
    }
    for (size_t i = 0; i < names_.size(); ++i) {
      const MissingRule& rule = out_.missing[i];
      const bool fits = out_.kinds[i] != CellKind::integer || rule.kind != MissingRule::Kind::number ||
                        (rule.number == std::floor(rule.number) && std::fabs(rule.number) < 1e15);
      if (!fits)
        return wrong("missing", cat(rule.number, " is not an integer, and column ", shown(names_[i]), " holds such"));
    }
    return {};
  }

  const std::string &path_, &target_name_;
  const std::vector<std::string>& names_;
  const std::vector<bool>& texts_;
  const Attributes& options_;
  std::vector<std::string> user_;  // of each column, empty for none
  TableLayout out_;
};

}  // namespace

Result<TableLayout> lay_out(const ReaderRequest& request, const std::vector<std::string>& names,
                            const std::vector<bool>& texts) {
  return Layouter(request, names, texts).run();
}

}  // namespace epl
