#include "backends/cpu/socket_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "backends/cpu/reduce.h"
#include "backends/cpu/stream_work.h"
#include "core/base/sha256.h"
#include "core/base/thread_pool.h"

namespace epl::cpu {
namespace {

using net::Carrier;
using net::Connections;
using net::FrameHead;
using net::Message;
using net::Ties;

constexpr size_t carried_from = 4096;  // bytes; what is smaller travels with its head
constexpr int ask_milliseconds = 20;   // how long a call waits for a carrier before it asks whether it should
constexpr int told_asks = 100;         // for what the others say of a carrier that has failed

// The body of a frame whose operand a carrier brings.
struct Carried {
  uint64_t number = 0, bytes = 0;
  Digest digest{};  // of the operand, where frames are signed: this one is
};

Digest digest_of(const void* bytes, size_t size) { return sha256({static_cast<const char*>(bytes), size}); }

class SocketCommunicator final : public Communicator {
 public:
  SocketCommunicator(const Ties& ties, Connections::Group& group, int rank)
      : ties_(ties),
        links_(ties.links),
        group_(group),
        rank_(rank),
        messages_(group.members.size()),
        receipts_(group.members.size()),
        digests_(group.members.size()),
        sources_(group.members.size()),
        packed_(group.members.size()),
        sent_(group.members.size()),
        received_(group.members.size()) {}
  ~SocketCommunicator() override { links_->leave(group_); }

  const std::string& group() const override { return group_.name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.members.size()); }

  Status run(Stream& stream, const Collective& call) override {
    Status status = carry_out(stream, call);
    for (Carrier::Receipt& receipt : receipts_) receipt = {};  // before the memory that they write to
    for (Message& message : messages_) links_->use_again(std::exchange(message, {}));
    if (!status.ok()) {
      links_->abort(group_, told_to_others(group_, rank_, status));  // peers must not wait for this rank
    } else if (!call.between_two()) {
      links_->complete(group_, calls_);
    }
    return status;
  }

  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    return split_process_group(ties_, *this, group_, name, members);
  }

  void abort(const Status& status) override { links_->abort(group_, status); }
  void watch(std::function<Status()> stop) override { links_->watch(std::move(stop)); }
  void hasten(std::function<bool()> asked) override { links_->hasten(std::move(asked)); }
  Status lost() const override { return links_->lost(); }
  bool has(int rank) override { return links_->has(rank); }
  void retire() override { links_->retire(); }
  void enter(const JobCall& call) override { links_->enter(call); }

 private:
  using Kind = Collective::Kind;
  using Bytes = std::span<const std::byte>;
  struct Segment {
    int64_t first = 0, count = 0;
  };

  Status carry_out(Stream& stream, const Collective& call) {
    EPL_TRY(links_->why_aborted(group_));
    EPL_TRY(check_collective(call, rank_, size()));
    if (call.reduces() && !can_reduce(call.dtype)) {
      return invalid("rank ", rank_, " called ", call.text(), ", a type that cannot be reduced");
    }
    EPL_TRY(stream.synchronize());
    doing_ = links_->doing();
    if (!call.between_two()) ++calls_;
    switch (call.kind) {
      case Kind::all_reduce:
        return all_reduce(stream, call);
      case Kind::reduce_scatter:
        return reduce_scatter(stream, call);
      case Kind::all_gather:
        return all_gather(call);
      case Kind::all_to_all:
        return all_to_all(call);
      case Kind::dispatch:
      case Kind::combine:
        return exchange_rows(call);
      case Kind::broadcast:
        return broadcast(call);
      case Kind::barrier:
        return exchange(call, 0, [](int) { return Bytes(); }, [](int) { return 0; });
      case Kind::send:
        return send(call);
      case Kind::receive:
        return receive(call);
    }
    return {};
  }

  static std::byte* at(void* memory, int64_t bytes) { return static_cast<std::byte*>(memory) + bytes; }
  static Bytes part(const void* memory, int64_t begin, int64_t bytes) {
    return {static_cast<const std::byte*>(memory) + begin, static_cast<size_t>(bytes)};
  }
  static void copy(std::byte* target, Bytes source) {
    if (!source.empty() && target != source.data()) std::memcpy(target, source.data(), source.size());
  }

