// Memory as the machine sees it. Every byte knows whether it was written; every word knows who wrote and who read it
// last, so that two who are in no order are found. Device memory lies at addresses that the host cannot touch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/machine/fault.h"

namespace epl::cuda_machine {

// Who touches memory: a thread of a block of a command, at a point between barriers.
struct Who {
  uint32_t command = 0;  // 0: nobody
  uint32_t block = 0;
  uint32_t barrier = 0;    // how many barriers of the block came before
  uint32_t warp_sync = 0;  // and how many of the warp
  uint32_t where = 0;      // the instruction, for messages
  uint16_t thread = 0;
  bool strong = false;  // an atomic or volatile access: not in a race with another such
};

// What is remembered of a touch. `many` says for whom it stands: 0: one thread, 1: several of a warp, 2: of a block,
// 3: several blocks.
struct Mark {
  uint32_t command = 0;
  uint32_t block = 0;
  uint32_t barrier = 0;
  uint32_t warp_sync = 0;
  uint32_t where = 0;
  uint16_t thread = 0;
  uint8_t many = 0;
  bool strong = false;
};

struct Marks {
  Mark written, read;
};

// Answers whether a touch by another command or another block came before for certain: a stream, an event or the host
// put it there, or a fence with an atomic operation.
using Before = std::function<bool(const Mark&, const Who&)>;

// Pages of zeros from the system: those that nobody touches cost nothing.
class Zeros {
 public:
  Zeros() = default;
  explicit Zeros(size_t bytes);
  Zeros(Zeros&& other) noexcept : begin_(std::exchange(other.begin_, nullptr)), bytes_(other.bytes_) {}
  Zeros& operator=(Zeros&& other) noexcept;
  ~Zeros();
  void* begin() const { return begin_; }

 private:
  void* begin_ = nullptr;
  size_t bytes_ = 0;
};

// Bytes with what is known of them.
class Region {
 public:
  enum : uint8_t { kNothing = 0, kWritten = 1, kGap = 2 };

  Region() = default;
  Region(int64_t bytes, bool races);

  std::byte* data() { return static_cast<std::byte*>(data_.begin()); }
  int64_t bytes() const { return bytes_; }
  uint8_t* known() { return static_cast<uint8_t*>(known_.begin()); }

  // Who else touched these bytes without an order between the two, or null. Notes the touch.
  const Mark* touch(int64_t at, int64_t bytes, const Who& who, bool writes, const Before& before);
  void forget();  // as new, but for the gaps

 private:
  // The marks of a page, made when it is touched; each stands for `granule` bytes, or fewer once something narrower
  // touched the page.
  struct Page {
    std::unique_ptr<Marks[]> marks;
    // Of commands that read it and are in no order with the one that read it last: rare.
    std::map<int64_t, std::vector<Mark>> other_reads;
    int64_t granule = 4;
  };
  static constexpr int64_t kPage = 1024;
  static void refine(Page& page);
  static const Mark* touch_page(Page& page, int64_t at, int64_t bytes, const Who& who, bool writes,
                                const Before& before);

  Zeros data_, known_;
  std::vector<Page> pages_;
  int64_t bytes_ = 0;
};

struct Allocation {
  uint64_t address = 0;
  int64_t bytes = 0;
  bool freed = false;
  int device = 0;
  bool of_program = false;  // and not a module's
  Region region;
  bool holds(uint64_t at) const { return at - address < static_cast<uint64_t>(bytes); }
};

// The addresses of all devices. What was freed is remembered, and its address is not given again.
class DeviceMemory {
 public:
  static constexpr int64_t kRedZone = 512;

  // `align` of the address; what the driver gives is aligned to 512.
  Allocation& allocate(int64_t bytes, int device, bool races);
  void free(Allocation& allocation);
  void free_all(int device);
  Allocation* find(uint64_t address);      // that holds it, live or freed
  std::string about(uint64_t address);     // of one that is in no live allocation
  bool of_device(uint64_t address) const;  // within the addresses that are the devices'
  int64_t used(int device) const;

 private:
  struct Reserved {
    uint64_t begin = 0, end = 0;
  };
  std::vector<Reserved> reserved_;
  uint64_t next_ = 0;
  std::map<uint64_t, std::unique_ptr<Allocation>> allocations_;
  std::map<int, int64_t> used_;
};

}  // namespace epl::cuda_machine
