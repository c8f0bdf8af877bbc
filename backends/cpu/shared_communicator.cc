#include "backends/cpu/shared_communicator.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/reduce.h"
#include "backends/cpu/stream_work.h"
#include "core/backend/device.h"
#include "core/base/cache_line.h"
#include "core/base/thread_pool.h"
#include "core/net/shared_group.h"

namespace epl::cpu {
namespace {

using net::Arrival;
using net::Called;
using net::Connections;
using net::FrameHead;
using net::Mail;
using net::Message;
using net::SharedGroup;
using net::Ties;

constexpr int64_t small_bytes = 32 << 10;  // of all ranks together, that each reduces by itself
constexpr int64_t part_grain = 256 << 10;  // bytes

class SharedCommunicator final : public SharedGroup {
 public:
  SharedCommunicator(const Ties& ties, Connections::Group& group, int rank)
      : SharedGroup(ties, group, rank),
        sources_(group.members.size()),
        outboxes_(group.members.size()),
        received_(group.members.size()) {
    targets_.reserve(group.members.size());
  }

  Status run(Stream& stream, const Collective& call) override {
    const Status status = carry_out(stream, call);
    if (!status.ok())
      ties_.links->abort(group_, told_to_others(group_, rank_, status));  // peers must not wait for this rank
    return status;
  }

 private:
  using Kind = Collective::Kind;
  struct Range {
    int64_t first = 0, last = 0;
    int64_t count() const { return last - first; }
  };

  Status carry_out(Stream& stream, const Collective& call) {
    EPL_TRY(enter_room(call));
    EPL_TRY(check_collective(call, rank_, size()));
    if (call.reduces() && !can_reduce(call.dtype)) {
      return invalid("rank ", rank_, " called ", call.text(), ", a type that cannot be reduced");
    }
    EPL_TRY(stream.synchronize());
    if (call.kind == Kind::send) return send(call);
    if (call.kind == Kind::receive) return receive(call);
    begin_call(call);
    switch (call.kind) {
      case Kind::all_reduce:
        return call.bytes() * size() <= small_bytes ? reduce_small(call) : all_reduce(stream, call);
      case Kind::reduce_scatter:
        return reduce_scatter(stream, call);
      case Kind::all_gather:
        return all_gather(stream, call);
      case Kind::all_to_all:
        return all_to_all(stream, call);
      case Kind::dispatch:
      case Kind::combine:
        return exchange_rows(stream, call);
      case Kind::broadcast:
        return broadcast(stream, call);
      default:
        return barrier(0);
    }
  }

  static const std::byte* at(const void* memory, int64_t bytes) {
    return static_cast<const std::byte*>(memory) + bytes;
  }
  static std::byte* at(void* memory, int64_t bytes) { return static_cast<std::byte*>(memory) + bytes; }

  // The reduction of `sources_` to the targets.
  void reduce(Stream& stream, const Collective& call, std::span<void* const> targets, int64_t count) {
    share(stream, count, reduce_grain,
          [&](int64_t begin, int64_t end) { reduce_ranks(sources_, targets, begin, end, call.dtype, call.reduction); });
  }

  // Chunks of `bytes`, one for each round; a call of nothing has one.
  template <class Round> Status in_chunks(int64_t bytes, int64_t chunk, const Round& round) {
    for (int64_t first = 0, n = 0; n == 0 || first < bytes; first += chunk, ++n)
      EPL_TRY(round(Range{first, std::min(bytes, first + chunk)}, n));
    return {};
  }

  // Each rank reduces all.
  Status reduce_small(const Collective& call) {
    const bool in_arrival = call.bytes() <= static_cast<int64_t>(sizeof Arrival::operand);
    const auto operand = [&](int rank, uint64_t round) {
      return in_arrival ? room_->arrival(rank, round).operand : part(rank, round);
    };
    if (call.bytes() > 0) {
      std::memcpy(operand(rank_, rounds_ + 1), call.source, static_cast<size_t>(call.bytes()));
    }
    EPL_TRY(barrier(0));
    for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = r == rank_ ? call.source : operand(r, rounds_);
    targets_.assign(1, call.target);
    // Of two ranks, each alone reads the other's part: see take_bytes.
    if (size() == 2 && !in_arrival) targets_.push_back(part(1 - rank_));
    if (call.count > 0) reduce_ranks(sources_, targets_, 0, call.count, call.dtype, call.reduction);
    return {};
  }

