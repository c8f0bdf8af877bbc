// Memory of a device that a pack is. See pack_device.h.
#pragma once

#include <memory>
#include <utility>

#include "core/backend/pack_stream.h"

namespace epl {

class PackBuffer final : public Buffer {
 public:
  PackBuffer(std::shared_ptr<OpenedPack> opened, void* data, int64_t bytes, int64_t held)
      : opened_(std::move(opened)), data_(data), bytes_(bytes), held_(held) {}
  ~PackBuffer() override {
    opened_->verbs->release(opened_->handle, data_);
    opened_->in_use.fetch_sub(held_, std::memory_order_relaxed);
  }
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const data_;
  const int64_t bytes_, held_;
};

}  // namespace epl
