// What lies where in the memory that the ranks of a group share.
#pragma once

#include <algorithm>

#include "core/backend/communicator.h"
#include "core/base/cache_line.h"
#include "core/net/shared_memory.h"

namespace epl::net {

// Where those sleep that wait at a barrier, and whether any can take place still.
struct alignas(2 * line_bytes) BarrierState {
  alignas(line_bytes) SharedWord bell;                  // changes when all have come and somebody sleeps
  alignas(line_bytes) std::atomic<uint64_t> opened{0};  // ranks that have opened the memory
  alignas(line_bytes) std::atomic<uint64_t> closed{0};  // set behind the words of all arrivals
};

// What a rank calls, for the others to compare; there are no holes in it.
struct Called {
  Collective::Kind kind = Collective::Kind::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  uint8_t unused = 0;
  int32_t peer = 0;
  int64_t count = 0, rows = 0;
  uint64_t call = 0;
  uint64_t doing = 0;  // the digest of what its process does

  static Called of(const Collective& call, uint64_t number, uint64_t doing) {
    return {call.kind, call.dtype, call.reduction, 0, call.peer, call.count, call.rows, number, doing};
  }
  Collective collective() const {
    return {.kind = kind, .dtype = dtype, .count = count, .reduction = reduction, .peer = peer, .rows = rows};
  }
  friend bool operator==(const Called&, const Called&) = default;
};

// That a rank has come to a round, with what it calls and, where that is little, its operand: a peer that waits for the
// first line has most of it by then. Rounds are counted in steps of two, the lowest bit closes. Each rank has two,
// which rounds take in turn: a peer may still read that of the round before.
struct Arrival {
  static constexpr uint64_t closed = 1, step = 2;
  alignas(2 * line_bytes) std::atomic<uint64_t> word{0};
  Called called;
  std::atomic<uint64_t> claim_first{0};
  std::byte operand[line_bytes];
  std::atomic<uint64_t> claim_second{0};

  bool has_come(uint64_t round) const { return word.load(std::memory_order_acquire) / step >= round; }
  // By its rank, ahead of time: the peers have read both lines, and the first write waits until they give them up. It
  // does not touch what a slow peer may still read.
  void claim() {
    claim_first.store(1, std::memory_order_relaxed);
    claim_second.store(1, std::memory_order_relaxed);
  }
};

// What one rank has sent to another. Message number n is entry n modulo `entries`.
struct Mail {
  static constexpr uint64_t entries = 1024;
  struct Entry {
    Called called;
    uint64_t begin = 0;  // in the ring
    uint64_t over_socket = 0;
  };
  alignas(line_bytes) SharedWord sent;
  alignas(line_bytes) SharedWord taken;
  alignas(line_bytes) Entry entry[entries];
};

static_assert(sizeof(BarrierState) % (2 * line_bytes) == 0 && sizeof(Mail) % line_bytes == 0 && sizeof(Called) == 40);
static_assert(sizeof(Arrival) == 2 * line_bytes);

// All of it in whole lines. A slot: a part of the operands. The pages of what is not used take no memory.
class SharedLayout {
 public:
  explicit SharedLayout(int ranks)
      : ranks_(ranks),
        part_(line_aligned(std::clamp<int64_t>((int64_t{2} << 20) / ranks, 64 << 10, most_in_part))),
        ring_(line_aligned(std::max<int64_t>((int64_t{256} << 20) / (int64_t{ranks} * ranks), 64 << 10))) {}

  // The slots of a rank stay in the cache of its core, with what streams past them: half as much takes a tenth longer.
  static constexpr int64_t most_in_part = 256 << 10;
  int64_t part_bytes() const { return part_; }
  int64_t ring_bytes() const { return ring_; }
  int64_t bytes() const { return mail_at(static_cast<int>(ranks_), 0); }
  int64_t arrival_at(int rank, uint64_t round) const {
    return static_cast<int64_t>(sizeof(BarrierState)) + slot_of(rank, round) * static_cast<int64_t>(sizeof(Arrival));
  }
  int64_t slot_at(int rank, uint64_t round) const {
    return arrival_at(static_cast<int>(ranks_), 0) + slot_of(rank, round) * part_;
  }
  int64_t mail_at(int from, int to) const {
    const int64_t pair = int64_t{from} * ranks_ + to;
    return slot_at(static_cast<int>(ranks_), 0) + pair * (static_cast<int64_t>(sizeof(Mail)) + ring_);
  }

 private:
  static int64_t slot_of(int rank, uint64_t round) { return int64_t{rank} * 2 + static_cast<int64_t>(round % 2); }
  int64_t ranks_, part_, ring_;
};

}  // namespace epl::net