  // Rank r reduces segment r of each chunk. Segments end on lines.
  Range segment(Range chunk, int rank) const {
    const int64_t lines = (chunk.count() + line_bytes - 1) / line_bytes;
    const auto end = [&](int r) { return std::min(chunk.last, chunk.first + lines * r / size() * line_bytes); };
    return {end(rank), end(rank + 1)};
  }

  // The rank of a segment writes its sums over the parts that it has read, where their owners find them a round later.
  // So memory goes to and fro between two cores, and none is written that others have only read.
  Status all_reduce(Stream& stream, const Collective& call) {
    const auto element = static_cast<int64_t>(dtype_bytes(call.dtype));
    const int64_t bytes = call.bytes(), chunk_bytes = room_->layout.part_bytes();
    const int64_t chunks = (bytes + chunk_bytes - 1) / chunk_bytes;
    const auto chunk = [&](int64_t c) { return Range{c * chunk_bytes, std::min(bytes, (c + 1) * chunk_bytes)}; };
    for (int64_t c = 0; c <= chunks; ++c) {
      const Range now = c < chunks ? chunk(c) : Range();
      const Range own = segment(now, rank_);
      if (c < chunks) {
        copy(stream, next_part(), at(call.source, now.first), own.first - now.first, part_grain);
        copy(stream, next_part() + (own.last - now.first), at(call.source, own.last), now.last - own.last, part_grain);
      }
      EPL_TRY(barrier(c));
      if (c > 0) {
        const Range before = chunk(c - 1), done = segment(before, rank_);
        const std::byte* const sums = part(rank_, rounds_ - 1);
        copy(stream, at(call.target, before.first), sums, done.first - before.first, part_grain);
        copy(stream, at(call.target, done.last), sums + (done.last - before.first), before.last - done.last,
             part_grain);
      }
      if (own.count() == 0) continue;
      targets_.assign(1, at(call.target, own.first));
      for (int r = 0; r < size(); ++r) {
        std::byte* const theirs = part(r) + (own.first - now.first);
        sources_[static_cast<size_t>(r)] = r == rank_ ? at(call.source, own.first) : theirs;
        if (r != rank_) targets_.push_back(theirs);
      }
      reduce(stream, call, targets_, own.count() / element);
    }
    return {};
  }

  // What a rank has for each other rank in one round.
  int64_t bytes_for_each() const { return room_->layout.part_bytes() / size() / line_bytes * line_bytes; }
  void write_for_each(Stream& stream, const Collective& call, Range now) {
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      copy(stream, next_part() + r * bytes_for_each(), at(call.source, r * call.bytes() + now.first), now.count(),
           part_grain);
    }
  }

