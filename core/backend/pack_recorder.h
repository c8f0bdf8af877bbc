// Recordings of a device that a pack is. See pack_device.h.
#pragma once

#include <memory>

#include "core/backend/device.h"

namespace epl {

class PackStream;

class PackRecorder final : public StreamRecorder {
 public:
  explicit PackRecorder(PackStream& stream) : stream_(stream) {}
  Result<std::unique_ptr<Buffer>> allocate_staging(int64_t bytes) override;
  Status begin() override;
  Result<std::unique_ptr<Recording>> end() override;
  void replay(const Recording& recording) override;

 private:
  PackStream& stream_;
};

}  // namespace epl
