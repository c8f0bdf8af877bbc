#include "core/backend/device.h"

#include <mutex>
#include <utility>

#include "core/base/check.h"

namespace epl {
namespace {

struct Added {
  std::mutex mutex;
  BackendTable table;
};
Added& added() {
  static Added all;
  return all;
}

}  // namespace

void add_backend(BackendRow row) {
  std::lock_guard lock(added().mutex);
  added().table.rows.push_back(std::move(row));
}

Result<std::shared_ptr<Device>> open_device(std::string_view name, const Host& host, const DeviceOptions& options) {
  BackendTable known;
  {
    std::lock_guard lock(added().mutex);
    known = added().table;
  }
  for (const BackendRow& row : backend_table().rows) known.rows.push_back(row);
  EPL_ASSIGN(const BackendRow* row, find_named(known, name, "device"));
  return row->open(host, options);
}

void Stream::guard(const int64_t* verdict) {
  EPL_CHECK(verdict == nullptr, "a stream of a device that guards nothing");
}

Result<std::unique_ptr<Communicator>> Device::join(const Joining& joining, Rendezvous&) {
  return unsupported("group ", joining.group, ": the ranks of this device (", description(), ") are of one process");
}

}  // namespace epl
