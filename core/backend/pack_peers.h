// Calls of ranks on several devices of a pack (pack_group.h). Each device does what its own ranks get, on a stream of
// its own: it fetches from the others, and reduces in its own memory, since its kernels reach no other one. So all
// links are used at once, and the order of a sum stays ours.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/backend/pack_stream.h"

namespace epl {

// Of one group and those split from it. Calls come one at a time.
class PackPeers {
 public:
  // What a call of several ranks is, by rank of the group.
  struct Call {
    std::span<const Collective> calls;
    std::span<const OpenedPack* const> on;                // the devices
    std::span<const std::shared_ptr<PackEvent>> arrived;  // where the streams stand
  };

  // For groups of so many ranks. Each device keeps `room_bytes` for operands of others.
  static Result<std::unique_ptr<PackPeers>> make(std::span<const std::shared_ptr<OpenedPack>> devices,
                                                 int64_t room_bytes, int ranks);
  ~PackPeers();
  PackPeers(const PackPeers&) = delete;
  PackPeers& operator=(const PackPeers&) = delete;

  // Behind this the stream stands where all of it is done.
  void carry_out(const Call& call, PackStream& own);

 private:
  // A device at work.
  struct Seat {
    std::shared_ptr<OpenedPack> opened;
    std::unique_ptr<PackStream> stream;
    std::unique_ptr<PackEvent> event;  // the end of what it was given last
    char* room = nullptr;              // for operands of other devices
  };
  class Work;

  explicit PackPeers(int64_t room_bytes) : room_bytes_(room_bytes) {}
  Status add(const std::shared_ptr<OpenedPack>& opened);

  const int64_t room_bytes_;  // of each
  std::vector<Seat> seats_;
};

}  // namespace epl
