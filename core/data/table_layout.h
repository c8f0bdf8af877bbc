// Which columns of a table make which field: the options of a table, read against the names of its columns.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/data/table.h"

namespace epl {

// What stands where a value is missing.
struct MissingRule {
  enum class Kind : uint8_t { error, mean, drop, number } kind = Kind::error;
  double number = 0;
};

struct TableLayout {
  struct Field {
    std::string name;
    std::vector<size_t> columns;
    DType dtype = DType::f32;
    bool scalar = false;                            // a sample has no dimension: one column
    std::vector<std::vector<std::string>> classes;  // of each column, where they were given
  };
  std::vector<Field> fields;  // the target last
  bool has_target = false;
  std::vector<CellKind> kinds;       // of every column
  std::vector<MissingRule> missing;  // of every column
};

Result<TableLayout> lay_out(const ReaderRequest& request, const std::vector<std::string>& names,
                            const std::vector<bool>& texts);

}  // namespace epl
