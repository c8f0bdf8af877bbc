// One rank's end of a group that shares memory: how its ranks come together, and how they hear of each other's end.
// How operands move is left to the communicator of a device, which derives from it
// (backends/cpu/shared_communicator.h).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/spin.h"
#include "core/net/process_communicator.h"
#include "core/net/shared_layout.h"

namespace epl::net {

// The memory of a group as one rank has it mapped.
struct SharedRoom {
  SharedRoom(std::unique_ptr<SharedMemory> mapped, int size) : memory(std::move(mapped)), layout(size), ranks(size) {}
  template <class T> T& at(int64_t offset) const { return *reinterpret_cast<T*>(memory->data() + offset); }
  BarrierState& barrier_state() const { return at<BarrierState>(0); }
  Arrival& arrival(int rank, uint64_t round) const { return at<Arrival>(layout.arrival_at(rank, round)); }
  Mail& mail(int from, int to) const { return at<Mail>(layout.mail_at(from, to)); }
  std::byte* ring(int from, int to) const {
    return memory->data() + layout.mail_at(from, to) + static_cast<int64_t>(sizeof(Mail));
  }
  void ring_bell() const {
    barrier_state().bell.value.fetch_add(1, std::memory_order_seq_cst);
    barrier_state().bell.wake();
  }
  // Afterwards nobody comes to any barrier, so that it is decided which have taken place.
  void close() const {
    for (int r = 0; r < ranks; ++r) {
      for (const uint64_t round : {0, 1}) arrival(r, round).word.fetch_or(Arrival::closed, std::memory_order_seq_cst);
    }
    barrier_state().closed.store(1, std::memory_order_release);
    ring_bell();
  }
  bool is_closed() const { return barrier_state().closed.load(std::memory_order_acquire) != 0; }

  std::unique_ptr<SharedMemory> memory;
  SharedLayout layout;
  int ranks;
};

class SharedGroup : public Communicator {
 public:
  SharedGroup(const Ties& ties, Connections::Group& group, int rank);
  ~SharedGroup() override;

  const std::string& group() const override { return group_.name; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(group_.members.size()); }

  // The memory of all, made by the first member.
  Status make_room();

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

 protected:
  // Opens the memory where this call is the first.
  Status enter_room(const Collective& call);
  // Of those that all ranks make: the next barrier compares it.
  void begin_call(const Collective& call);

  std::byte* part(int rank, uint64_t round) const { return room_->memory->data() + room_->layout.slot_at(rank, round); }
  // Of this round, and of the one that comes next.
  std::byte* part(int rank) const { return part(rank, rounds_); }
  std::byte* next_part() const { return part(rank_, rounds_ + 1); }

  // The next barrier, for which the slot is written. At the first of a call, ranks compare what they call.
  Status barrier(int64_t round_of_call);

  // Until `come`, which shows in a word that the call's peer changes.
  template <class Come>
  Status sleep_until_changed(SharedWord& word, const Come& come, uint64_t number, const Collective& call) {
    const auto progress = [&] { return word.value.load(std::memory_order_relaxed); };
    return sleep_until(word, come, progress, [&](int r) { return r == call.peer; }, number, call);
  }

  const Ties ties_;
  Connections::Group& group_;
  const int rank_;
  std::shared_ptr<SharedRoom> room_;  // null: not opened yet
  Spin spin_;
  uint64_t calls_ = 0, rounds_ = 0;

 private:
  static constexpr int slice_milliseconds = 20;  // how long a call sleeps before it asks whether it should

  void take_room(std::unique_ptr<SharedMemory> memory);
  // Rank 0 has made the memory, and says where before the first call.
  Status open_room(const Collective& call);
  bool has_come(int rank) const { return room_->arrival(rank, rounds_).has_come(rounds_); }
  Status compare() const;
  Status missing(int member, uint64_t number, const Collective& call, const Status& why) const;

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

  Called called_;
};

}  // namespace epl::net
