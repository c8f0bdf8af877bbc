// The CPU's stream. Commands run on the calling thread and its pool before the call returns. Some do not: sends are
// posted, and so is what threads of files read and write. The stream's next command waits until these have ended. A
// stream that reads and writes files leaves its waits for other streams to those threads.
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
  struct Record {
    std::shared_ptr<Posts> posts;  // null: there is none
    uint64_t last = 0;
  };
  void record(std::shared_ptr<Posts> posts);
  Record latest() const;

 private:
  mutable std::mutex mutex_;
  Record latest_;
};

// Thread safety: one caller at a time.
// Invariant: kernels run in the default floating-point environment (round to nearest, subnormals kept), whatever the
// host process has set, because results must not depend on it.
class CpuStream final : public Stream, public HostStream {
 public:
  // Throws std::system_error where the system gives no threads. `files`: null where the device has none.
  CpuStream(std::shared_ptr<Workers> workers, int threads, std::shared_ptr<Files> files = nullptr)
      : pool_(std::move(workers), threads),
        files_(std::move(files)),
        posts_(std::make_shared<Posts>(files_ ? FileQueue::most_waiting : Posts::reserved)) {}
  ~CpuStream() override;
  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override;
  void copy(void* target, const void* source, int64_t bytes) override;
  void copy_rows(const RowCopy& rows) override;
  void fetch(void* target, const void* source, int64_t bytes) override;
  void evict(void* target, const void* source, int64_t bytes) override;
  void fill(void* target, int64_t bytes, uint8_t value) override;
  void upload(void* target, const void* host_source, int64_t bytes) override { copy(target, host_source, bytes); }
  void download(void* host_target, const void* source, int64_t bytes) override { copy(host_target, source, bytes); }
  void record(Event& event) override;
  // A stream that waits for what failed has failed with it.
  void wait(Event& event) override;
  Status synchronize() override;
  // Who asks for this goes past the commands.
  HostStream* host() override;
  ThreadPool& threads() override { return pool_; }
  std::shared_ptr<Posts> posts() override { return posts_; }

 private:
  bool in_files(const void* target, const void* source) const;
  void take(const Status& status);
  void wait_for(const std::shared_ptr<Posts>& posts, uint64_t last);
  void begin_move(const File& file, bool writes);
  void end_waits();
  void end_posts();

  ThreadPool pool_;
  std::shared_ptr<Files> files_;
  std::shared_ptr<Posts> posts_;
  bool moves_ = false;          // has used files
  const File* file_ = nullptr;  // the last one
  bool writes_ = false;         // it was written
  Awaited awaited_;             // by the next command
  Status failure_;              // of what it waited for, and of files
};

}  // namespace epl::cpu
