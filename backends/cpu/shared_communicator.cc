#include "backends/cpu/shared_communicator.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "backends/cpu/reduce.h"
#include "backends/cpu/shared_layout.h"
#include "backends/cpu/stream_work.h"
#include "core/backend/device.h"
#include "core/base/spin.h"
#include "core/base/thread_pool.h"

namespace epl::cpu {
namespace {

constexpr int max_spins = 2000;              // some fifty microseconds
constexpr int64_t small_bytes = 32 << 10;    // of all ranks together, that each reduces by itself
constexpr int64_t part_grain = 256 << 10;    // bytes
constexpr int slice_milliseconds = 20;       // how long a call sleeps before it asks whether it should
constexpr uint64_t closed = 1, arrival = 2;  // in the word of the meeting

int processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// The memory of a group as one rank has it mapped.
struct Room {
  Room(std::unique_ptr<SharedMemory> mapped, int ranks) : memory(std::move(mapped)), layout(ranks) {}
  template <class T> T& at(int64_t offset) const { return *reinterpret_cast<T*>(memory->data() + offset); }
  Meeting& meeting() const { return at<Meeting>(0); }
  Arrival& arrival_of(int rank) const { return at<Arrival>(layout.arrival_at(rank)); }
  Mail& mail(int from, int to) const { return at<Mail>(layout.mail_at(from, to)); }
  std::byte* ring(int from, int to) const {
    return memory->data() + layout.mail_at(from, to) + static_cast<int64_t>(sizeof(Mail));
  }
  void close() const {
    meeting().word.value.fetch_or(closed, std::memory_order_seq_cst);
    meeting().word.wake();
  }

  std::unique_ptr<SharedMemory> memory;
  SharedLayout layout;
};

class SharedCommunicator final : public Communicator {
 public:
  SharedCommunicator(const Ties& ties, Connections::Group& group, int rank)
      : ties_(ties),
        group_(group),
        rank_(rank),
        spin_(size() <= processors() ? max_spins : 0),
        sources_(group.members.size()),
        outboxes_(group.members.size()),
        received_(group.members.size()) {}
  ~SharedCommunicator() override {
    ties_.links->on_end(group_, nullptr);
    ties_.links->leave(group_);
  }

  const std::string& group() const override { return group_.name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.members.size()); }

  // The memory of all, made by the first member.
  Status make_room() {
    EPL_ASSIGN(auto memory, SharedMemory::create(SharedLayout(size()).bytes()));
    const SharedAddress address = memory->address();
    take_room(std::move(memory));
    for (int r = 1; r < size(); ++r) {
      ties_.links->send(group_.members[static_cast<size_t>(r)],
                        {.type = FrameHead::Type::memory,
                         .group = group_.id,
                         .members = group_.members_hash,
                         .bytes = sizeof address},
                        &address);
    }
    return {};
  }

  Status run(Stream& stream, const Collective& call) override {
    const Status status = carry_out(stream, call);
    if (!status.ok()) ties_.links->abort(group_, to_others(status));  // peers must not wait for this rank
    return status;
  }

  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    return split_process_group(ties_, *this, group_, name, members);
  }

  void abort(const Status& status) override { ties_.links->abort(group_, status); }
  void watch(std::function<Status()> stop) override { ties_.links->watch(std::move(stop)); }
  bool lost() const override { return ties_.links->lost(); }

 private:
  using Kind = Collective::Kind;
  struct Range {
    int64_t first = 0, last = 0;
    int64_t count() const { return last - first; }
  };

  void take_room(std::unique_ptr<SharedMemory> memory) {
    room_ = std::make_shared<Room>(std::move(memory), size());
    // Whatever ends the group, in this process or another one, ends the meetings.
    ties_.links->on_end(group_, [room = room_] { room->close(); });
  }

