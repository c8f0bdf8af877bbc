// Optimizers: rows that say which state a parameter has and which op updates it.
#pragma once

#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

struct OptimizerRow {
  std::string name;
  std::string doc;                         // with the formula's source
  std::vector<AttributeSpec> options;      // betas, eps, momentum, weight_decay ... with defaults
  std::vector<std::string> states;         // per parameter, zeros at first, of the parameter's type
  // The op takes (parameter, gradient, states..., scalars...) and returns (parameter', states'...).
  std::string op;
  // Host scalars the op takes after the states, computed before each step: "lr" is the group's rate at this step;
  // "bias_correction1" and "bias_correction2" are 1 - beta^step.
  std::vector<std::string> scalars;
  // Attributes of the op from the options.
  Attributes (*attributes)(const Attributes& options) = nullptr;
};
struct OptimizerTable {
  std::vector<OptimizerRow> rows;
};
void fill_optimizer_table(OptimizerTable& table);  // generated
const OptimizerTable& optimizer_table();
Result<const OptimizerRow*> find_optimizer(std::string_view name);

#define EPL_OPTIMIZER(row_name)                                                                            \
  static ::epl::OptimizerRow epl_optimizer_##row_name();                                                   \
  void EPL_OPTIMIZER_row_##row_name(::epl::OptimizerTable& table);                                         \
  void EPL_OPTIMIZER_row_##row_name(::epl::OptimizerTable& table) {                                        \
    table.rows.push_back(epl_optimizer_##row_name());                                                      \
    table.rows.back().name = #row_name;                                                                    \
  }                                                                                                        \
  static ::epl::OptimizerRow epl_optimizer_##row_name()

}  // namespace epl
