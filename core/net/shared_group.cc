#include "core/net/shared_group.h"

#include <sched.h>

#include <cstring>

namespace epl::net {
namespace {

constexpr int max_spins = 2000;  // some fifty microseconds

int processors() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

SharedGroup::SharedGroup(const Ties& ties, Connections::Group& group, int rank)
    : ties_(ties), group_(group), rank_(rank), spin_(size() <= processors() ? max_spins : 0) {}

SharedGroup::~SharedGroup() {
  ties_.links->on_end(group_, nullptr);
  ties_.links->leave(group_);
}

Status SharedGroup::make_room() {
  EPL_ASSIGN(auto memory, SharedMemory::create(SharedLayout(size()).bytes()));
  const SharedAddress address = memory->address();
  take_room(std::move(memory));
  for (int r = 1; r < size(); ++r) {
    ties_.links->send(
        group_.members[static_cast<size_t>(r)],
        {.type = FrameHead::Type::memory, .group = group_.id, .members = group_.members_hash, .bytes = sizeof address},
        &address);
  }
  return {};
}

void SharedGroup::take_room(std::unique_ptr<SharedMemory> memory) {
  room_ = std::make_shared<SharedRoom>(std::move(memory), size());
  // Whatever ends the group, in this process or another one, ends the barriers.
  ties_.links->on_end(group_, [room = room_] { room->close(); });
}

Status SharedGroup::open_room(const Collective& call) {
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
  room_->barrier_state().opened.fetch_add(1, std::memory_order_acq_rel);
  return {};
}

Status SharedGroup::enter_room(const Collective& call) {
  if (!room_) EPL_TRY(open_room(call));
  if (room_->memory->has_file() &&
      room_->barrier_state().opened.load(std::memory_order_acquire) + 1 == static_cast<uint64_t>(size()))
    room_->memory->close_file();
  return {};
}

void SharedGroup::begin_call(const Collective& call) {
  ++calls_;
  called_ = Called::of(call, calls_, ties_.links->doing());
}

Status SharedGroup::barrier(int64_t round_of_call) {
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
  SharedWord& bell = room_->barrier_state().bell;
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

Status SharedGroup::compare() const {
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

Status SharedGroup::missing(int member, uint64_t number, const Collective& call, const Status& why) const {
  return error(Code::peer_failed, "group ", group_.name, ", call ", number, " of rank ", rank_, ", ", call.text(), ": ",
               missing_text(ties_, group_, member), ": ", why.message())
      .of_rank(group_.members[static_cast<size_t>(member)]);
}

}  // namespace epl::net
