// What the far device is made of: memory behind addresses that fault, and the order in which streams take turns.
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "tests/backend/far_group.h"

namespace epl::far {

std::byte* Memory::real(const void* address) {
  if (address == nullptr) return nullptr;
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(mutex_);
  auto region = regions_.upper_bound(at);
  EPL_CHECK(region != regions_.begin(), "address ", at, " is not of this device");
  --region;
  EPL_CHECK(at < region->first + region->second.reserved, "address ", at, " is not of this device");
  return region->second.real + (at - region->first);
}

void* Memory::add(std::byte* real, int64_t bytes) {
  constexpr int64_t page = 4096;
  const int64_t reserved = (bytes / page + 1) * page;
  void* address =
      ::mmap(nullptr, static_cast<size_t>(reserved), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  EPL_CHECK(address != MAP_FAILED, "no addresses for ", bytes, " bytes");
  std::lock_guard lock(mutex_);
  regions_[reinterpret_cast<uintptr_t>(address)] = {real, reserved, bytes};
  return address;
}

bool Memory::has(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::lock_guard lock(mutex_);
  const auto region = regions_.upper_bound(at);
  return region != regions_.begin() && at < std::prev(region)->first + std::prev(region)->second.reserved;
}

int64_t Memory::bytes() {
  std::lock_guard lock(mutex_);
  int64_t all = 0;
  for (const auto& [address, region] : regions_) all += region.bytes;
  return all;
}

void Memory::remove(void* address) {
  std::lock_guard lock(mutex_);
  const auto region = regions_.find(reinterpret_cast<uintptr_t>(address));
  ::munmap(address, static_cast<size_t>(region->second.reserved));
  regions_.erase(region);
}

void Engine::issue(Queue& queue, Command command) {
  std::lock_guard lock(mutex);
  issue_locked(queue, std::move(command));
}

void Engine::issue_locked(Queue& queue, Command command) {
  queue.commands.push_back(std::move(command));
  changed.notify_all();
}

void Engine::add(Queue& queue) {
  std::lock_guard lock(mutex);
  queue.haste = random_();
  queues_.push_back(&queue);
}

void Engine::remove(Queue& queue) {
  std::lock_guard lock(mutex);
  std::erase(queues_, &queue);
  queue.commands.clear();
}

void Engine::reseed(uint64_t seed) {
  std::lock_guard lock(mutex);
  random_.seed(static_cast<unsigned>(seed));
}

void Engine::fail_at(int64_t number) {
  std::lock_guard lock(mutex);
  fails_in_ = number;
}

void Engine::record_into(Recorded* recorded) {
  std::lock_guard lock(mutex);
  recorded_ = recorded;
}

// Mostly the hastiest of the streams that can go on, so that one runs far ahead of others or stays far behind; now and
// then any of them, which has another haste from then on.
Queue& Engine::choose(const std::vector<Queue*>& able) {
  if (random_() % 16 != 0) return **std::ranges::max_element(able, {}, &Queue::haste);
  Queue& queue = *able[random_() % able.size()];
  queue.haste = random_();
  return queue;
}

// One command of any stream that can go on; false where all wait.
bool Engine::go_on() {
  std::vector<Queue*> able;
  for (Queue* queue : queues_) {
    if (queue->commands.empty()) continue;
    const Command& next = queue->commands.front();
    if (!queue->failure.ok() || !next.ready || next.ready()) able.push_back(queue);
  }
  if (able.empty()) return false;
  Queue& queue = choose(able);
  const Command command = std::move(queue.commands.front());
  queue.commands.pop_front();
  Status status;
  // What failed is not carried on with, but who waits for a record is not left waiting.
  if (queue.failure.ok() || command.always) {
    try {
      const bool fails = !command.always && command.collective == nullptr && fails_in_ >= 0 && fails_in_-- == 0;
      status = fails ? error(Code::internal, "a failure of the tests") : command.run();
    } catch (const InternalError& e) {
      status = Status(Code::internal, e.what());
    }
  }
  if (queue.failure.ok()) queue.failure = status;
  changed.notify_all();
  return true;
}

Status Engine::wait_for(Queue& queue) {
  std::unique_lock lock(mutex);
  while (!queue.commands.empty()) {
    if (!go_on()) changed.wait(lock);
  }
  return std::exchange(queue.failure, {});
}

}  // namespace epl::far
