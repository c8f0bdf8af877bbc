// Copies between a device that a pack is and memory that the program of the host has on one. See pack_foreign.h.
#pragma once

#include "core/backend/foreign.h"

namespace epl {

class PackStream;

class PackCopies final : public ForeignCopies {
 public:
  explicit PackCopies(PackStream& stream) : stream_(stream) {}
  void take(void* target, ForeignDevice& theirs, const void* source, int64_t bytes) override;
  void give(ForeignDevice& theirs, void* target, const void* source, int64_t bytes) override;
  bool finds(const ForeignDevice& theirs) const override;
  Status make_ready() override;
  void take_at(void* target, const void* place, int64_t offset, int64_t bytes) override;
  void give_at(const void* place, int64_t offset, const void* source, int64_t bytes) override;

 private:
  PackStream& stream_;
};

}  // namespace epl