  Status reduce_scatter(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), bytes_for_each(), [&](Range now, int64_t n) -> Status {
      write_for_each(stream, call, now);
      EPL_TRY(barrier(n));
      targets_.assign(1, at(call.target, now.first));
      for (int r = 0; r < size(); ++r) {
        std::byte* const theirs = part(r) + rank_ * bytes_for_each();
        sources_[static_cast<size_t>(r)] = r == rank_ ? at(call.source, rank_ * call.bytes() + now.first) : theirs;
        if (r != rank_) targets_.push_back(theirs);  // see take_bytes
      }
      reduce(stream, call, targets_, now.count() / static_cast<int64_t>(dtype_bytes(call.dtype)));
      return {};
    });
  }

  Status all_to_all(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), bytes_for_each(), [&](Range now, int64_t n) -> Status {
      write_for_each(stream, call, now);
      EPL_TRY(barrier(n));
      for (int step = 0; step < size(); ++step) {
        const int r = (rank_ + step) % size();
        std::byte* const target = at(call.target, r * call.bytes() + now.first);
        if (r == rank_) {
          copy(stream, target, at(call.source, r * call.bytes() + now.first), now.count(), part_grain);
        } else {
          take(stream, target, part(r) + rank_ * bytes_for_each(), now.count(), part_grain);
        }
      }
      return {};
    });
  }

  // A part that all others look at, and how they do. Where several look, none of them may write there, so that it is
  // written past the caches.
  void show(Stream& stream, void* part, const void* source, int64_t bytes) {
    if (size() == 2) return copy(stream, part, source, bytes, part_grain);
    give(stream, part, source, bytes);
  }
  void look_at(Stream& stream, void* target, std::byte* part, int64_t bytes) {
    if (size() == 2) return take(stream, target, part, bytes, part_grain);
    copy(stream, target, part, bytes, part_grain);
  }

  Status all_gather(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), room_->layout.part_bytes(), [&](Range now, int64_t n) -> Status {
      show(stream, next_part(), at(call.source, now.first), now.count());
      EPL_TRY(barrier(n));
      for (int step = 0; step < size(); ++step) {
        const int r = (rank_ + step) % size();
        std::byte* const target = at(call.target, r * call.bytes() + now.first);
        if (r == rank_) {
          copy(stream, target, at(call.source, now.first), now.count(), part_grain);
        } else {
          look_at(stream, target, part(r), now.count());
        }
      }
      return {};
    });
  }

  // Chunks of the source; of each a rank shows the rows that others own or wait for, where they lie in it.
  Status exchange_rows(Stream& stream, const Collective& call) {
    const int64_t bytes = call.bytes() * (call.kind == Kind::dispatch ? 1 : size());
    const auto each = [&](int from, int to, Range now, const auto& f) {
      call.rows_between(from, to, size(), now.first, now.last, f);
    };
    return in_chunks(bytes, room_->layout.part_bytes(), [&](Range now, int64_t n) -> Status {
      for (int r = 0; r < size(); ++r) {
        each(rank_, r, now, [&](int64_t from, int64_t to, int64_t run) {
          std::byte* const there = r == rank_ ? at(call.target, to) : next_part() + (from - now.first);
          copy(stream, there, at(call.source, from), run, part_grain);
        });
      }
      EPL_TRY(barrier(n));
      for (int step = 1; step < size(); ++step) {
        const int r = (rank_ + step) % size();
        each(r, rank_, now, [&](int64_t from, int64_t to, int64_t run) {
          take(stream, at(call.target, to), part(r) + (from - now.first), run, part_grain);
        });
      }
      return {};
    });
  }

  Status broadcast(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), room_->layout.part_bytes(), [&](Range now, int64_t n) -> Status {
      const bool gives = rank_ == call.peer;
      if (gives) show(stream, next_part(), at(call.source, now.first), now.count());
      EPL_TRY(barrier(n));
      std::byte* const target = at(call.target, now.first);
      if (gives) {
        copy(stream, target, at(call.source, now.first), now.count(), part_grain);
      } else {
        look_at(stream, target, part(call.peer), now.count());
      }
      return {};
    });
  }

  // Where the messages lie that one peer has not taken yet, by their numbers modulo Mail::entries.
  struct Outbox {
    uint64_t sent = 0;
    std::vector<Range> at;
  };

  // Room for the next message in the ring, behind the last one; first < 0: there is none.
  Range room_in_ring(const Outbox& box, uint64_t taken, int64_t bytes) const {
    const int64_t ring = room_->layout.ring_bytes();
    const auto range = [&](int64_t first, int64_t end) {
      return first + bytes <= end ? Range{first, first + bytes} : Range{-1, -1};
    };
    if (taken == box.sent) return range(0, ring);  // from the front, so that few pages are used
    const Range& oldest = box.at[(taken + 1) % Mail::entries];
    const Range& newest = box.at[box.sent % Mail::entries];
    if (newest.last < oldest.first) return range(newest.last, oldest.first - 1);
    const Range behind = range(newest.last, ring);
    return behind.first >= 0 ? behind : range(0, oldest.first - 1);
  }

  Status send(const Collective& call) {
    Outbox& box = outboxes_[static_cast<size_t>(call.peer)];
    Mail& mail = room_->mail(rank_, call.peer);
    if (box.at.empty()) box.at.resize(Mail::entries);
    if (room_->is_closed()) return ties_.links->why_ended(group_);
    const uint64_t number = box.sent + 1;
    const auto has_entry = [&] { return box.sent - mail.taken.value.load(std::memory_order_acquire) < Mail::entries; };
    if (!spin_.until(has_entry)) EPL_TRY(sleep_until_changed(mail.taken, has_entry, number, call));
    const uint64_t taken = mail.taken.value.load(std::memory_order_acquire);
    Range range = room_in_ring(box, taken, line_aligned(call.bytes()));
    Mail::Entry& entry = mail.entry[number % Mail::entries];
    entry.called = Called::of(call, number, ties_.links->doing());
    entry.over_socket = range.first < 0;
    if (range.first < 0) {
      const int64_t end = taken == box.sent ? 0 : box.at[box.sent % Mail::entries].last;
      range = {end, end};
      ties_.links->send(group_.members[static_cast<size_t>(call.peer)],
                        {.type = FrameHead::Type::between_two,
                         .group = group_.id,
                         .members = group_.members_hash,
                         .call = number,
                         .bytes = static_cast<uint64_t>(call.bytes())},
                        call.source);
    } else if (call.bytes() > 0) {
      std::memcpy(room_->ring(rank_, call.peer) + range.first, call.source, static_cast<size_t>(call.bytes()));
    }
    entry.begin = static_cast<uint64_t>(range.first);
    box.at[number % Mail::entries] = range;
    box.sent = number;
    mail.sent.value.store(number, std::memory_order_seq_cst);
    mail.sent.wake();
    return {};
  }

  Status receive(const Collective& call) {
    const uint64_t number = ++received_[static_cast<size_t>(call.peer)];
    Mail& mail = room_->mail(call.peer, rank_);
    const auto come = [&] { return mail.sent.value.load(std::memory_order_acquire) >= number; };
    if (!spin_.until(come)) EPL_TRY(sleep_until_changed(mail.sent, come, number, call));
    const Mail::Entry& entry = mail.entry[number % Mail::entries];
    const Collective theirs = entry.called.collective();
    if (entry.called.doing != ties_.links->doing()) return ties_.links->why_other_call(group_);
    if (!agree(call, theirs)) {
      return error(Code::misuse, "ranks of group ", group_.name, " disagree at call ", number, ": rank ", call.peer,
                   " calls ", theirs.text(), ", rank ", rank_, " calls ", call.text());
    }
    if (entry.over_socket != 0) {
      EPL_ASSIGN(Message message, ties_.links->receive(group_, group_.members[static_cast<size_t>(call.peer)],
                                                       FrameHead::Type::between_two, number));
      std::memcpy(call.target, message.data(),
                  static_cast<size_t>(std::min<uint64_t>(message.head.bytes, call.bytes())));
      ties_.links->use_again(std::move(message));
    } else if (call.bytes() > 0) {
      take_bytes(call.target, room_->ring(call.peer, rank_) + entry.begin, call.bytes());
    }
    mail.taken.value.store(number, std::memory_order_seq_cst);
    mail.taken.wake();
    return {};
  }

  std::vector<const void*> sources_;
  std::vector<void*> targets_;
  std::vector<Outbox> outboxes_;
  std::vector<uint64_t> received_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> create_shared_communicator(const Ties& ties, Connections::Group& group,
                                                                 int rank) {
  auto made = std::make_unique<SharedCommunicator>(ties, group, rank);
  if (rank == 0) EPL_TRY(made->make_room());
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace epl::cpu
