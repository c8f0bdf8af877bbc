#include "core/backend/pack_group.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "core/backend/pack_peers.h"
#include "core/backend/posted_group.h"

namespace epl {
namespace {

using Kind = Collective::Kind;

// What a group and those split from it share.
class Shared : public std::enable_shared_from_this<Shared> {
 public:
  explicit Shared(std::unique_ptr<PackPeers> between) : peers(std::move(between)) {}
  std::mutex& lock() { return mutex_; }

  // An event that nobody uses, which comes back when it is dropped. Under the lock.
  Result<std::shared_ptr<PackEvent>> event(const std::shared_ptr<OpenedPack>& opened) {
    std::unique_ptr<PackEvent> made;
    {
      std::lock_guard lock(events_mutex_);
      std::vector<std::unique_ptr<PackEvent>>& idle = idle_[opened.get()];
      if (!idle.empty()) {
        made = std::move(idle.back());
        idle.pop_back();
      }
    }
    if (!made) {
      EPL_ASSIGN(made, PackEvent::make(opened));
    }
    return std::shared_ptr<PackEvent>(made.release(),
                                      [self = shared_from_this(), device = opened.get()](PackEvent* used) {
                                        std::lock_guard lock(self->events_mutex_);
                                        self->idle_[device].emplace_back(used);
                                      });
  }

  const std::unique_ptr<PackPeers> peers;  // null where there is one device
  std::condition_variable changed;         // some call has become complete, or will not

 private:
  std::mutex mutex_, events_mutex_;
  std::map<const OpenedPack*, std::vector<std::unique_ptr<PackEvent>>> idle_;  // an event keeps its device
};

// One call of all ranks, or of a sender and its receiver.
struct CollectiveCall final : OpenCall {
  CollectiveCall(std::shared_ptr<Shared> with, int seats)
      : shared(std::move(with)),
        calls(static_cast<size_t>(seats)),
        arrived(static_cast<size_t>(seats)),
        on(static_cast<size_t>(seats)) {}

  Result<std::shared_ptr<PackEvent>> wait() override {
    std::unique_lock lock(shared->lock());
    shared->changed.wait(lock, [&] { return done != nullptr || !failure.ok(); });
    if (!failure.ok()) return failure;
    return done;
  }

  const std::shared_ptr<Shared> shared;
  std::vector<Collective> calls;                    // by rank of the group, or of sender and receiver
  std::vector<std::shared_ptr<PackEvent>> arrived;  // null: it has not been called
  std::vector<const OpenedPack*> on;                // the devices, as far as it has been called
  std::shared_ptr<PackEvent> done;
  Status failure;
};

// The calls of all ranks as commands of one stream.
class Work {
 public:
  Work(const CollectiveCall& collective, PackStream& stream) : calls_(collective.calls), stream_(stream) {}

  void carry_out() {
    const int size = static_cast<int>(calls_.size());
    switch (first().kind) {
      case Kind::all_reduce:
        return all_reduce();
      case Kind::reduce_scatter:
        for (int r = 0; r < size; ++r) reduce_segment(r);
        return;
      case Kind::all_gather:
      case Kind::all_to_all:
        for (int r = 0; r < size; ++r)
          for (int p = 0; p < size; ++p) move(r, p, source(p, first().kind == Kind::all_to_all ? r : 0));
        return;
      case Kind::dispatch:
      case Kind::combine:
        return rows_by_owners();
      case Kind::broadcast:
        for (int r = 0; r < size; ++r)
          if (r != first().peer) move(r, 0, source(first().peer, 0));
        return;
      case Kind::send:
      case Kind::receive:
        return move(1, 0, source(0, 0));
      case Kind::barrier:
        return;
    }
  }

 private:
  const Collective& first() const { return calls_[0]; }
  const char* source(int rank, int64_t segment) const {
    return static_cast<const char*>(calls_[static_cast<size_t>(rank)].source) + segment * first().bytes();
  }
  char* target(int rank, int64_t segment) const {
    return static_cast<char*>(calls_[static_cast<size_t>(rank)].target) + segment * first().bytes();
  }
  void move(int to, int64_t segment, const void* from) {
    if (target(to, segment) != from) copy(target(to, segment), from, first().bytes());
  }

  void copy(void* to, const void* from, int64_t bytes) {
    if (bytes <= 0) return;
    stream_.issue_now("a copy between ranks", [&](const epl_pack_reason* reason) {
      return verbs().copy(stream_.handle(), to, from, static_cast<uint64_t>(bytes), reason);
    });
  }
  const epl_pack_device& verbs() const { return *stream_.opened()->verbs; }