  FrameHead head_of(const Collective& call, FrameHead::Type type, uint64_t number, uint32_t phase,
                    int64_t bytes) const {
    return {.type = type,
            .group = group_.id,
            .members = group_.members_hash,
            .call = number,
            .doing = doing_,
            .phase = phase,
            .kind = call.kind,
            .dtype = call.dtype,
            .reduction = call.reduction,
            .count = call.count,
            .peer = call.peer,
            .rows = call.rows,
            .bytes = static_cast<uint64_t>(bytes)};
  }

  Status give(int peer, FrameHead head, Bytes body) {
    const int joined = group_.members[static_cast<size_t>(peer)];
    if (!ties_.carrier || body.size() < carried_from) {
      links_->send(joined, head, body.data());
      return {};
    }
    Carried carried{.bytes = body.size()};
    auto number = ties_.carrier->send(joined, body);
    if (!number.ok()) return carrier_failed(head, peer, number.status());
    carried.number = *number;
    if (ties_.signs) carried.digest = digest_of(body.data(), body.size());
    head.carried = 1;
    head.bytes = sizeof carried;
    links_->send(joined, head, &carried);
    return {};
  }

  // What has been carried instead of coming with the message: room for it, and the carrier writes to that.
  Status begin_to_receive(Message& message, int peer) {
    Carried carried;
    std::memcpy(&carried, message.data(), sizeof carried);
    FrameHead head = message.head;
    head.carried = 0;
    head.bytes = carried.bytes;
    links_->use_again(std::exchange(message, links_->make_room(head)));
    auto receipt = ties_.carrier->receive(group_.members[static_cast<size_t>(peer)], carried.number, message.body.get(),
                                          static_cast<int64_t>(carried.bytes));
    if (!receipt.ok()) return carrier_failed(head, peer, receipt.status());
    receipts_[static_cast<size_t>(peer)] = std::move(*receipt);
    digests_[static_cast<size_t>(peer)] = carried.digest;
    return {};
  }

  // Until what `peer` has sent is there.
  Status finish_receiving(int peer) {
    Carrier::Receipt receipt = std::move(receipts_[static_cast<size_t>(peer)]);
    const FrameHead& head = messages_[static_cast<size_t>(peer)].head;
    const auto awaited = [&](int member) { return member == peer; };
    const bool carried = receipt.open();
    for (int64_t silent = 0; receipt.open(); silent += ask_milliseconds) {
      const Result<bool> come = receipt.wait(ask_milliseconds);
      if (!come.ok()) return carrier_failed(head, peer, come.status());
      if (*come) break;
      const Connections::Waiting waiting = links_->keep_waiting(group_, awaited, static_cast<double>(silent) * 1e-3);
      if (!waiting.status.ok()) return waiting.missing < 0 ? waiting.status : missing(head, peer, waiting.status);
    }
    const Bytes body = body_of(peer);
    if (!carried || !ties_.signs ||
        same_digest(digest_of(body.data(), body.size()), digests_[static_cast<size_t>(peer)]))
      return {};
    return missing(head, peer, error(Code::peer_failed, "what was carried for it was changed on its way"));
  }

  Status missing(const FrameHead& head, int peer, const Status& why) const {
    return error(Code::peer_failed, "group ", group_.name, ", call ", head.call, " of rank ", rank_, ", ",
                 called(head).text(), ": ", missing_text(ties_, group_, peer), ": ", why.message())
        .of_rank(group_.members[static_cast<size_t>(peer)]);
  }

  // A carrier notices a peer's end as well, and often first; what the others say of it is clearer.
  Status carrier_failed(const FrameHead& head, int peer, const Status& why) {
    for (int i = 0; i < told_asks; ++i) {
      const Connections::Waiting waiting = links_->keep_waiting(group_, [&](int member) { return member == peer; }, 0);
      if (!waiting.status.ok()) return waiting.missing < 0 ? waiting.status : missing(head, peer, waiting.status);
      std::this_thread::sleep_for(std::chrono::milliseconds(ask_milliseconds));
    }
    return error(Code::peer_failed, "group ", group_.name, ", call ", head.call, " of rank ", rank_, ", ",
                 called(head).text(), ", rank ", peer, ": ", why.message())
        .of_rank(group_.members[static_cast<size_t>(peer)]);
  }

  static Collective called(const FrameHead& head) {
    return {.kind = head.kind,
            .dtype = head.dtype,
            .count = head.count,
            .reduction = head.reduction,
            .peer = static_cast<int>(head.peer),
            .rows = head.rows};
  }

