// What commands of a host stream have left to others: a send is posted, and its receiver takes it whenever it comes.
// The stream's next command waits until all posts have ended; commands of other streams of the same thread go on.
//
// Thread safety: one thread adds; any thread ends posts or waits.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/base/status.h"

namespace epl {

class Posts {
 public:
  static constexpr size_t reserved = 16;
  explicit Posts(size_t room = reserved) : room_(room) { open_.reserve(room); }

  // Nothing allocates while no more are open.
  size_t room() const { return room_; }

  uint64_t add();                                      // gives the post's number, from 1 on
  void end(uint64_t post, const Status& status = {});  // the first error is kept
  uint64_t last() const { return last_.load(std::memory_order_relaxed); }
  bool has_ended(uint64_t post) const { return ended_.load(std::memory_order_acquire) >= post; }  // and all before it
  void wait(uint64_t post) const;  // until it and all before it have ended
  void wait() const { wait(last()); }
  Status failure() const;
  Status take_failure();

 private:
  const size_t room_;
  std::atomic<uint64_t> last_{0}, ended_{0};  // all up to `ended_` have ended
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<uint64_t> open_;  // ascending
  Status failure_;
};

}  // namespace epl
