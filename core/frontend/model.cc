#include "core/frontend/model.h"

#include "core/base/file.h"

namespace epl {

Result<std::shared_ptr<const Model>> load_model(const std::string& path) {
  std::vector<std::string> known;
  for (const Frontend& row : frontend_table().rows) {
    if (row.recognizes(path)) return row.load(path);
    known.push_back(cat(row.name, " (", row.doc, ")"));
  }
  // A path that is not a file is reported as that first.
  if (auto file = FileReader::open(path); !file.ok()) return file.status();
  return unsupported("no frontend recognises ", path, " by the end of its name; there are: ", join(known, ", "))
      .at(path);
}

}  // namespace epl
