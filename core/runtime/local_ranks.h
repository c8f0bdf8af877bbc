// The ranks of the plan that live in this process, each with its memory and its way to its peers.
// Thread safety: one caller at a time; `each` runs its body on a thread for each rank.
#pragma once

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/function_ref.h"
#include "core/runtime/executor.h"

namespace epl {

struct LocalRank {
  int number = 0;  // among all ranks of the plan
  int virtual_device = 0;
  std::unique_ptr<Stream> stream;
  ParameterStore store;
  Buffers arenas;
  std::vector<std::unique_ptr<Executor>> executors;             // by entry
  std::unique_ptr<Communicator> world;                          // none where there is one rank
  std::map<std::string, std::unique_ptr<Communicator>> groups;  // by name
  std::vector<Groups> groups_of_entry;
  Status status;
  bool bug = false;                // a check of our own failed in the current call
  std::vector<TraceEvent> events;  // of the steps that are recorded
  size_t events_before = 0;        // the current call
  // So far, from the instructions that ran; never above the plan's. Any thread reads them.
  ByMemory<std::atomic<int64_t>> memory_bytes_used;
};

class LocalRanks {
 public:
  LocalRanks(std::shared_ptr<Device> device, int first) : device_(std::move(device)), first_(first) {}
  // The next rank, in the order of their numbers, which follow each other unless some represent others.
  void add(std::unique_ptr<LocalRank> rank) { ranks_.push_back(std::move(rank)); }
  // Where several ranks run at the same time. Without threads they run one after another.
  void use(std::shared_ptr<Teams> threads) { threads_ = std::move(threads); }

  const std::shared_ptr<Device>& device() const { return device_; }
  int first() const { return first_; }  // number
  int count() const { return static_cast<int>(ranks_.size()); }
  bool has(int number) const {
    const auto found = find(number);
    return found != ranks_.end() && (*found)->number == number;
  }
  LocalRank& at(int number) const { return **find(number); }
  LocalRank& front() const { return *ranks_.front(); }
  auto begin() const { return ranks_.begin(); }
  auto end() const { return ranks_.end(); }

  // On every rank at once, or one after another where they are simulated and nothing blocks.
  void each(FunctionRef<void(LocalRank&)> body) const {
    if (threads_) {
      Team team(*threads_);
      team.threads().run(count(), [&](int64_t r, int) { body(*ranks_[static_cast<size_t>(r)]); });
    } else {
      for (const auto& rank : ranks_) body(*rank);
    }
  }
  // The same, of what each rank does the first error.
  Status try_each(FunctionRef<Status(LocalRank&)> body) const {
    each([&](LocalRank& rank) { rank.status = body(rank); });
    for (const auto& rank : ranks_) EPL_TRY(rank->status);
    return {};
  }

 private:
  std::vector<std::unique_ptr<LocalRank>>::const_iterator find(int number) const {
    return std::ranges::lower_bound(ranks_, number, {}, [](const auto& rank) { return rank->number; });
  }

  const std::shared_ptr<Device> device_;
  const int first_;
  std::vector<std::unique_ptr<LocalRank>> ranks_;
  std::shared_ptr<Teams> threads_;  // none where one thread drives all ranks
};

}  // namespace epl
