// Memory that processes of one host share: anonymous, so that nothing of it is left when all of them have ended,
// however they ended. Who may open it is who may read the maker's memory, and a number that only peers know stands in
// front.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/base/function_ref.h"
#include "core/base/status.h"
#include "core/net/connections.h"

namespace epl::net {

// What another process needs to open it.
struct SharedAddress {
  int64_t process = 0, file = -1;
  uint64_t token = 0;
  uint64_t bytes = 0;
};

// A mapping. Pages take memory when they are first written.
class SharedMemory {
 public:
  // Zeros. `file` stays open until the peers have opened it.
  static Result<std::unique_ptr<SharedMemory>> create(int64_t bytes);
  static Result<std::unique_ptr<SharedMemory>> open(const SharedAddress& address);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_ + header_bytes; }
  int64_t bytes() const { return bytes_ - header_bytes; }
  SharedAddress address() const;
  // Nobody opens it any more.
  void close_file() { file_.close(); }
  bool has_file() const { return file_.open(); }

 private:
  static constexpr int64_t header_bytes = 4096;
  SharedMemory() = default;
  Status map();

  Descriptor file_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  uint64_t token_ = 0;
};

// Which host this is, and which processes of it have numbers in common: those that say the same may try to share.
std::string host_identity();
// Whether this process can open what a peer of the same host has made.
bool can_open(const SharedAddress& address);

// A word of shared memory that processes wait for. Only its lower half is watched: a change must be seen there.
struct SharedWord {
  std::atomic<uint64_t> value{0};
  std::atomic<uint32_t> sleepers{0};

  // After a change.
  void wake();
  // Sleeps until somebody wakes, the value is no longer `seen`, or some milliseconds have passed; not at all if `come`
  // says so once those who change what it looks at can see a sleeper.
  void sleep(uint64_t seen, int milliseconds, FunctionRef<bool()> come);
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace epl::net
