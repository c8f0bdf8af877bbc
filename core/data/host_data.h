// Data that the host gives: samples by a function that is asked for them, or batches that it pushes into a queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/stop.h"
#include "core/base/tensor.h"
#include "core/data/open.h"

namespace epl {

using HostFields = std::vector<std::pair<std::string, TensorType>>;

// Writes field `field` of these samples to `target`, one behind the other.
using ReadSamples = std::function<Status(int field, std::span<const int64_t> samples, void* target, size_t bytes)>;
// A dataset of them. Of endless samples the function itself says by an error which ones are not there.
Result<OpenedDataset> host_dataset(HostFields fields, int64_t samples, ReadSamples read, std::string_view options);

// Batches on their way from those who push to the one who takes them. Thread safety: any threads may push and end it;
// one reads, at a time. Invariant: `first_` is the number of the first batch in the queue, or of the next one pushed.
class BatchQueue {
 public:
  BatchQueue(HostFields fields, int64_t capacity);
  // A copy, when there is room. An error says why there never will be.
  Status push(std::span<const Tensor> batch, const Stop& stop);
  // No batch follows those that were pushed.
  void finish();
  // Nobody takes or gives any more: those who wait for room, or for a batch that is not here, are told why.
  void close(const char* why) noexcept;
  // From now on this reader takes the batches, the only one ever; when it leaves, the queue is closed.
  Status take(const Reader& reader);
  void leave(const Reader* reader) noexcept;
  // Waits for batch `number`: an error if it will not come.
  Status wait(int64_t number, const Stop& stop);
  Status read(int64_t number, int field, void* target);
  // Batch `number` is taken next: those before it are dropped, and one that is not here is pushed next.
  void go_to(int64_t number);
  const HostFields& fields() const { return fields_; }

 private:
  bool has(int64_t number) const;
  Status why_not(int64_t number) const;
  template <class F> Status wait_until(std::unique_lock<std::mutex>& lock, const Stop& stop, F&& ready);

  const HostFields fields_;
  const int64_t capacity_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<Tensor>> batches_;
  std::vector<std::vector<Tensor>> spare_;  // whose memory is used again
  int64_t first_ = 0;
  bool finished_ = false;
  const Reader* reader_ = nullptr;
  const char* closed_ = nullptr;  // why; null: it is open
};
// Its reader takes the queue when the caller is ready for it.
Result<OpenedDataset> queue_dataset(std::shared_ptr<BatchQueue> queue);

}  // namespace epl
