// Tables: named columns of numbers and texts become the fields of samples. What csv, tsv and parquet have in common:
// which columns make which input, which are the target, what stands where a value is missing, and texts as class
// numbers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/reader.h"

namespace epl {

// What a cell of a column is kept as.
enum class CellKind : uint8_t { unused, real, integer, text };

class Table {
 public:
  // The options that every reader of tables declares.
  static std::vector<Option> options();
  // Decides what becomes of the columns. `texts`: which columns hold texts.
  static Result<std::unique_ptr<Table>> create(const ReaderRequest& request, std::vector<std::string> names,
                                               const std::vector<bool>& texts);
  ~Table();
  // The cell kinds of all columns, in order.
  const std::vector<CellKind>& kinds() const;
  // Makes room for more rows; then each used cell of them is set once, in any order. An error says what is wrong with
  // the value.
  void add_rows(int64_t count);
  void set_real(int64_t row, size_t column, double value);
  void set_integer(int64_t row, size_t column, int64_t value);
  Status set_text(int64_t row, size_t column, std::string_view value);
  Status set_missing(int64_t row, size_t column, std::string_view text);
  int64_t rows() const;
  // The samples, once every row is set.
  static Result<std::unique_ptr<Reader>> finish(std::unique_ptr<Table> table);

 private:
  struct State;
  explicit Table(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// What is to be said of a name that is not in UTF-8.
std::string not_utf8(std::string_view name);

// Whether the text stands for a value that is not there: "", NA, nan, null, None, ? and their kin.
bool is_missing(std::string_view text);

}  // namespace epl
