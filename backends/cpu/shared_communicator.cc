#include "backends/cpu/shared_communicator.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "backends/cpu/reduce.h"
#include "backends/cpu/stream_work.h"
#include "core/backend/device.h"
#include "core/base/cache_line.h"
#include "core/base/spin.h"
#include "core/base/thread_pool.h"
#include "core/net/shared_layout.h"

namespace epl::cpu {
namespace {

using net::Arrival;
using net::Called;
using net::Connections;
using net::FrameHead;
using net::Mail;
using net::Meeting;
using net::Message;
using net::SharedAddress;
using net::SharedLayout;
using net::SharedMemory;
using net::SharedWord;
using net::Ties;

constexpr int max_spins = 2000;            // some fifty microseconds
constexpr int64_t small_bytes = 32 << 10;  // of all ranks together, that each reduces by itself
constexpr int64_t part_grain = 256 << 10;  // bytes
constexpr int slice_milliseconds = 20;     // how long a call sleeps before it asks whether it should

int processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// The memory of a group as one rank has it mapped.
struct Room {
  Room(std::unique_ptr<SharedMemory> mapped, int size) : memory(std::move(mapped)), layout(size), ranks(size) {}
  template <class T> T& at(int64_t offset) const { return *reinterpret_cast<T*>(memory->data() + offset); }
  Meeting& meeting() const { return at<Meeting>(0); }
  Arrival& arrival(int rank, uint64_t round) const { return at<Arrival>(layout.arrival_at(rank, round)); }
  Mail& mail(int from, int to) const { return at<Mail>(layout.mail_at(from, to)); }
  std::byte* ring(int from, int to) const {
    return memory->data() + layout.mail_at(from, to) + static_cast<int64_t>(sizeof(Mail));
  }
  void ring_bell() const {
    meeting().bell.value.fetch_add(1, std::memory_order_seq_cst);
    meeting().bell.wake();
  }
  // Afterwards nobody comes to any meeting, so that it is decided which have taken place.
  void close() const {
    for (int r = 0; r < ranks; ++r) {
      for (const uint64_t turn : {0, 1}) arrival(r, turn).word.fetch_or(Arrival::closed, std::memory_order_seq_cst);
    }
    meeting().closed.store(1, std::memory_order_release);
    ring_bell();
  }
  bool is_closed() const { return meeting().closed.load(std::memory_order_acquire) != 0; }

  std::unique_ptr<SharedMemory> memory;
  SharedLayout layout;
  int ranks;
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
        received_(group.members.size()) {
    targets_.reserve(group.members.size());
  }
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
    if (!status.ok())
      ties_.links->abort(group_, told_to_others(group_, rank_, status));  // peers must not wait for this rank
    return status;
  }

  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    return split_process_group(ties_, *this, group_, name, members);
  }

  void abort(const Status& status) override { ties_.links->abort(group_, status); }
  void watch(std::function<Status()> stop) override { ties_.links->watch(std::move(stop)); }
  void hasten(std::function<bool()> asked) override { ties_.links->hasten(std::move(asked)); }
  Status lost() const override { return ties_.links->lost(); }
  bool has(int rank) override { return ties_.links->has(rank); }
  void retire() override { ties_.links->retire(); }
  void enter(const JobCall& call) override { ties_.links->enter(call); }

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

  // Rank 0 has made the memory, and says where before the first call.
  Status open_room(const Collective& call) {
    const Result<Message> come = ties_.links->receive(group_, group_.members.front(), FrameHead::Type::memory, 0);
    if (!come.ok()) {
      if (come.status().code() != Code::peer_failed) return come.status();
      // Another rank may have seen it first; its message names the rank that is missing.
      const Status aborted = ties_.links->why_aborted(group_);
      return aborted.ok() ? missing(0, calls_ + 1, call, come.status()) : aborted;
    }
    const Message& message = *come;
    SharedAddress address;
    if (message.head.bytes != sizeof address || message.head.members != group_.members_hash) {
      return error(Code::misuse, "ranks of group ", group_.name, " disagree: rank ", rank_,
                   " takes other ranks for its members than rank 0");
    }
    std::memcpy(&address, message.data(), sizeof address);
    auto memory = SharedMemory::open(address);
    if (!memory.ok()) {
      // Rank 0 has gone, or has left because another rank has.
      return memory.status().code() == Code::peer_failed ? ties_.links->why_ended(group_) : memory.status();
    }
    take_room(std::move(memory).value());
    room_->meeting().opened.fetch_add(1, std::memory_order_acq_rel);
    return {};
  }

