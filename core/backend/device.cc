#include "core/backend/device.h"

namespace epl {

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Host& host, const DeviceOptions& options) {
  EPL_ASSIGN(const BackendRow* row, find_named(backend_table(), name, "device"));
  return row->open(host, options);
}

Result<std::unique_ptr<Communicator>> Device::join(const Joining& joining, Rendezvous&) {
  return unsupported("group ", joining.group, ": the ranks of this device (", description(), ") are of one process");
}

}  // namespace epl
