// The CPU's stream. Commands run on the calling thread and its pool before the call returns. Some do not: sends are
// posted, and so is what a file's thread reads and writes. The stream's next command waits until these have ended.
#pragma once

#include <memory>
#include <mutex>

#include "backends/cpu/files.h"
#include "core/backend/device.h"

namespace epl::cpu {

// A point behind the posts of a stream; everything else before it is done when `record` returns. Waiting for an event
// that was never recorded does not wait.
class CpuEvent final : public Event {
 public:
  void record(std::shared_ptr<Posts> posts);
  // Gives the error of what it waited for, if that failed.
  Status wait() const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Posts> posts_;
  uint64_t last_ = 0;
};

// Thread safety: one caller at a time.
// Invariant: kernels run in the default floating-point environment (round to nearest, subnormals kept), whatever the
// host process has set, because results must not depend on it.
class CpuStream final : public Stream, public HostStream {
 public:
  // Throws std::system_error where the system gives no threads. `files`: null where the device has none.
  CpuStream(std::shared_ptr<Workers> workers, int threads, std::shared_ptr<Files> files = nullptr)
      : pool_(std::move(workers), threads), files_(std::move(files)) {}
  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override;
  void copy(void* target, const void* source, int64_t bytes) override;
  void copy_rows(const RowCopy& rows) override;
  void fetch(void* target, const void* source, int64_t bytes) override;
  void evict(void* target, const void* source, int64_t bytes) override;
  void fill(void* target, int64_t bytes, uint8_t value) override;
  void upload(void* target, const void* host_source, int64_t bytes) override { copy(target, host_source, bytes); }
  void download(void* host_target, const void* source, int64_t bytes) override { copy(host_target, source, bytes); }
  void record(Event& event) override { static_cast<CpuEvent&>(event).record(posts_); }
  // A stream that waits for what failed has failed with it.
  void wait(Event& event) override;
  Status synchronize() override;
  HostStream* host() override { return this; }
  ThreadPool& threads() override { return pool_; }
  std::shared_ptr<Posts> posts() override { return posts_; }

 private:
  bool in_files(const void* target, const void* source) const;
  void take(const Status& status);

  ThreadPool pool_;
  std::shared_ptr<Files> files_;
  std::shared_ptr<Posts> posts_ = std::make_shared<Posts>();
  Status failure_;  // of what it waited for, and of files
};

}  // namespace epl::cpu