  Status carry_out(Stream& stream, const Collective& call) {
    if (!room_) EPL_TRY(open_room(call));
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
    called_ = Called::of(call, calls_, ties_.links->doing());
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

  std::byte* part(int rank, uint64_t round) const { return room_->memory->data() + room_->layout.slot_at(rank, round); }
  // Of this round, and of the one that comes next.
  std::byte* part(int rank) const { return part(rank, rounds_); }
  std::byte* next_part() const { return part(rank_, rounds_ + 1); }

  // The next meeting, for which the slot is written. At the first of a call, ranks compare what they call.
  Status meet(int64_t round_of_call) {
    ++rounds_;
    Arrival& own = room_->arrival(rank_, rounds_);
    if (round_of_call == 0) own.called = called_;
    uint64_t seen = own.word.load(std::memory_order_relaxed);
    do {
      if (seen & Arrival::closed) return ties_.links->why_ended(group_);
    } while (!own.word.compare_exchange_weak(seen, rounds_ * Arrival::step, std::memory_order_seq_cst));
    room_->arrival(rank_, rounds_ + 1).claim();
    int come = 0;
    const auto complete = [&] {
      while (come < size() && has_come(come)) ++come;
      return come == size();
    };
    // The last to come sees all, and whoever sleeps by then has been counted.
    SharedWord& bell = room_->meeting().bell;
    if (bell.sleepers.load(std::memory_order_seq_cst) != 0 && complete()) room_->ring_bell();
    if (!spin_.until(complete)) {
      const auto arrivals = [&] {
        uint64_t count = 0;
        for (int r = 0; r < size(); ++r) count += has_come(r) ? 1 : 0;
        return count;
      };
      EPL_TRY(sleep_until(bell, complete, arrivals, [&](int r) { return !has_come(r); }, calls_, called_.collective()));
    }
    return round_of_call == 0 ? compare() : Status();
  }
  bool has_come(int rank) const { return room_->arrival(rank, rounds_).has_come(rounds_); }

  Status compare() const {
    const Called& first = room_->arrival(0, rounds_).called;
    for (int r = 0; r < size(); ++r) {
      const Called& other = room_->arrival(r, rounds_).called;
      if (other == first) continue;
      if (other.doing != first.doing) return ties_.links->why_other_call(group_);
      return error(Code::misuse, "ranks of group ", group_.name, " disagree at call ", calls_, ": rank 0 calls ",
                   first.collective().text(), ", rank ", r, " calls ", other.collective().text());
    }
    return {};
  }

  // What comes before the end of the group counts; afterwards nothing comes any more. Waits for the `awaited` ranks,
  // which are silent as long as `progress` stays.
  template <class Come, class Progress, class Awaited>
  Status sleep_until(SharedWord& word, const Come& come, const Progress& progress, const Awaited& awaited,
                     uint64_t number, const Collective& call) {
    int64_t silent = 0;
    for (uint64_t before = progress();;) {
      const uint64_t seen = word.value.load(std::memory_order_acquire);
      if (come()) return {};
      if (room_->is_closed()) return come() ? Status() : ties_.links->why_ended(group_);
      word.sleep(seen, slice_milliseconds, come);
      if (come()) return {};
      const uint64_t now = progress();
      silent = now == before ? silent + slice_milliseconds : 0;
      before = now;
      const Connections::Waiting waiting =
          ties_.links->keep_waiting(group_, awaited, static_cast<double>(silent) * 1e-3);
      if (waiting.status.ok()) continue;
      room_->close();
      if (come()) return {};
      if (waiting.missing < 0) return waiting.status;
      return missing(waiting.missing, number, call, waiting.status);
    }
  }
  Status missing(int member, uint64_t number, const Collective& call, const Status& why) const {
    return error(Code::peer_failed, "group ", group_.name, ", call ", number, " of rank ", rank_, ", ", call.text(),
                 ": ", missing_text(ties_, group_, member), ": ", why.message())
        .of_rank(group_.members[static_cast<size_t>(member)]);
  }
  // The same for a word that the call's peer changes.
  template <class Come>
  Status sleep_until_changed(SharedWord& word, const Come& come, uint64_t number, const Collective& call) {
    const auto progress = [&] { return word.value.load(std::memory_order_relaxed); };
    return sleep_until(word, come, progress, [&](int r) { return r == call.peer; }, number, call);
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
    EPL_TRY(meet(0));
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
      EPL_TRY(meet(c));
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
      EPL_TRY(meet(n));
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
      EPL_TRY(meet(n));
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
      EPL_TRY(meet(n));
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
      EPL_TRY(meet(n));
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
      EPL_TRY(meet(n));
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
    Range place = room_in_ring(box, taken, whole_lines(call.bytes()));
    Mail::Entry& entry = mail.entry[number % Mail::entries];
    entry.called = Called::of(call, number, ties_.links->doing());
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

  const Ties ties_;
  Connections::Group& group_;
  const int rank_;
  std::shared_ptr<Room> room_;  // null: not opened yet
  Spin spin_;
  Called called_;
  uint64_t calls_ = 0, rounds_ = 0;
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
