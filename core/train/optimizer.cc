#include "core/train/optimizer.h"

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
  const std::string near = nearest(name, names);
  return error(Code::not_found, "no optimizer ", name, near.empty() ? "" : "; did you mean ", near, "? Known are ", join(names, ", "));
}

}  // namespace epl
