// Families of models that can be written to a file at any size, so that nobody needs another framework to start.
// Frontends add rows; `options` of a row are its sizes with their defaults, for example {layers=4, width=128, seed=1}.
#pragma once

#include <string>
#include <vector>

#include "core/base/attributes.h"

namespace epl {

struct ModelTemplate {
  std::string name;
  std::string doc;
  std::vector<std::pair<std::string, Attribute>> options;  // with defaults
  // `options` holds every option of the row, checked for type. Weights are drawn from the option "seed".
  Status (*write)(const Attributes& options, const std::string& path) = nullptr;
};
struct TemplateTable {
  std::vector<ModelTemplate> rows;
};
void fill_template_table(TemplateTable& table);  // generated

#define EPL_TEMPLATE(row_name)                                    \
  static ::epl::ModelTemplate epl_template_##row_name();          \
  void EPL_TEMPLATE_row_##row_name(::epl::TemplateTable& table);  \
  void EPL_TEMPLATE_row_##row_name(::epl::TemplateTable& table) { \
    table.rows.push_back(epl_template_##row_name());              \
    table.rows.back().name = #row_name;                           \
  }                                                               \
  static ::epl::ModelTemplate epl_template_##row_name()

}  // namespace epl
