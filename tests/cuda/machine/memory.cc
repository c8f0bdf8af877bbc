#include "tests/cuda/machine/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace epl::cuda_machine {

Zeros::Zeros(size_t bytes) : bytes_(std::max<size_t>(bytes, 1)) {
  begin_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin_ == MAP_FAILED) {
    begin_ = nullptr;
    throw Fault(kOutOfMemory, "the host has no memory for what the machine holds");
  }
}

Zeros& Zeros::operator=(Zeros&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Zeros::~Zeros() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

Region::Region(int64_t bytes, bool races)
    : data_(static_cast<size_t>(bytes) + 16), known_(static_cast<size_t>(bytes) + 16), bytes_(bytes) {
  if (races) pages_.resize(static_cast<size_t>(bytes / kPage + 1));
}

void Region::forget() {
  for (int64_t k = 0; k < bytes_; ++k) known()[k] = known()[k] == kGap ? kGap : kNothing;
  for (Page& page : pages_)
    if (page.marks) std::fill_n(page.marks.get(), kPage / page.granule, Marks());
}

// Each mark is written out for its two halves.
void Region::refine(Page& page) {
  const int64_t many = kPage / page.granule;
  auto finer = std::make_unique<Marks[]>(static_cast<size_t>(2 * many));
  for (int64_t k = 0; k < 2 * many; ++k) finer[k] = page.marks[k / 2];
  page.marks = std::move(finer);
  std::map<int64_t, std::vector<Mark>> others;
  for (const auto& [k, reads] : page.other_reads) others[2 * k] = others[2 * k + 1] = reads;
  page.other_reads = std::move(others);
  page.granule /= 2;
}

namespace {

enum class Order { same, before, none };

Order order(const Mark& mark, const Who& who, const Before& before) {
  if (mark.command == 0) return Order::before;
  if (mark.command != who.command) return before(mark, who) ? Order::before : Order::none;
  if (mark.many == 3) return Order::none;
  if (mark.block != who.block) return before(mark, who) ? Order::before : Order::none;
  if (mark.barrier != who.barrier) return Order::before;
  if (mark.many == 0 && mark.thread == who.thread) return Order::same;
  if (mark.many <= 1 && mark.thread / 32 == who.thread / 32 && mark.warp_sync != who.warp_sync) return Order::before;
  return Order::none;
}

// How far apart two readers are that nothing orders.
uint8_t apart(const Mark& mark, const Who& who) {
  if (mark.command != who.command) return 0;  // unordered commands: the later one is remembered
  if (mark.block != who.block) return 3;
  return std::max<uint8_t>(mark.many, mark.thread / 32 != who.thread / 32 ? 2 : 1);
}

}  // namespace

const Mark* Region::touch(int64_t at, int64_t bytes, const Who& who, bool writes, const Before& before) {
  if (pages_.empty()) return nullptr;
  while (bytes > 0) {
    const int64_t here = std::min(bytes, kPage - at % kPage);
    const Mark* other = touch_page(pages_[at / kPage], at % kPage, here, who, writes, before);
    if (other != nullptr) return other;
    at += here;
    bytes -= here;
  }
  return nullptr;
}

const Mark* Region::touch_page(Page& page, int64_t at, int64_t bytes, const Who& who, bool writes,
                               const Before& before) {
  if (!page.marks) page.marks = std::make_unique<Marks[]>(static_cast<size_t>(kPage / page.granule));
  while ((at | bytes) & (page.granule - 1)) refine(page);
  const Mark mine = {who.command, who.block, who.barrier, who.warp_sync, who.where, who.thread, 0, who.strong};
  for (int64_t k = at / page.granule; k < (at + bytes) / page.granule; ++k) {
    Marks& marks = page.marks[k];
    const Order write = order(marks.written, who, before);
    if (write == Order::none && !(marks.written.strong && who.strong)) return &marks.written;
    if (writes) {
      const Order read = order(marks.read, who, before);
      if (read == Order::none && !(marks.read.strong && who.strong)) return &marks.read;
      if (const auto others = page.other_reads.find(k); others != page.other_reads.end()) {
        for (const Mark& other : others->second) {
          if (order(other, who, before) != Order::before) return &other;
        }
        page.other_reads.erase(others);
      }
      marks.written = mine;
    } else {
      const bool together = order(marks.read, who, before) == Order::none;
      if (together && marks.read.command != who.command) page.other_reads[k].push_back(marks.read);
      const uint8_t many = together ? apart(marks.read, who) : 0;
      const bool strong = who.strong && (!together || marks.read.strong);
      marks.read = mine;
      marks.read.many = many;
      marks.read.strong = strong;
    }
  }
  return nullptr;
}

Allocation& DeviceMemory::allocate(int64_t bytes, int device, bool races) {
  constexpr uint64_t chunk = uint64_t{1} << 36;
  const uint64_t room = (static_cast<uint64_t>(bytes) + 2 * kRedZone + 511) / 512 * 512;
  if (reserved_.empty() || next_ + room > reserved_.back().end) {
    const uint64_t size = std::max(chunk, room);
    void* begin = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (begin == MAP_FAILED) throw Fault(kOutOfMemory, "the host has no addresses for device memory");
    reserved_.push_back({reinterpret_cast<uint64_t>(begin), reinterpret_cast<uint64_t>(begin) + size});
    next_ = reserved_.back().begin;
  }
  auto made = std::make_unique<Allocation>();
  made->address = next_ + kRedZone;
  made->bytes = bytes;
  made->device = device;
  made->region = Region(bytes, races);
  next_ += room;
  used_[device] += bytes;
  Allocation& allocation = *made;
  allocations_[allocation.address] = std::move(made);
  return allocation;
}

void DeviceMemory::free(Allocation& allocation) {
  allocation.freed = true;
  allocation.region = {};
  used_[allocation.device] -= allocation.bytes;
}

void DeviceMemory::free_all(int device) {
  for (const auto& [address, allocation] : allocations_) {
    if (allocation->device == device && !allocation->freed) free(*allocation);
  }
}

Allocation* DeviceMemory::find(uint64_t address) {
  auto at = allocations_.upper_bound(address);
  if (at == allocations_.begin()) return nullptr;
  --at;
  return at->second->holds(address) ? at->second.get() : nullptr;
}

std::string DeviceMemory::about(uint64_t address) {
  auto at = allocations_.upper_bound(address);
  if (Allocation* allocation = find(address); allocation != nullptr && allocation->freed)
    return "in memory of " + std::to_string(allocation->bytes) + " bytes that was freed";
  std::string words = "in no allocation";
  if (at != allocations_.begin()) {
    const Allocation& below = *std::prev(at)->second;
    const uint64_t past = address - below.address - static_cast<uint64_t>(below.bytes);
    if (past < (uint64_t{1} << 30))
      words += ", " + std::to_string(past) + " bytes behind the end of one of " + std::to_string(below.bytes);
  }
  if (at != allocations_.end() && at->first - address < (uint64_t{1} << 20))
    words += ", " + std::to_string(at->first - address) + " bytes before one of " + std::to_string(at->second->bytes);
  return words;
}

bool DeviceMemory::of_device(uint64_t address) const {
  return std::any_of(reserved_.begin(), reserved_.end(),
                     [&](const Reserved& r) { return address >= r.begin && address < r.end; });
}

int64_t DeviceMemory::used(int device) const {
  const auto used = used_.find(device);
  return used == used_.end() ? 0 : used->second;
}

}  // namespace epl::cuda_machine
