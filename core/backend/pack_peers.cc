#include "core/backend/pack_peers.h"

#include <algorithm>
#include <numeric>

namespace epl {
namespace {

constexpr int64_t room_alignment = 256;

}  // namespace

int32_t library_kind(Collective::Kind kind) {
  switch (kind) {
    case Collective::Kind::all_reduce:
      return EPL_PACK_ALL_REDUCE;
    case Collective::Kind::reduce_scatter:
      return EPL_PACK_REDUCE_SCATTER;
    case Collective::Kind::all_gather:
      return EPL_PACK_ALL_GATHER;
    default:
      return EPL_PACK_BROADCAST;
  }
}

Result<std::unique_ptr<PackPeers>> PackPeers::make(std::span<const std::shared_ptr<OpenedPack>> devices,
                                                   const PeerOptions& options, int ranks) {
  if (options.room_bytes / room_alignment < ranks)
    return invalid(grouped(options.room_bytes), " bytes for sums over devices are too few for ", ranks, " ranks");
  std::unique_ptr<PackPeers> made(new PackPeers(options));
  made->seats_.reserve(devices.size());
  for (const std::shared_ptr<OpenedPack>& opened : devices) EPL_TRY(made->add(opened));
  // A circle has one rank of each device.
  if (options.collects && ranks <= std::ssize(devices)) EPL_TRY(made->join());
  return made;
}

Status PackPeers::join() {
  std::vector<void*> handles;
  std::vector<int32_t> places;
  for (const Seat& seat : seats_) {
    places.push_back(static_cast<int32_t>(handles.size()));
    handles.push_back(seat.opened->handle);
  }
  const OpenedPack& first = *seats_.front().opened;
  const PackReason reason;
  void* circle = nullptr;
  const int32_t result =
      first.verbs->join_circle(handles.data(), static_cast<int32_t>(handles.size()), &circle, &reason.to);
  if (result != 0) return pack_status(first, result, reason, cat("joining ", handles.size(), " devices"));
  circles_.emplace(std::move(places), circle);
  return {};
}

Result<void*> PackPeers::circle_of(const Call& call) {
  const Collective& first = call.calls[0];
  const bool moves = first.kind == Collective::Kind::all_gather || first.kind == Collective::Kind::broadcast;
  const bool sums = first.reduces() && options_.any_order && first.reduction == Reduction::sum;
  if (circles_.empty() || aborted_ || first.count <= 0 || !(moves || sums)) return nullptr;
  std::vector<int32_t> places;
  for (const OpenedPack* device : call.on) {
    const auto seat = std::ranges::find_if(seats_, [&](const Seat& one) { return one.opened.get() == device; });
    const auto place = static_cast<int32_t>(seat - seats_.begin());
    if (!places.empty() && place <= places.back()) return nullptr;  // two on one, or another order than the circle's
    places.push_back(place);
  }
  void*& circle = circles_[places];
  if (circle != nullptr) return circle;
  const OpenedPack& giver = *seats_.front().opened;
  std::vector<int32_t> all(seats_.size());
  std::iota(all.begin(), all.end(), 0);
  const PackReason reason;
  int32_t result = 0;
  for (const Seat& seat : seats_)  // a library may wait for ever to split what is at work
    if (result == 0) result = seat.opened->verbs->synchronize(seat.stream->handle(), &reason.to);
  if (result == 0)
    result = giver.verbs->split_circle(circles_.at(all), places.data(), static_cast<int32_t>(places.size()), &circle,
                                       &reason.to);
  if (result == 0) return circle;
  circles_.erase(places);
  return pack_status(giver, result, reason, cat("a circle of ", places.size(), " of ", all.size(), " devices"));
}

void PackPeers::abort() {
  if (aborted_) return;
  aborted_ = true;
  for (const auto& [places, circle] : circles_) seats_.front().opened->verbs->abort_circle(circle);
}

Status PackPeers::add(const std::shared_ptr<OpenedPack>& opened) {
  Seat& seat = seats_.emplace_back();
  seat.opened = opened;
  const PackReason reason;
  void *stream = nullptr, *room = nullptr;
  int32_t result = opened->verbs->create_stream(opened->handle, &stream, &reason.to);
  if (result != 0) return pack_status(*opened, result, reason, "a stream for transfers");
  seat.stream = std::make_unique<PackStream>(opened, stream);
  EPL_ASSIGN(seat.event, PackEvent::make(opened));
  result = opened->verbs->allocate(opened->handle, static_cast<uint64_t>(options_.room_bytes), &room, &reason.to);
  if (result != 0) return pack_status(*opened, result, reason, "room for sums over devices");
  seat.room = static_cast<char*>(room);
  opened->in_use.fetch_add(options_.room_bytes, std::memory_order_relaxed);
  return {};
}

PackPeers::~PackPeers() {
  for (Seat& seat : seats_) seat.stream.reset();  // it waits
  for (const auto& [places, circle] : circles_) seats_.front().opened->verbs->leave_circle(circle);
  for (Seat& seat : seats_) {
    if (seat.room == nullptr) continue;
    seat.opened->verbs->release(seat.opened->handle, seat.room);
    seat.opened->in_use.fetch_sub(options_.room_bytes, std::memory_order_relaxed);
  }
}

// One call as commands of the seats of its ranks.
class PackPeers::Work {
 public:
  Work(std::vector<Seat>& seats, int64_t room_bytes, const Call& call) : calls_(call.calls), room_bytes_(room_bytes) {
    for (const OpenedPack* device : call.on) {
      const auto seat = std::ranges::find_if(seats, [&](const Seat& one) { return one.opened.get() == device; });
      on_.push_back(&*seat);
      if (std::ranges::find(seats_, &*seat) == seats_.end()) seats_.push_back(&*seat);
    }
    for (Seat* seat : seats_)
      for (const std::shared_ptr<PackEvent>& event : call.arrived) seat->stream->wait(*event);
  }