  Status open_room() {
    EPL_ASSIGN(const Message message, ties_.links->receive(group_, group_.members.front(), FrameHead::Type::memory, 0));
    SharedAddress address;
    if (message.head.bytes != sizeof address || message.head.members != group_.members_hash) {
      return error(Code::misuse, "ranks of group ", group_.name, " disagree: rank ", rank_,
                   " takes other ranks for its members than rank 0");
    }
    std::memcpy(&address, message.data(), sizeof address);
    EPL_ASSIGN(auto memory, SharedMemory::open(address));
    take_room(std::move(memory));
    room_->meeting().opened.fetch_add(1, std::memory_order_acq_rel);
    return {};
  }

  Status carry_out(Stream& stream, const Collective& call) {
    if (!room_) EPL_TRY(open_room());
    if (room_->memory->has_file() &&
        room_->meeting().opened.load(std::memory_order_acquire) + 1 == static_cast<uint64_t>(size()))
      room_->memory->close_file();
    EPL_TRY(check_collective(call, rank_, size()));
    if (call.reduces() && !can_reduce(call.dtype)) {
      return invalid("rank ", rank_, " called ", call.text(), ", a type that cannot be reduced");
    }
    EPL_TRY(stream.synchronize());
    if (call.kind == Kind::send) return send(call);
    if (call.kind == Kind::receive) return receive(call);
    ++calls_;
    called_ = Called::of(call, calls_, group_.members_hash);
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
        return meet(0);
    }
  }

  // A cancelled or late call of this rank is reported to the others as a failure of this rank.
  Status to_others(const Status& status) const {
    const bool own = status.code() == Code::cancelled || status.code() == Code::deadline_exceeded;
    return own ? error(Code::peer_failed, "rank ", rank_, " of group ", group_.name, ": ", status.message()) : status;
  }

  std::byte* slot(int rank, uint64_t round) const { return room_->memory->data() + room_->layout.slot_at(rank, round); }
  // Of this round, and of the one that comes next.
  std::byte* part(int rank) const { return slot(rank, rounds_) + SharedLayout::part_in_slot; }
  std::byte* next_part() const { return slot(rank_, rounds_ + 1) + SharedLayout::part_in_slot; }
  std::byte* sum(int rank) const { return slot(rank, rounds_) + room_->layout.sum_in_slot(); }
  std::byte* next_sum() const { return slot(rank_, rounds_ + 1) + room_->layout.sum_in_slot(); }

  // The next meeting, for which the slot is written. At the first of a call, ranks compare what they call.
  Status meet(int64_t round_of_call) {
    ++rounds_;
    if (round_of_call == 0) std::memcpy(slot(rank_, rounds_), &called_, sizeof called_);
    SharedWord& word = room_->meeting().word;
    room_->arrival_of(rank_).round.store(rounds_, std::memory_order_relaxed);
    uint64_t seen = word.value.load(std::memory_order_relaxed);
    do {
      if (seen & closed) return ties_.links->why_ended(group_);
    } while (!word.value.compare_exchange_weak(seen, seen + arrival, std::memory_order_seq_cst));
    const uint64_t wanted = rounds_ * static_cast<uint64_t>(size());
    const auto complete = [&] { return word.value.load(std::memory_order_acquire) / arrival >= wanted; };
    if (complete()) {
      word.wake();
    } else if (!spin_.until(complete)) {
      const auto awaited = [&](int r) { return room_->arrival_of(r).round.load(std::memory_order_relaxed) < rounds_; };
      EPL_TRY(sleep_until(word, complete, awaited, calls_, called_.collective()));
    }
    return round_of_call == 0 ? compare() : Status();
  }

  Status compare() const {
    for (int r = 0; r < size(); ++r) {
      if (std::memcmp(slot(r, rounds_), slot(0, rounds_), sizeof(Called)) == 0) continue;
      Called first, other;
      std::memcpy(&first, slot(0, rounds_), sizeof first);
      std::memcpy(&other, slot(r, rounds_), sizeof other);
      return error(Code::misuse, "ranks of group ", group_.name, " disagree at call ", calls_, ": rank 0 calls ",
                   first.collective().text(), ", rank ", r, " calls ", other.collective().text(),
                   first.members != other.members ? ", and they take other ranks for its members" : "");
    }
    return {};
  }

  // What comes before the end of the group counts; afterwards nothing comes any more. Waits for the `awaited` ranks.
  template <class Come, class Awaited>
  Status sleep_until(SharedWord& word, const Come& come, const Awaited& awaited, uint64_t number,
                     const Collective& call) {
    int64_t silent = 0;
    for (;;) {
      const uint64_t seen = word.value.load(std::memory_order_acquire);
      if (come()) return {};
      if (room_->meeting().word.value.load(std::memory_order_acquire) & closed)
        return come() ? Status() : ties_.links->why_ended(group_);
      word.sleep(seen, slice_milliseconds);
      if (come()) return {};
      silent = word.value.load(std::memory_order_relaxed) == seen ? silent + slice_milliseconds : 0;
      const Connections::Waiting waiting =
          ties_.links->keep_waiting(group_, awaited, static_cast<double>(silent) * 1e-3);
      if (waiting.status.ok()) continue;
      room_->close();
      if (come()) return {};
      if (waiting.missing < 0) return waiting.status;
      return error(Code::peer_failed, "group ", group_.name, ", call ", number, " of rank ", rank_, ", ", call.text(),
                   ": ", missing_text(ties_, group_, waiting.missing), ": ", waiting.status.message());
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

  Status reduce_small(const Collective& call) {
    if (call.bytes() > 0) std::memcpy(next_part(), call.source, static_cast<size_t>(call.bytes()));
    EPL_TRY(meet(0));
    for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = part(r);
    void* const targets[] = {call.target};
    if (call.count > 0) reduce_ranks(sources_, targets, 0, call.count, call.dtype, call.reduction);
    return {};
  }

  // Rank r reduces segment r of each chunk. Segments end on lines.
  Range segment(Range chunk, int rank) const {
    const int64_t lines = (chunk.count() + line_bytes - 1) / line_bytes;
    const auto end = [&](int r) { return std::min(chunk.last, chunk.first + lines * r / size() * line_bytes); };
    return {end(rank), end(rank + 1)};
  }

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
      EPL_TRY(meet(c));
      for (int step = 1; c > 0 && step < size(); ++step) {
        const int r = (rank_ + step) % size();
        const Range done = segment(chunk(c - 1), r);
        copy(stream, at(call.target, done.first), sum(r), done.count(), part_grain);
      }
      if (own.count() == 0) continue;
      for (int r = 0; r < size(); ++r) {
        sources_[static_cast<size_t>(r)] = r == rank_ ? at(call.source, own.first) : part(r) + (own.first - now.first);
      }
      void* const targets[] = {at(call.target, own.first), next_sum()};
      reduce(stream, call, targets, own.count() / element);
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
      EPL_TRY(meet(n));
      for (int r = 0; r < size(); ++r) {
        sources_[static_cast<size_t>(r)] =
            r == rank_ ? at(call.source, rank_ * call.bytes() + now.first) : part(r) + rank_ * bytes_for_each();
      }
      void* const targets[] = {at(call.target, now.first)};
      reduce(stream, call, targets, now.count() / static_cast<int64_t>(dtype_bytes(call.dtype)));
      return {};
    });
  }

  Status all_to_all(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), bytes_for_each(), [&](Range now, int64_t n) -> Status {
      write_for_each(stream, call, now);
      EPL_TRY(meet(n));
      for (int step = 0; step < size(); ++step) {
        const int r = (rank_ + step) % size();
        copy(stream, at(call.target, r * call.bytes() + now.first),
             r == rank_ ? at(call.source, r * call.bytes() + now.first) : part(r) + rank_ * bytes_for_each(),
             now.count(), part_grain);
      }
      return {};
    });
  }

  Status all_gather(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), room_->layout.part_bytes(), [&](Range now, int64_t n) -> Status {
      copy(stream, next_part(), at(call.source, now.first), now.count(), part_grain);
      EPL_TRY(meet(n));
      for (int step = 0; step < size(); ++step) {
        const int r = (rank_ + step) % size();
        copy(stream, at(call.target, r * call.bytes() + now.first), r == rank_ ? at(call.source, now.first) : part(r),
             now.count(), part_grain);
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
      EPL_TRY(meet(n));
      for (int step = 1; step < size(); ++step) {
        const int r = (rank_ + step) % size();
        each(r, rank_, now, [&](int64_t from, int64_t to, int64_t run) {
          copy(stream, at(call.target, to), part(r) + (from - now.first), run, part_grain);
        });
      }
      return {};
    });
  }

  Status broadcast(Stream& stream, const Collective& call) {
    return in_chunks(call.bytes(), room_->layout.part_bytes(), [&](Range now, int64_t n) -> Status {
      const bool gives = rank_ == call.peer;
      if (gives) copy(stream, next_part(), at(call.source, now.first), now.count(), part_grain);
      EPL_TRY(meet(n));
      copy(stream, at(call.target, now.first), gives ? at(call.source, now.first) : part(call.peer), now.count(),
           part_grain);
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
    if (room_->meeting().word.value.load(std::memory_order_acquire) & closed) return ties_.links->why_ended(group_);
    const uint64_t number = box.sent + 1;
    const auto has_entry = [&] { return box.sent - mail.taken.value.load(std::memory_order_acquire) < Mail::entries; };
    if (!spin_.until(has_entry))
      EPL_TRY(sleep_until(mail.taken, has_entry, [&](int r) { return r == call.peer; }, number, call));
    const uint64_t taken = mail.taken.value.load(std::memory_order_acquire);
    Range place = room_in_ring(box, taken, whole_lines(call.bytes()));
    Mail::Entry& entry = mail.entry[number % Mail::entries];
    entry.called = Called::of(call, number, group_.members_hash);
    entry.over_socket = place.first < 0;
    if (place.first < 0) {
      const int64_t end = taken == box.sent ? 0 : box.at[box.sent % Mail::entries].last;
      place = {end, end};
      ties_.links->send(group_.members[static_cast<size_t>(call.peer)],
                        {.type = FrameHead::Type::between_two,
                         .group = group_.id,
                         .members = group_.members_hash,
                         .call = number,
                         .bytes = static_cast<uint64_t>(call.bytes())},
                        call.source);
    } else if (call.bytes() > 0) {
      std::memcpy(room_->ring(rank_, call.peer) + place.first, call.source, static_cast<size_t>(call.bytes()));
    }
    entry.begin = static_cast<uint64_t>(place.first);
    box.at[number % Mail::entries] = place;
    box.sent = number;
    mail.sent.value.store(number, std::memory_order_seq_cst);
    mail.sent.wake();
    return {};
  }

  Status receive(const Collective& call) {
    const uint64_t number = ++received_[static_cast<size_t>(call.peer)];
    Mail& mail = room_->mail(call.peer, rank_);
    const auto come = [&] { return mail.sent.value.load(std::memory_order_acquire) >= number; };
    if (!spin_.until(come)) EPL_TRY(sleep_until(mail.sent, come, [&](int r) { return r == call.peer; }, number, call));
    const Mail::Entry& entry = mail.entry[number % Mail::entries];
    const Collective theirs = entry.called.collective();
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
      std::memcpy(call.target, room_->ring(call.peer, rank_) + entry.begin, static_cast<size_t>(call.bytes()));
    }
    mail.taken.value.store(number, std::memory_order_seq_cst);
    mail.taken.wake();
    return {};
  }

  const Ties ties_;
  Connections::Group& group_;
  const int rank_;
  std::shared_ptr<Room> room_;  // null: not opened yet
  Spin spin_;
  Called called_;
  uint64_t calls_ = 0, rounds_ = 0;
  std::vector<const void*> sources_;
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
