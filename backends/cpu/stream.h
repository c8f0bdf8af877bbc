// The CPU's stream: commands run on the calling thread and its pool before the call returns.
#pragma once

#include <atomic>
#include <memory>

#include "core/backend/device.h"

namespace epl::cpu {

// Commands that were issued before `record` have finished when it returns, so an event only has to make their writes
// visible to the thread that waits. Waiting for an event that was never recorded does not wait.
class CpuEvent final : public Event {
 public:
  void record() { recorded_.fetch_add(1, std::memory_order_release); }
  void wait() const { static_cast<void>(recorded_.load(std::memory_order_acquire)); }

 private:
  std::atomic<uint64_t> recorded_{0};
};

// Thread safety: one caller at a time.
// Invariant: kernels run in the default floating-point environment (round to nearest, subnormals kept), whatever the
// host process has set, because results must not depend on it.
class CpuStream final : public Stream {
 public:
  CpuStream(int threads, ThreadPool::Wait wait);
  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override;
  void copy(void* target, const void* source, int64_t bytes) override;
  void fill(void* target, int64_t bytes, uint8_t value) override;
  void upload(void* target, const void* host_source, int64_t bytes) override { copy(target, host_source, bytes); }
  void download(void* host_target, const void* source, int64_t bytes) override { copy(host_target, source, bytes); }
  void record(Event& event) override { static_cast<CpuEvent&>(event).record(); }
  void wait(Event& event) override { static_cast<CpuEvent&>(event).wait(); }
  Status synchronize() override { return {}; }
  ThreadPool* threads() override { return pool_.get(); }

 private:
  std::unique_ptr<ThreadPool> pool_;
};

}  // namespace epl::cpu