  void carry_out() {
    const int size = static_cast<int>(calls_.size());
    switch (first().kind) {
      case Collective::Kind::all_reduce:
        return all_reduce();
      case Collective::Kind::reduce_scatter:
        for (int r = 0; r < size; ++r) reduce(seat(r), r * first().bytes(), {target(r)}, first().count);
        return;
      case Collective::Kind::all_gather:
      case Collective::Kind::all_to_all:
        for (int r = 0; r < size; ++r) {
          const int64_t segment = first().kind == Collective::Kind::all_to_all ? r * first().bytes() : 0;
          for (int p = 0; p < size; ++p) copy(r, target(r) + p * first().bytes(), p, source(p) + segment);
        }
        return;
      case Collective::Kind::dispatch:
      case Collective::Kind::combine:
        return rows_by_owners();
      case Collective::Kind::broadcast:
        for (int r = 0; r < size; ++r)
          if (r != first().peer) copy(r, target(r), first().peer, source(first().peer));
        return;
      case Collective::Kind::send:
      case Collective::Kind::receive:
        return copy(1, target(1), 0, source(0));
      case Collective::Kind::barrier:
        return;
    }
  }

  // By the pack's library. Not where a rank has failed: the others would wait for it.
  void collect(void* circle) {
    if (std::ranges::any_of(seats_, [](const Seat* seat) { return seat->stream->failed(); })) return;
    const bool sums = first().reduces();
    std::vector<void*> streams, targets;
    std::vector<const void*> sources;
    for (int r = 0; r < static_cast<int>(calls_.size()); ++r) {
      streams.push_back(seat(r).stream->handle());
      sources.push_back(source(r));
      // Who broadcasts has no target of its own.
      const bool gives = first().kind == Collective::Kind::broadcast && r == first().peer;
      targets.push_back(gives ? const_cast<char*>(source(r)) : target(r));
    }
    const epl_pack_collective call = {.struct_size = sizeof call,
                                      .kind = library_kind(first().kind),
                                      .dtype = sums ? static_cast<int32_t>(first().dtype) + 1 : 0,
                                      .count = sums ? first().count : first().bytes(),
                                      .streams = streams.data(),
                                      .sources = sources.data(),
                                      .targets = targets.data(),
                                      .root = first().peer,
                                      .reserved = 0};
    Seat& speaker = *seats_.front();
    speaker.stream->issue_now(first().text(), [&](const epl_pack_reason* reason) {
      return speaker.opened->verbs->collect(circle, &call, reason);
    });
  }

