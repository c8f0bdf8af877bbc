// Optimizers: rows that say which state a parameter has and which op updates it.
#pragma once

#include <string>
#include <vector>

#include "core/ir/op.h"

namespace epl {

// A number that the host computes before each step. `lr` is the group's rate at this step, `step` counts from 0.
struct OptimizerScalar {
  std::string name;
  double (*at)(const Attributes& options, double lr, int64_t step) = nullptr;
};

struct OptimizerRow {
  std::string name;
  std::string doc;                     // with the formula's source
  std::vector<AttributeSpec> options;  // lr, betas, eps, momentum, weight_decay ... with PyTorch's defaults
  std::vector<std::string> states;     // per parameter, zeros at first, of the parameter's type
  // The op takes (parameter, gradient, states..., scalars...) and returns (parameter', states'...).
  std::string op;
  std::vector<OptimizerScalar> scalars;
  // Attributes of the op from the options, or what is wrong with these.
  Result<Attributes> (*attributes)(const Attributes& options) = nullptr;
};
struct OptimizerTable {
  std::vector<OptimizerRow> rows;
};
void fill_optimizer_table(OptimizerTable& table);  // generated
const OptimizerTable& optimizer_table();
Result<const OptimizerRow*> find_optimizer(std::string_view name);

#define EPL_OPTIMIZER(row_name)                                     \
  static ::epl::OptimizerRow epl_optimizer_##row_name();            \
  void EPL_OPTIMIZER_row_##row_name(::epl::OptimizerTable& table);  \
  void EPL_OPTIMIZER_row_##row_name(::epl::OptimizerTable& table) { \
    table.rows.push_back(epl_optimizer_##row_name());               \
    table.rows.back().name = #row_name;                             \
  }                                                                 \
  static ::epl::OptimizerRow epl_optimizer_##row_name()

}  // namespace epl
