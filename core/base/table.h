// Tables of rows. A row is a function behind a macro at the start of a line; cmake/table.cmake finds it and generates
// the function that returns the table. So there is no list to edit and no static constructor, and a row whose function
// is missing does not link.
//
//   struct PassRow { std::string name; ... };
//   using PassTable = TableOf<PassRow>;
//   const PassTable& pass_table();                                        // generated
//   #define EPL_PASS(row_name) EPL_ROW(EPL_PASS, row_name, ::epl::PassTable, ::epl::PassRow)
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/shown.h"
#include "core/base/status.h"
#include "core/base/suggestion.h"

namespace epl {

template <class Row> struct TableOf {
  std::vector<Row> rows;  // in the order of their files

  void add(std::string_view name, Row row) {
    row.name = name;
    rows.push_back(std::move(row));
  }
  // Null where there is no such row.
  const Row* find(std::string_view name) const {
    for (const Row& row : rows) {
      if (row.name == name) return &row;
    }
    return nullptr;
  }
  // `also`: what may stand for a name besides.
  std::vector<std::string> names(std::vector<std::string> also = {}) const {
    for (const Row& row : rows) also.push_back(row.name);
    return also;
  }
};

// The row of that name, or the error that every unknown name gets: `no optimizer "adma"; did you mean adam? There are:
// ...`.
template <class Row>
Result<const Row*> find_named(const TableOf<Row>& table, std::string_view name, std::string_view what,
                              std::vector<std::string> also = {}) {
  if (const Row* row = table.find(name)) return row;
  return error(Code::not_found, "no ", what, " ", shown(name), choices(name, table.names(std::move(also))));
}

}  // namespace epl

// The head of a row: what follows is the body of a function that returns it. `macro` is the row's own macro, by which
// the generated table calls it.
#define EPL_ROW(macro, row_name, TableType, Row) \
  EPL_ROW_AS(macro, row_name, TableType, Row, (), table.add(#row_name, macro##_make_##row_name()))

// The general form: a function `Returns macro_make_row_name parameters`, and the statement that puts it into `table`.
#define EPL_ROW_AS(macro, row_name, TableType, Returns, parameters, ...) \
  static Returns macro##_make_##row_name parameters;                     \
  void macro##_row_##row_name(TableType& table);                         \
  void macro##_row_##row_name(TableType& table) { __VA_ARGS__; }         \
  static Returns macro##_make_##row_name parameters
