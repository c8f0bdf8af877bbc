// A warp: 32 threads that carry out one instruction together where they are at the same place, and each alone where
// they are not.
#pragma once

#include <bit>
#include <cstring>
#include <random>
#include <vector>

#include "tests/cuda/machine/code.h"

namespace epl::cuda_machine {

class Block;

struct Dimensions {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

// What a block knows of another one: all that this thread did until its release, and what others did before the
// barrier.
struct Seen {
  uint32_t barrier = 0;
  uint16_t thread = 0;
};
using Known = std::map<uint32_t, Seen>;

// One launch of a kernel.
struct Launch {
  const Code* code = nullptr;
  Dimensions grid, block;
  uint32_t dynamic_shared = 0;
  std::vector<std::byte> parameters;
  uint32_t command = 1;
  Before before;
  DeviceMemory* memory = nullptr;
  int device = 0;  // whose memory it may touch
  const Sites* sites = nullptr;
  std::mt19937_64* random = nullptr;
  bool races = true;
  bool uninitialised = true;
  uint64_t limit = uint64_t{1} << 40;  // of instructions of warps
  uint64_t instructions = 0;           // of threads, carried out
  uint64_t steps = 0;                  // of warps

  // What blocks released by a fence and an atomic operation, by its address, and what each came to know by it.
  std::map<uint64_t, Known> released;
  std::map<uint32_t, Known> known;
  bool comes_before(const Mark& mark, const Who& who) const;
};

void run(Launch& launch);

class Warp {
 public:
  enum class State : uint8_t { runs, at_barrier, at_warp_sync, ended };

  Warp(Block& block, uint32_t index);
  void begin(uint32_t threads);  // the first of the lanes are threads

  // Until every lane waits or has ended, or for as many instructions as `turn`.
  void go(uint64_t turn);
  bool runs() const;
  State state(int lane) const { return lanes_[lane].state; }
  const Instr& place(int lane) const { return lanes_[lane].code->instructions[lanes_[lane].pc]; }
  bool vote(int lane) const { return lanes_[lane].vote; }
  void release(uint32_t votes);  // who waits at the block's barrier goes on behind it

  // For the functions of instructions.
  uint64_t* at(int32_t operand) {
    return operand >= 0 ? registers_ + static_cast<size_t>(operand) * kLanes
                        : constants_ + static_cast<size_t>(~operand) * kLanes;
  }
  template <class F> void each(F&& f) const {
    if (mask == ~0u) {
      for (int lane = 0; lane < kLanes; ++lane) f(lane);
    } else {
      for (uint32_t left = mask; left != 0; left &= left - 1) f(std::countr_zero(left));
    }
  }
  uint32_t predicate(int32_t operand) { return static_cast<uint32_t>(*at(operand)); }
  void set_predicate(int32_t operand, uint32_t value) {
    uint64_t& now = *at(operand);
    now = (now & ~mask) | (value & mask);
  }
  // Where the memory of a lane's access is, after all checks.
  std::byte* access(const Instr& instr, int lane, uint64_t address, bool reads, bool writes);
  // A strong access of device memory: what others released here is known from now on, and what was before a fence is
  // released.
  void synchronise(uint64_t address, int lane);
  [[noreturn]] void fail(Result code, const Instr& instr, int lane, const std::string& what) const;

  uint32_t mask = 0;  // who carries out the instruction
  uint32_t index = 0;
  Block& block;
  uint32_t carry = 0;   // of each lane, from one instruction to the next
  uint32_t fenced = 0;  // lanes that passed a fence
  uint32_t sync = 0;    // how many barriers of the warp came before

  Dimensions thread(int lane) const;
  Launch& launch() const;
  uint32_t local() const { return now_.local; }

 private:
  struct Frame {
    const Code* code = nullptr;
    uint32_t pc = 0, base = 0, local = 0;
    bool operator==(const Frame&) const = default;
  };
  struct Lane : Frame {
    State state = State::ended;
    bool vote = false;  // what it said at the barrier
    std::vector<Frame> callers;
  };

  bool pick();
  bool carry_on(uint64_t end);
  bool flow(const Instr& instr);
  bool branch(const Instr& instr);
  void jump(const Instr& instr);
  void call(const Instr& instr);
  void leave();
  void wait(const Instr& instr);
  bool arrive(const Instr& instr);
  bool together(const Instr& instr, uint32_t members);
  bool reconverge();  // whether some who wait for their warp can go on
  uint32_t alive() const;
  void stand(uint32_t lanes, uint32_t pc);  // they are at this place of the function from now on
  void use(const Frame& frame);
  uint32_t beside(const Frame& frame, State state) const;
  [[noreturn]] void stuck() const;
  std::byte* device(const Instr& instr, int lane, uint64_t address, bool reads, bool writes);
  std::byte* checked(Region& region, const Instr& instr, int lane, uint64_t at, bool reads, bool writes);
  [[noreturn]] void race(const Instr& instr, int lane, const Mark& other, bool shared, bool writes) const;
  std::byte* own(const Instr& instr, int lane, uint64_t at, bool reads, bool writes);

  std::vector<uint64_t> file_;
  std::vector<std::byte> local_;
  std::vector<uint8_t> local_known_;
  uint32_t stack_ = 0;  // bytes of local memory of each lane
  Lane lanes_[kLanes];

  // Of the lanes that go on together.
  Frame now_;
  uint32_t active_ = 0;
  uint32_t limit_ = 0;  // the place at which others of the same function stand
  bool any_ = false;    // a turn ended with some going on and on: others have theirs
  uint64_t* registers_ = nullptr;
  uint64_t* constants_ = nullptr;
};

}  // namespace epl::cuda_machine