  // A message of `peer`, which must be of the same call and hold `bytes`. A carrier may still be writing it.
  Result<Message> next(const Collective& call, int peer, FrameHead::Type type, uint64_t number, uint32_t phase,
                       int64_t bytes) {
    Result<Message> message = links_->receive(group_, group_.members[static_cast<size_t>(peer)], type, number);
    if (!message.ok()) {
      if (message.status().code() != Code::peer_failed) return message.status();
      // Another rank may have seen it first; its message names the rank that is missing.
      if (Status aborted = links_->why_aborted(group_); !aborted.ok()) return aborted;
      return missing(head_of(call, type, number, phase, 0), peer, message.status());
    }
    const bool carried = ties_.carrier && message->head.carried != 0 && message->head.bytes == sizeof(Carried);
    if (carried) EPL_TRY(begin_to_receive(*message, peer));
    const FrameHead& head = message->head;
    const Collective theirs = called(head);
    if (head.doing != doing_) return links_->why_other_call(group_);
    const bool alike = agree(call, theirs) && head.call == number && head.phase == phase &&
                       head.members == group_.members_hash && head.bytes == static_cast<uint64_t>(bytes);
    if (alike) return message;
    const bool own_first = rank_ < peer;
    return error(Code::misuse, "ranks of group ", group_.name, " disagree at call ", number, ": rank ",
                 own_first ? rank_ : peer, " calls ", (own_first ? call : theirs).text(), ", rank ",
                 own_first ? peer : rank_, " calls ", (own_first ? theirs : call).text(),
                 head.members != group_.members_hash ? ", and they take other ranks for its members" : "");
  }

