// What the program of the host has on a device that a pack is. See foreign.h and pack_device.h.
#pragma once

#include <memory>

#include "core/backend/pack_stream.h"

namespace epl {

class PackForeign final : public ForeignDevice {
 public:
  explicit PackForeign(std::shared_ptr<OpenedPack> opened) : opened_(std::move(opened)) {}
  std::unique_ptr<Event> create_event() override;
  Status record(int64_t stream, Event& event) override;
  Status read(void* host_target, const void* source, int64_t bytes, Event* behind) override;
  Status write(void* target, const void* host_source, int64_t bytes, Event* behind) override;

  const std::shared_ptr<OpenedPack>& opened() const { return opened_; }

 private:
  Result<PackStream*> own_stream();

  const std::shared_ptr<OpenedPack> opened_;
  std::unique_ptr<PackStream> stream_;  // of what goes through the host, once there is any
};

// Null: it is another device, or its pack has no verbs for this.
std::shared_ptr<ForeignDevice> pack_foreign(const std::shared_ptr<OpenedPack>& opened, std::string_view name);

}  // namespace epl
