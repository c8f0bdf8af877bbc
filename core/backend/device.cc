#include "core/backend/device.h"

#include "core/base/suggestion.h"

namespace epl {

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Host& host, const DeviceOptions& options) {
  BackendTable table;
  fill_backend_table(table);
  std::vector<std::string> known;
  for (const BackendRow& row : table.rows) {
    if (row.name == name) return row.open(host, options);
    known.push_back(row.name);
  }
  return error(Code::unsupported, "no backend ", quoted(name), " in this build", choices(name, known));
}

Result<std::unique_ptr<Communicator>> Device::join(const Joining& joining, Rendezvous&) {
  return unsupported("group ", joining.group, ": the ranks of this device (", description(), ") are of one process");
}

}  // namespace epl
