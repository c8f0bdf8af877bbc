// Families of models that can be written to a file at any size, so that nobody needs another framework for a first run.
// Frontends add rows; `options` of a row are its sizes with their defaults, for example {layers=4, width=128, seed=1}.
#pragma once

#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/options.h"
#include "core/base/table.h"

namespace epl {

struct ModelTemplate {
  std::string name;
  std::string doc;
  std::vector<Option> options;  // with defaults
  // `options` holds every option of the row, checked for type. Weights are drawn from the option "seed". Where `hook`
  // refuses an operation, nothing is left of the file.
  Status (*write)(const Attributes& options, const std::string& path, const FileHook& hook) = nullptr;
};
using TemplateTable = TableOf<ModelTemplate>;
const TemplateTable& template_table();  // generated

#define EPL_TEMPLATE(row_name) EPL_ROW(EPL_TEMPLATE, row_name, ::epl::TemplateTable, ::epl::ModelTemplate)

}  // namespace epl
