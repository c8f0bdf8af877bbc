// What lies where in the memory that the ranks of a group share.
#pragma once

#include <algorithm>

#include "backends/cpu/cpu.h"
#include "backends/cpu/shared_memory.h"
#include "core/backend/communicator.h"

namespace epl::cpu {

// Who has come to which round. Arrivals are counted in steps of two, the lowest bit closes.
struct Meeting {
  alignas(line_bytes) SharedWord word;
  alignas(line_bytes) std::atomic<uint64_t> opened{0};  // ranks that have opened the memory
};
struct Arrival {
  alignas(line_bytes) std::atomic<uint64_t> round{0};  // the last that this rank has come to
};

// What a rank calls, for the others to compare; there are no holes in it.
struct Called {
  Collective::Kind kind = Collective::Kind::barrier;
  DType dtype = DType::u8;
  Reduction reduction = Reduction::sum;
  uint8_t unused[5] = {};
  int64_t count = 0, peer = 0, rows = 0;
  uint64_t call = 0, members = 0;

  static Called of(const Collective& call, uint64_t number, uint64_t members) {
    return {call.kind, call.dtype, call.reduction, {}, call.count, call.peer, call.rows, number, members};
  }
  Collective collective() const {
    return {.kind = kind,
            .dtype = dtype,
            .count = count,
            .reduction = reduction,
            .peer = static_cast<int>(peer),
            .rows = rows};
  }
  friend bool operator==(const Called&, const Called&) = default;
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

static_assert(sizeof(Meeting) % line_bytes == 0 && sizeof(Mail) % line_bytes == 0 && sizeof(Called) == 48);

// All of it in whole lines. A slot: what is called, a part of the operands, a sum. The pages of what is not used take
// no memory.
class SharedLayout {
 public:
  explicit SharedLayout(int ranks)
      : ranks_(ranks),
        part_(whole_lines(std::clamp<int64_t>((int64_t{2} << 20) / ranks, 64 << 10, most_in_part))),
        sum_(whole_lines(part_ / ranks + line_bytes)),
        ring_(whole_lines(std::max<int64_t>((int64_t{256} << 20) / (int64_t{ranks} * ranks), 64 << 10))) {}

  // The slots of a rank stay in the cache of its core, with what streams past them: four times as much took a third
  // longer.
  static constexpr int64_t most_in_part = 128 << 10;
  int64_t part_bytes() const { return part_; }
  int64_t ring_bytes() const { return ring_; }
  int64_t bytes() const { return mail_at(ranks_, 0); }
  int64_t arrival_at(int rank) const { return static_cast<int64_t>(sizeof(Meeting)) + rank * line_bytes; }
  int64_t slot_at(int rank, uint64_t turn) const {
    return arrival_at(ranks_) + (int64_t{rank} * 2 + static_cast<int64_t>(turn % 2)) * (line_bytes + part_ + sum_);
  }
  static constexpr int64_t part_in_slot = line_bytes;
  int64_t sum_in_slot() const { return line_bytes + part_; }
  int64_t mail_at(int from, int to) const {
    return slot_at(ranks_, 0) + (int64_t{from} * ranks_ + to) * (static_cast<int64_t>(sizeof(Mail)) + ring_);
  }

 private:
  int64_t ranks_, part_, sum_, ring_;
};

}  // namespace epl::cpu