  // `stream` waits for all seats, and has the failure of any.
  void finish(PackStream& stream) {
    for (Seat* seat : seats_) {
      seat->stream->record_now(*seat->event);
      stream.wait(*seat->event);
      if (const Status failed = seat->stream->take_failure(); !failed.ok()) stream.fail(failed);
    }
  }

 private:
  const Collective& first() const { return calls_[0]; }
  Seat& seat(int rank) const { return *on_[static_cast<size_t>(rank)]; }
  const char* source(int rank) const { return static_cast<const char*>(calls_[static_cast<size_t>(rank)].source); }
  char* target(int rank) const { return static_cast<char*>(calls_[static_cast<size_t>(rank)].target); }

  void copy(int to, char* target, int from, const char* source) { copy(to, target, from, source, first().bytes()); }
  void copy(int to, char* target, int from, const char* source, int64_t bytes) {
    fetch(seat(to), target, seat(from), source, bytes);
  }
  // By the stream of `own`, to its memory.
  static void fetch(Seat& own, char* target, const Seat& from, const char* source, int64_t bytes) {
    if (bytes <= 0 || target == source) return;
    PackStream& stream = *own.stream;
    const epl_pack_device& verbs = *own.opened->verbs;
    const auto size = static_cast<uint64_t>(bytes);
    if (&own == &from) {
      stream.issue_now("a copy between ranks", [&](const epl_pack_reason* reason) {
        return verbs.copy(stream.handle(), target, source, size, reason);
      });
      return;
    }
    stream.issue_now("a copy from another device", [&](const epl_pack_reason* reason) {
      return verbs.copy_between(stream.handle(), own.opened->handle, target, from.opened->handle, source, size, reason);
    });
  }

  // What the seats were given so far comes before what they are given next.
  void meet() {
    for (Seat* seat : seats_) seat->stream->record_now(*seat->event);
    for (Seat* one : seats_)
      for (Seat* other : seats_)
        if (one != other) one->stream->wait(*other->event);
  }

  std::vector<int> ranks_of(const Seat& own) const {
    std::vector<int> ranks;
    for (int r = 0; r < static_cast<int>(on_.size()); ++r)
      if (&seat(r) == &own) ranks.push_back(r);
    return ranks;
  }

  // Each device reduces a share for its own ranks, and then fetches the shares of the others.
  void all_reduce() {
    const int64_t devices = std::ssize(seats_);
    const int64_t element = static_cast<int64_t>(dtype_bytes(first().dtype));
    const auto begin = [&](int64_t share) { return first().count * share / devices; };
    for (int64_t d = 0; d < devices; ++d) {
      std::vector<char*> targets;
      for (const int r : ranks_of(*seats_[static_cast<size_t>(d)])) targets.push_back(target(r) + begin(d) * element);
      reduce(*seats_[static_cast<size_t>(d)], begin(d) * element, targets, begin(d + 1) - begin(d));
    }
    meet();
    for (Seat* own : seats_) {
      const std::vector<int> ranks = ranks_of(*own);
      for (int64_t d = 0; d < devices; ++d) {
        const Seat& from = *seats_[static_cast<size_t>(d)];
        if (&from == own) continue;
        const int64_t at = begin(d) * element, bytes = begin(d + 1) * element - at;
        const int giver = ranks_of(from).front();
        fetch(*own, target(ranks[0]) + at, from, target(giver) + at, bytes);
        for (size_t i = 1; i < ranks.size(); ++i)
          fetch(*own, target(ranks[i]) + at, *own, target(ranks[0]) + at, bytes);
      }
    }
  }