  // Gives every peer what is for it, and takes of each what it has for this rank into `messages_`.
  Status exchange(const Collective& call, uint32_t phase, FunctionRef<Bytes(int)> body_for,
                  FunctionRef<int64_t(int)> bytes_from) {
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank_ + step) % size();  // each starts with another one
      const Bytes body = body_for(peer);
      EPL_TRY(
          give(peer, head_of(call, FrameHead::Type::together, calls_, phase, static_cast<int64_t>(body.size())), body));
    }
    for (int step = 1; step < size(); ++step) {
      const int peer = (rank_ + size() - step) % size();
      Message& message = messages_[static_cast<size_t>(peer)];
      links_->use_again(std::exchange(message, {}));
      EPL_ASSIGN(message, next(call, peer, FrameHead::Type::together, calls_, phase, bytes_from(peer)));
    }
    for (int peer = 0; peer < size(); ++peer) EPL_TRY(finish_receiving(peer));
    return {};
  }
  Bytes body_of(int peer) const {
    const Message& message = messages_[static_cast<size_t>(peer)];
    return {message.data(), static_cast<size_t>(message.head.bytes)};
  }

  // The sum over ranks of what lies in `own` here and in the messages of the others, in the order of ranks.
  void reduce(Stream& stream, const Collective& call, const void* own, void* target, int64_t count) {
    for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = r == rank_ ? own : body_of(r).data();
    void* const targets[] = {target};
    share(stream, count, reduce_grain,
          [&](int64_t begin, int64_t end) { reduce_ranks(sources_, targets, begin, end, call.dtype, call.reduction); });
  }

  // Rank r reduces segment r for all.
  Segment segment(const Collective& call, int rank) const {
    const int64_t first = call.count / size() * rank + std::min<int64_t>(call.count % size(), rank);
    return {first, call.count / size() + (rank < call.count % size() ? 1 : 0)};
  }

  Status all_reduce(Stream& stream, const Collective& call) {
    const auto element = static_cast<int64_t>(dtype_bytes(call.dtype));
    const auto bytes_of = [&](int rank) { return segment(call, rank).count * element; };
    const auto part_of = [&](int rank) {
      return part(call.source, segment(call, rank).first * element, bytes_of(rank));
    };
    EPL_TRY(exchange(call, 0, part_of, [&](int) { return bytes_of(rank_); }));
    sum_.resize(std::max(sum_.size(), static_cast<size_t>(bytes_of(rank_))));
    reduce(stream, call, part_of(rank_).data(), sum_.data(), segment(call, rank_).count);
    const Bytes sum = part(sum_.data(), 0, bytes_of(rank_));
    EPL_TRY(exchange(call, 1, [&](int) { return sum; }, bytes_of));
    for (int r = 0; r < size(); ++r)
      copy(at(call.target, segment(call, r).first * element), r == rank_ ? sum : body_of(r));
    return {};
  }

  Status reduce_scatter(Stream& stream, const Collective& call) {
    const auto part_of = [&](int rank) { return part(call.source, rank * call.bytes(), call.bytes()); };
    EPL_TRY(exchange(call, 0, part_of, [&](int) { return call.bytes(); }));
    reduce(stream, call, part_of(rank_).data(), call.target, call.count);
    return {};
  }

  Status all_gather(const Collective& call) {
    const Bytes own = part(call.source, 0, call.bytes());
    EPL_TRY(exchange(call, 0, [&](int) { return own; }, [&](int) { return call.bytes(); }));
    for (int r = 0; r < size(); ++r) copy(at(call.target, r * call.bytes()), r == rank_ ? own : body_of(r));
    return {};
  }

  Status all_to_all(const Collective& call) {
    const auto part_of = [&](int rank) { return part(call.source, rank * call.bytes(), call.bytes()); };
    EPL_TRY(exchange(call, 0, part_of, [&](int) { return call.bytes(); }));
    for (int r = 0; r < size(); ++r) copy(at(call.target, r * call.bytes()), r == rank_ ? part_of(r) : body_of(r));
    return {};
  }

  // The rows for each peer one behind the other.
  Status exchange_rows(const Collective& call) {
    const auto bytes_from = [&](int from, int to) {
      int64_t all = 0;
      call.rows_between(from, to, size(), [&](int64_t, int64_t, int64_t bytes) { all += bytes; });
      return all;
    };
    const auto body_for = [&](int peer) {
      std::vector<std::byte>& body = packed_[static_cast<size_t>(peer)];
      body.resize(static_cast<size_t>(bytes_from(rank_, peer)));
      std::byte* next = body.data();
      call.rows_between(rank_, peer, size(), [&](int64_t source, int64_t, int64_t bytes) {
        copy(next, part(call.source, source, bytes));
        next += bytes;
      });
      return Bytes(body);
    };
    EPL_TRY(exchange(call, 0, body_for, [&](int peer) { return bytes_from(peer, rank_); }));
    for (int r = 0; r < size(); ++r) {
      int64_t next = 0;
      call.rows_between(r, rank_, size(), [&](int64_t source, int64_t target, int64_t bytes) {
        copy(at(call.target, target), r == rank_
                                          ? part(call.source, source, bytes)
                                          : body_of(r).subspan(static_cast<size_t>(next), static_cast<size_t>(bytes)));
        next += bytes;
      });
    }
    return {};
  }

  Status broadcast(const Collective& call) {
    const Bytes own = rank_ == call.peer ? part(call.source, 0, call.bytes()) : Bytes();
    EPL_TRY(
        exchange(call, 0, [&](int) { return own; }, [&](int peer) { return peer == call.peer ? call.bytes() : 0; }));
    copy(at(call.target, 0), rank_ == call.peer ? own : body_of(call.peer));
    return {};
  }

  Status send(const Collective& call) {
    const auto to = static_cast<size_t>(call.peer);
    return give(call.peer, head_of(call, FrameHead::Type::between_two, ++sent_[to], 0, call.bytes()),
                part(call.source, 0, call.bytes()));
  }

  Status receive(const Collective& call) {
    const auto from = static_cast<size_t>(call.peer);
    EPL_ASSIGN(messages_[from],
               next(call, call.peer, FrameHead::Type::between_two, ++received_[from], 0, call.bytes()));
    EPL_TRY(finish_receiving(call.peer));
    copy(at(call.target, 0), body_of(call.peer));
    return {};
  }

  const Ties ties_;
  const std::shared_ptr<Connections> links_;
  Connections::Group& group_;
  const int rank_;
  uint64_t calls_ = 0;
  uint64_t doing_ = 0;                      // of this call: see FrameHead
  std::vector<Message> messages_;           // of this call, by rank
  std::vector<Carrier::Receipt> receipts_;  // of what is to come into them
  std::vector<Digest> digests_;             // of that, where frames are signed
  std::vector<const void*> sources_;
  std::vector<std::byte> sum_;
  std::vector<std::vector<std::byte>> packed_;  // by rank: rows that go there
  std::vector<uint64_t> sent_, received_;       // by rank
};

}  // namespace

Result<std::unique_ptr<Communicator>> create_socket_communicator(const Ties& ties, Connections::Group& group,
                                                                 int rank) {
  return std::unique_ptr<Communicator>(new SocketCommunicator(ties, group, rank));
}

}  // namespace epl::cpu
