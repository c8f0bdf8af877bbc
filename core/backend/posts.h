// What commands of a host stream have left to others: a send is posted, and its receiver takes it whenever it comes.
// The stream's next command waits until all posts have ended; commands of other streams of the same thread go on.
//
// Thread safety: one thread adds; any thread ends posts or waits. Nothing allocates while fewer than `reserved` are
// open.
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
  static constexpr int reserved = 16;
  Posts() { open_.reserve(reserved); }

  uint64_t add();                                      // gives the post's number, from 1 on
  void end(uint64_t post, const Status& status = {});  // the first error is kept
  uint64_t last() const { return last_.load(std::memory_order_relaxed); }
  void wait(uint64_t post) const;  // until it and all before it have ended
  void wait() const { wait(last()); }
  Status failure() const;
  Status take_failure();

 private:
  std::atomic<uint64_t> last_{0}, ended_{0};  // all up to `ended_` have ended
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<uint64_t> open_;  // ascending
  Status failure_;
};

}  // namespace epl