  void all_reduce() {
    std::vector<const void*> sources;
    std::vector<void*> targets;
    for (const Collective& call : calls_) {
      sources.push_back(call.source);
      targets.push_back(call.target);
    }
    reduce(sources, targets);
  }
  void reduce_segment(int rank) {
    std::vector<const void*> sources;
    for (int p = 0; p < static_cast<int>(calls_.size()); ++p) sources.push_back(source(p, rank));
    reduce(sources, {target(rank, 0)});
  }
  void reduce(const std::vector<const void*>& sources, const std::vector<void*>& targets) {
    if (first().count <= 0) return;
    const epl_pack_reduction reduction = {.struct_size = sizeof reduction,
                                          .sources = sources.data(),
                                          .targets = targets.data(),
                                          .ranks = static_cast<int32_t>(sources.size()),
                                          .target_count = static_cast<int32_t>(targets.size()),
                                          .count = first().count,
                                          .dtype = static_cast<int32_t>(first().dtype) + 1,
                                          .reduction = static_cast<int32_t>(first().reduction)};
    stream_.issue_now("a reduction over ranks", [&](const epl_pack_reason* reason) {
      return verbs().reduce(stream_.handle(), &reduction, reason);
    });
  }
  // The owners are in the device's memory, and say which copies there are: they have to be read first.
  void rows_by_owners() {
    const int size = static_cast<int>(calls_.size());
    std::vector<int64_t> owners(static_cast<size_t>(first().rows * size));
    const uint64_t bytes = owners.size() * sizeof(int64_t);
    stream_.issue_now("who owns rows", [&](const epl_pack_reason* reason) {
      const int32_t result =
          bytes == 0 ? 0 : verbs().download(stream_.handle(), owners.data(), first().owners, bytes, reason);
      return result != 0 ? result : verbs().synchronize(stream_.handle(), reason);
    });
    if (stream_.failed()) return;
    for (int r = 0; r < size; ++r) {
      Collective call = calls_[static_cast<size_t>(r)];
      call.owners = owners.data();
      for (int p = 0; p < size; ++p) {
        call.rows_between(p, r, size, [&](int64_t from, int64_t to, int64_t run) {
          copy(target(r, 0) + to, source(p, 0) + from, run);
        });
      }
    }
  }

  const std::vector<Collective>& calls_;
  PackStream& stream_;
};

bool can_reduce(DType dtype) { return is_float(dtype) || dtype == DType::i64; }

struct PackWay {
  using Shared = epl::Shared;
  using CollectiveCall = epl::CollectiveCall;
  using Group = PostedGroup<PackWay>;

  static Status fits(int rank, const Collective& call) {
    if (!call.reduces() || can_reduce(call.dtype)) return {};
    return invalid("rank ", rank, " called ", call.text(), ", a type that cannot be reduced");
  }
  // A send reads nothing that an open send writes.
  static void settle(Stream& stream, std::span<const Collective> calls) {
    auto& own = static_cast<PackStream&>(stream);
    const bool sends = std::ranges::all_of(calls, [](const Collective& c) { return c.kind == Kind::send; });
    if (!sends || !own.only_sends_are_open()) own.settle();
  }
  static std::shared_ptr<CollectiveCall> begin(Group& group, const Collective&, std::span<const int> ranks) {
    return std::make_shared<CollectiveCall>(group.shared, static_cast<int>(ranks.size()));
  }
  static void join(const std::shared_ptr<Group>& group, const std::shared_ptr<CollectiveCall>& collective, int seat,
                   Stream& stream, const Collective& call) {
    auto& own = static_cast<PackStream&>(stream);
    collective->calls[static_cast<size_t>(seat)] = call;
    const Status failure = arrive(*group, *collective, seat, own);
    if (!failure.ok()) {
      collective->failure = failure;
      own.fail(failure);
    } else if (collective->done == nullptr && collective->failure.ok()) {
      own.add(collective, call.kind == Kind::send);
      return;
    }
    if (!collective->failure.ok()) own.fail(collective->failure);
    group->shared->changed.notify_all();
  }
  static void abort(Group& group, const std::vector<std::shared_ptr<CollectiveCall>>& incomplete) {
    for (const std::shared_ptr<CollectiveCall>& collective : incomplete) {
      if (collective->done == nullptr && collective->failure.ok()) collective->failure = group.status;
    }
    // Only then does the library wait for ever. Calls that all have made take place in every other case.
    if (group.shared->peers && group.status.code() == Code::state_lost) group.shared->peers->abort();
    group.shared->changed.notify_all();
  }

 private:
  // `own` stands at the call; the last to come carries it out.
  static Status arrive(const Group& group, CollectiveCall& collective, int seat, PackStream& own) {
    EPL_ASSIGN(collective.arrived[static_cast<size_t>(seat)], group.shared->event(own.opened()));
    collective.on[static_cast<size_t>(seat)] = own.opened().get();
    own.record_now(*collective.arrived[static_cast<size_t>(seat)]);
    if (std::ranges::any_of(collective.arrived, [](const auto& event) { return event == nullptr; })) return {};
    EPL_ASSIGN(const std::shared_ptr<PackEvent> done, group.shared->event(own.opened()));
    if (std::ranges::all_of(collective.on, [&](const OpenedPack* device) { return device == own.opened().get(); })) {
      for (const std::shared_ptr<PackEvent>& event : collective.arrived) own.wait(*event);
      Work(collective, own).carry_out();
    } else {
      group.shared->peers->carry_out({collective.calls, collective.on, collective.arrived}, own);
    }
    own.record_now(*done);
    collective.done = done;
    return {};
  }
};

}  // namespace

Result<std::vector<std::unique_ptr<Communicator>>> create_pack_group(std::vector<std::shared_ptr<OpenedPack>> devices,
                                                                     const PeerOptions& options,
                                                                     const std::string& name, int ranks) {
  std::unique_ptr<PackPeers> peers;
  if (devices.size() > 1 && ranks > 1) {
    EPL_ASSIGN(peers, PackPeers::make(devices, options, ranks));
  }
  return create_posted_group<PackWay>(std::make_shared<Shared>(std::move(peers)), name, ranks);
}

}  // namespace epl
