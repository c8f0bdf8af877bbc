#include "core/backend/device.h"

namespace epl {

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Host& host, const DeviceOptions& options) {
  BackendTable table;
  fill_backend_table(table);
  std::vector<std::string> known;
  for (const BackendRow& row : table.rows) {
    if (row.name == name) return row.open(host, options);
    known.push_back(row.name);
  }
  return error(Code::not_found, "no backend \"", name, "\"; there are: ", join(known, ", "));
}

}  // namespace epl
