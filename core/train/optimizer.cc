#include "core/train/optimizer.h"

#include "core/base/suggestion.h"

namespace epl {

const OptimizerTable& optimizer_table() {
  static const OptimizerTable table = [] {
    OptimizerTable made;
    fill_optimizer_table(made);
    return made;
  }();
  return table;
}

Result<const OptimizerRow*> find_optimizer(std::string_view name) {
  std::vector<std::string> names;
  for (const OptimizerRow& row : optimizer_table().rows) {
    if (row.name == name) return &row;
    names.push_back(row.name);
  }
  return error(Code::not_found, "no optimizer ", quoted(name), choices(name, names));
}

}  // namespace epl
