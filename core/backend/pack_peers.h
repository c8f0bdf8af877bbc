// Calls of ranks on several devices of a pack (pack_group.h). Each device does what its own ranks get, on a stream of
// its own: it fetches from the others, and reduces in its own memory, since its kernels reach no other one. So all
// links are used at once, and the order of a sum stays ours. Where each rank has a device of its own, a library of the
// pack does what needs no order: it gathers and broadcasts, and sums where any order will do.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/pack_stream.h"

namespace epl {

struct PeerOptions {
  int64_t room_bytes = 0;  // that each device keeps for operands of others
  bool any_order = false;  // sums need not be in our order
  bool collects = false;   // the pack has a library of collectives
};

// As packs number the calls of their libraries.
int32_t library_kind(Collective::Kind kind);

// Of one group and those split from it. Calls come one at a time.
class PackPeers {
 public:
  // What a call of several ranks is, by rank of the group.
  struct Call {
    std::span<const Collective> calls;
    std::span<const OpenedPack* const> on;                // the devices
    std::span<const std::shared_ptr<PackEvent>> arrived;  // where the streams stand
  };

  // For groups of so many ranks.
  static Result<std::unique_ptr<PackPeers>> make(std::span<const std::shared_ptr<OpenedPack>> devices,
                                                 const PeerOptions& options, int ranks);
  ~PackPeers();
  PackPeers(const PackPeers&) = delete;
  PackPeers& operator=(const PackPeers&) = delete;

  // Behind this the stream stands where all of it is done.
  void carry_out(const Call& call, PackStream& own);
  // A device is lost: who waits for it in a collective of the library goes on. From now on copies serve.
  void abort();

 private:
  // A device at work.
  struct Seat {
    std::shared_ptr<OpenedPack> opened;
    std::unique_ptr<PackStream> stream;
    std::unique_ptr<PackEvent> event;  // the end of what it was given last
    char* room = nullptr;              // for operands of other devices
  };
  class Work;

  explicit PackPeers(const PeerOptions& options) : options_(options) {}
  Status add(const std::shared_ptr<OpenedPack>& opened);
  Status join();
  // The circle of a call that the library is to carry out, or null.
  Result<void*> circle_of(const Call& call);

  const PeerOptions options_;
  std::vector<Seat> seats_;
  // By the places of their devices; that of all of them is the one that others are split from.
  std::map<std::vector<int32_t>, void*> circles_;
  bool aborted_ = false;
};

}  // namespace epl
