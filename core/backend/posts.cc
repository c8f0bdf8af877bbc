#include "core/backend/posts.h"

#include <utility>

namespace epl {

uint64_t Posts::add() {
  std::lock_guard lock(mutex_);
  const uint64_t post = last() + 1;
  open_.push_back(post);
  last_.store(post, std::memory_order_relaxed);
  return post;
}

void Posts::end(uint64_t post, const Status& status) {
  {
    std::lock_guard lock(mutex_);
    std::erase(open_, post);
    if (failure_.ok()) failure_ = status;
    ended_.store(open_.empty() ? last() : open_.front() - 1, std::memory_order_release);
  }
  changed_.notify_all();
}

void Posts::wait(uint64_t post) const {
  if (has_ended(post)) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return has_ended(post); });
}

Status Posts::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

Status Posts::take_failure() {
  std::lock_guard lock(mutex_);
  return std::exchange(failure_, {});
}

}  // namespace epl
