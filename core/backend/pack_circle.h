// Ranks of several processes, each on a device of its own that a pack is: what they gather, broadcast and reduce goes
// from device to device by the pack's library. It says neither who is missing nor who calls something else, and would
// wait for ever. So all waiting for others is done in a group on the host, where ranks tell each other what they call
// and whether it is done: who is missing is named there, deadlines and aborts come from there, and then the library is
// made to give up.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/backend/pack_stream.h"

namespace epl {

// What a rank brings.
struct CircleMeans {
  std::shared_ptr<OpenedPack> opened;
  bool any_order = false;                  // sums need not be in our order
  int64_t room_bytes = int64_t{32} << 20;  // for operands that it reduces itself, piece by piece
};

// What the device says of itself (Communicator::card); empty where it can join no circle.
std::string circle_card(const OpenedPack& opened);
// Whether ranks with these cards can join one.
bool can_meet(std::span<const std::string> cards);

// Thread safety: as a communicator's calls.
class PackCircle {
 public:
  // All ranks of `there` at the same time, a group on the host that lives longer. Null and `why` where some device does
  // not join: on all ranks alike.
  static Result<std::unique_ptr<PackCircle>> join(const CircleMeans& means, Communicator& there, Stream& host_stream,
                                                  std::string& why);
  ~PackCircle();
  PackCircle(const PackCircle&) = delete;
  PackCircle& operator=(const PackCircle&) = delete;

  // What it carries out, of calls that all ranks may make.
  static bool takes(const Collective& call);
  // Keeps its caller until all ranks have done their part. After an error it serves for nothing.
  Status run(PackStream& stream, const Collective& call);

 private:
  PackCircle(const CircleMeans& means, Communicator& there, Stream& host_stream)
      : means_(means), there_(there), host_stream_(host_stream) {}
  Status reduce(PackStream& stream, const Collective& call);
  // By the library: `part` of a call.
  Status collect(PackStream& stream, const Collective& call, const Collective& part);
  // Until all ranks are done. -1, or a rank whose device has failed; `own` is why this one has.
  Result<int> await(const std::string& what, PackStream* stream, Status& own);
  // Whether this rank is done, asked so often.
  bool ask(PackStream* stream, int times, Status& own) const;
  Status make_room(int64_t bytes);
  const epl_pack_device& verbs() const { return *means_.opened->verbs; }

  const CircleMeans means_;
  Communicator& there_;
  Stream& host_stream_;
  void* circle_ = nullptr;
  void* room_ = nullptr;
  int64_t room_bytes_ = 0;
  bool ended_ = false;
};

}  // namespace epl