  // Of all sources, from this byte on, so many elements to targets of one device: piece by piece where some are
  // elsewhere.
  void reduce(Seat& own, int64_t offset, const std::vector<char*>& targets, int64_t count) {
    const int size = static_cast<int>(calls_.size());
    const int64_t element = static_cast<int64_t>(dtype_bytes(first().dtype));
    const int64_t far = size - std::ssize(ranks_of(own));
    const int64_t place = far == 0 ? 0 : room_bytes_ / far / room_alignment * room_alignment;
    const int64_t piece = far == 0 ? count : place / element;
    std::vector<const void*> sources(static_cast<size_t>(size));
    for (int64_t at = 0; at < count; at += piece) {
      const int64_t n = std::min(piece, count - at), position = offset + at * element;
      char* room = own.room;
      for (int p = 0; p < size; ++p) {
        const char* from = source(p) + position;
        if (&seat(p) != &own) {
          fetch(own, room, seat(p), from, n * element);
          from = room;
          room += place;
        }
        sources[static_cast<size_t>(p)] = from;
      }
      reduce_piece(own, sources, targets, at * element, n);
    }
  }
  void reduce_piece(Seat& own, const std::vector<const void*>& sources, const std::vector<char*>& targets,
                    int64_t offset, int64_t count) {
    std::vector<void*> at;
    for (char* target : targets) at.push_back(target + offset);
    const epl_pack_reduction reduction = {.struct_size = sizeof reduction,
                                          .sources = sources.data(),
                                          .targets = at.data(),
                                          .ranks = static_cast<int32_t>(sources.size()),
                                          .target_count = static_cast<int32_t>(at.size()),
                                          .count = count,
                                          .dtype = static_cast<int32_t>(first().dtype) + 1,
                                          .reduction = static_cast<int32_t>(first().reduction)};
    own.stream->issue_now("a reduction over ranks", [&](const epl_pack_reason* reason) {
      return own.opened->verbs->reduce(own.stream->handle(), &reduction, reason);
    });
  }

  // The owners are in a device's memory, and say which copies there are: they have to be read first.
  void rows_by_owners() {
    const int size = static_cast<int>(calls_.size());
    std::vector<int64_t> owners(static_cast<size_t>(first().rows * size));
    const uint64_t bytes = owners.size() * sizeof(int64_t);
    Seat& reader = seat(0);
    const epl_pack_device& verbs = *reader.opened->verbs;
    reader.stream->issue_now("who owns rows", [&](const epl_pack_reason* reason) {
      const int32_t result =
          bytes == 0 ? 0 : verbs.download(reader.stream->handle(), owners.data(), first().owners, bytes, reason);
      return result != 0 ? result : verbs.synchronize(reader.stream->handle(), reason);
    });
    if (reader.stream->failed()) return;
    for (int r = 0; r < size; ++r) {
      Collective call = calls_[static_cast<size_t>(r)];
      call.owners = owners.data();
      for (int p = 0; p < size; ++p) {
        call.rows_between(p, r, size, [&](int64_t from, int64_t to, int64_t run) {
          copy(r, target(r) + to, p, source(p) + from, run);
        });
      }
    }
  }

  const std::span<const Collective> calls_;
  const int64_t room_bytes_;
  std::vector<Seat*> on_;     // by rank
  std::vector<Seat*> seats_;  // each once
};

void PackPeers::carry_out(const Call& call, PackStream& own) {
  if (call.calls[0].kind == Collective::Kind::barrier) {
    for (const std::shared_ptr<PackEvent>& event : call.arrived) own.wait(*event);
    return;
  }
  const Result<void*> circle = circle_of(call);
  if (!circle.ok()) return own.fail(circle.status());
  Work work(seats_, options_.room_bytes, call);
  if (*circle != nullptr) {
    work.collect(*circle);
  } else {
    work.carry_out();
  }
  work.finish(own);
}

}  // namespace epl
