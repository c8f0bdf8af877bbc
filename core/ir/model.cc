#include "core/ir/model.h"

namespace epl {

Result<std::shared_ptr<const Model>> load_model(const std::string& path) {
  FrontendTable table;
  fill_frontend_table(table);
  std::vector<std::string> known;
  for (const Frontend& row : table.rows) {
    if (row.recognizes(path)) return row.load(path);
    known.push_back(row.name);
  }
  return invalid("no frontend recognises ", path, "; there are: ", join(known, ", "));
}

}  // namespace epl
