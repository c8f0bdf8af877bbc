// Optimizers: rows that say which state a parameter has, and which op updates it.
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
  std::string doc;              // with the formula's source
  std::vector<Option> options;  // lr, betas, eps, momentum, weight_decay ... with PyTorch's defaults; each is an option
                                // of the command line
  std::vector<std::string> states;  // per parameter, zeros at first, of the parameter's type
  // weight_decay shrinks a parameter by itself; otherwise it is added to the gradient.
  bool shrinks_weights = false;
  // The op takes (parameter, gradient, states..., scalars...) and returns (parameter', states'...).
  std::string op;
  std::vector<OptimizerScalar> scalars;
  // Attributes of the op from the options, or what is wrong with these.
  Result<Attributes> (*attributes)(const Attributes& options) = nullptr;
};
using OptimizerTable = TableOf<OptimizerRow>;
const OptimizerTable& optimizer_table();  // generated
inline Result<const OptimizerRow*> find_optimizer(std::string_view name) {
  return find_named(optimizer_table(), name, "optimizer");
}

// Of rows that keep states: how they are stored.
inline constexpr std::string_view state_type_option = "state_type";
// `is_set`: somebody says so. A row without states does not declare that option.
inline Status check_state_type(const OptimizerRow& row, bool is_set) {
  if (!is_set || !row.states.empty()) return {};
  return unsupported("optimizer ", row.name, " keeps no states, so state_type has nothing to say; leave it out");
}

#define EPL_OPTIMIZER(row_name) EPL_ROW(EPL_OPTIMIZER, row_name, ::epl::OptimizerTable, ::epl::OptimizerRow)

}  // namespace epl
