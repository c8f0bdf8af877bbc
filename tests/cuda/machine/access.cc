// What is checked at every access of a kernel's thread: that the address is aligned and in memory that is there, that
// what is read was written, and that nobody else touches it at the same time.
#include <algorithm>

#include "tests/cuda/machine/block.h"

namespace epl::cuda_machine {
namespace {

std::string hex(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string verb(bool writes, int64_t bytes) {
  return std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes";
}

// Most accesses are of four or eight bytes: these are compared at once.
bool all_written(const uint8_t* known, int64_t bytes) {
  constexpr uint64_t eight = 0x0101010101010101u * Region::kWritten;
  uint64_t word = eight;
  if (bytes > 8) return all_written(known, 8) && all_written(known + 8, bytes - 8);
  std::memcpy(&word, known, static_cast<size_t>(bytes));
  return word == eight;
}

}  // namespace

std::byte* Warp::access(const Instr& instr, int lane, uint64_t address, bool reads, bool writes) {
  const auto bytes = static_cast<uint64_t>(instr.bytes) * instr.count;
  if ((address & (bytes - 1)) != 0)
    fail(kMisalignedAddress, instr, lane,
         verb(writes, static_cast<int64_t>(bytes)) + " at " + hex(address) + ", which is not aligned to them");
  Space space = instr.space;
  if (space == Space::generic) {
    const uint64_t window = address & ~(kWindowSize - 1);
    space = window == kSharedWindow      ? Space::shared
            : window == kLocalWindow     ? Space::local
            : window == kParameterWindow ? Space::parameter
                                         : Space::global;
    if (space != Space::global) address &= kWindowSize - 1;
  }
  switch (space) {
    case Space::shared:
      if (address + bytes > static_cast<uint64_t>(block.shared.bytes()))
        fail(kIllegalAddress, instr, lane,
             verb(writes, static_cast<int64_t>(bytes)) + " at " + std::to_string(address) + " of " +
                 std::to_string(block.shared.bytes()) + " bytes of shared memory");
      return checked(block.shared, instr, lane, address, reads, writes);
    case Space::frame:
      return own(instr, lane, address + now_.local, reads, writes);
    case Space::local:
      return own(instr, lane, address, reads, writes);
    case Space::parameter:
      address &= kWindowSize - 1;
      if (writes) fail(kIllegalAddress, instr, lane, "writes a parameter of the kernel");
      if (address + bytes > block.launch.parameters.size())
        fail(kIllegalAddress, instr, lane, "reads behind the parameters of the kernel");
      return block.launch.parameters.data() + address;
    default:
      return device(instr, lane, address, reads, writes);
  }
}

std::byte* Warp::device(const Instr& instr, int lane, uint64_t address, bool reads, bool writes) {
  const auto bytes = static_cast<uint64_t>(instr.bytes) * instr.count;
  Allocation* found = instr.last;
  if (found == nullptr || found->freed || !found->holds(address)) {
    found = block.launch.memory->find(address);
    instr.last = found;
  }
  if (found == nullptr || found->freed || !found->holds(address + bytes - 1))
    fail(kIllegalAddress, instr, lane,
         verb(writes, static_cast<int64_t>(bytes)) + " at " + hex(address) + ": " +
             block.launch.memory->about(found == nullptr || found->freed ? address : address + bytes - 1));
  // Stricter than peers that have access to each other: nothing of the pack's reaches another device from a kernel.
  if (found->device != block.launch.device)
    fail(kIllegalAddress, instr, lane,
         verb(writes, static_cast<int64_t>(bytes)) + " at " + hex(address) + ", which is memory of device " +
             std::to_string(found->device) + ", and the kernel runs on device " + std::to_string(block.launch.device));
  return checked(found->region, instr, lane, address - found->address, reads, writes);
}

std::byte* Warp::checked(Region& region, const Instr& instr, int lane, uint64_t at, bool reads, bool writes) {
  const auto begin = static_cast<int64_t>(at);
  const int64_t bytes = int64_t{instr.bytes} * instr.count;
  uint8_t* known = region.known() + begin;
  const bool all = all_written(known, bytes);
  if (!all && std::count(known, known + bytes, uint8_t{Region::kGap}) > 0)
    fail(kIllegalAddress, instr, lane,
         verb(writes, bytes) + " at " + std::to_string(at) + " of shared memory, which is of no variable");
  if (!all && reads && block.launch.uninitialised)
    fail(kLaunchFailed, instr, lane, verb(false, bytes) + " that nobody has written");
  if (block.launch.races) {
    const Who who = {.command = block.launch.command,
                     .block = &region == &block.shared ? 0 : block.index,
                     .barrier = block.barrier,
                     .warp_sync = sync,
                     .where = instr.where,
                     .thread = static_cast<uint16_t>(index * kLanes + static_cast<uint32_t>(lane)),
                     .strong = instr.strong};
    const Mark* other = region.touch(begin, bytes, who, writes, block.order);
    if (other != nullptr) race(instr, lane, *other, &region == &block.shared, writes);
  }
  if (writes && !all) std::fill_n(known, bytes, uint8_t{Region::kWritten});
  return region.data() + begin;
}

void Warp::race(const Instr& instr, int lane, const Mark& other, bool shared, bool writes) const {
  std::string what =
      std::string("race: ") + (writes ? "writes" : "reads") + (shared ? " shared memory" : " device memory") + " that ";
  if (other.command != block.launch.command) {
    what += "another command touches, and nothing says which of the two comes first: ";
  } else {
    what += block.who(other.thread);
    if (!shared && (other.many == 3 || other.block != block.index))
      what += " of " + (other.many == 3 ? std::string("another block") : block.name(other.block));
    what += " touches without a barrier between them: ";
  }
  fail(kLaunchFailed, instr, lane,
       what + (other.where == 0 ? "a copy or a fill" : (*block.launch.sites)[other.where].words()));
}

void Warp::synchronise(uint64_t address, int lane) {
  if (!block.launch.memory->of_device(address)) return;  // of the block alone
  Launch& launch = block.launch;
  Known& mine = launch.known[block.index];
  Known& here = launch.released[address];
  const auto join = [](Known& into, const Known& from) {
    for (const auto& [number, seen] : from) {
      Seen& known = into[number];
      if (known.barrier <= seen.barrier) known = seen;
    }
  };
  join(mine, here);
  if ((fenced >> lane & 1) == 0) return;
  join(here, mine);
  here[block.index] = {block.barrier, static_cast<uint16_t>(index * kLanes + static_cast<uint32_t>(lane))};
}

// Local memory and the parameters of functions: nobody else can touch these.
std::byte* Warp::own(const Instr& instr, int lane, uint64_t at, bool reads, bool writes) {
  const int64_t bytes = int64_t{instr.bytes} * instr.count;
  if (at + static_cast<uint64_t>(bytes) > stack_)
    fail(
        kIllegalAddress, instr, lane,
        verb(writes, bytes) + " at " + std::to_string(at) + " of " + std::to_string(stack_) + " bytes of local memory");
  const size_t begin = static_cast<size_t>(lane) * stack_ + at;
  uint8_t* known = local_known_.data() + begin;
  if (reads && block.launch.uninitialised && std::count(known, known + bytes, uint8_t{Region::kWritten}) != bytes)
    fail(kLaunchFailed, instr, lane, verb(false, bytes) + " of local memory that it has not written");
  if (writes) std::fill_n(known, bytes, uint8_t{Region::kWritten});
  return local_.data() + begin;
}

}  // namespace epl::cuda_machine
