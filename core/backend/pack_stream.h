// The inside of a device that a pack is: what it has opened, its streams and events. See pack_device.h.
//
// A call of a group leaves its stream free: it stands in the stream's list of open calls until all ranks have made it,
// and the next command of that stream waits for that (pack_group.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/device.h"
#include "core/backend/pack_query.h"
#include "core/base/pack_abi.h"

namespace epl {

// An opened device of a pack, closed with the last that keeps it.
struct OpenedPack {
  OpenedPack(std::string name, const epl_pack_device* pack_verbs, void* pack_handle)
      : device(std::move(name)), verbs(pack_verbs), handle(pack_handle) {}
  ~OpenedPack() { verbs->close(handle); }
  OpenedPack(const OpenedPack&) = delete;
  OpenedPack& operator=(const OpenedPack&) = delete;

  const std::string device;  // "cuda"
  const epl_pack_device* const verbs;
  void* const handle;
  std::atomic<int64_t> in_use{0};
};

// What a verb gave: `doing` says for what.
Status pack_status(const OpenedPack& opened, int32_t result, const PackReason& reason, std::string_view doing);

class PackEvent final : public Event {
 public:
  static Result<std::unique_ptr<PackEvent>> make(std::shared_ptr<OpenedPack> opened);
  PackEvent(std::shared_ptr<OpenedPack> opened, void* handle, Status failure)
      : opened_(std::move(opened)), handle_(handle), failure_(std::move(failure)) {}
  ~PackEvent() override;
  void* handle() const { return handle_; }
  // Why there is none, or what the stream that recorded it last had failed with.
  Status failure() const;
  void fail(const Status& status);

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const handle_;
  mutable std::mutex mutex_;
  Status failure_;
};

// A call of a group that a stream has come to, and that others may still have to make.
class OpenCall {
 public:
  virtual ~OpenCall() = default;
  // Waits until all have made it. The event that the stream then waits for, or why it does not take place.
  virtual Result<std::shared_ptr<PackEvent>> wait() = 0;
};

class PackStream final : public Stream {
 public:
  PackStream(std::shared_ptr<OpenedPack> opened, void* handle) : opened_(std::move(opened)), handle_(handle) {}
  ~PackStream() override;

  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override;
  void copy(void* target, const void* source, int64_t bytes) override;
  void copy_rows(const RowCopy& rows) override;
  void fill(void* target, int64_t bytes, uint8_t value) override;
  void upload(void* target, const void* host_source, int64_t bytes) override;
  void download(void* host_target, const void* source, int64_t bytes) override;
  void record(Event& event) override;
  void wait(Event& event) override;
  Status synchronize() override;

  const OpenedPack& opened() const { return *opened_; }
  void* handle() const { return handle_; }
  // Waits for the open calls; afterwards what is issued comes after them.
  void settle();
  void add(std::shared_ptr<OpenCall> call) { open_.push_back(std::move(call)); }
  // f(reason) issues one command by the verbs, and gives what they give. What failed is not carried on with.
  template <class F> void issue(std::string_view doing, const F& f) {
    settle();
    if (!failure_.ok()) return;
    const PackReason reason;
    if (const int32_t result = f(&reason.to); result != 0) fail(pack_status(*opened_, result, reason, doing));
  }
  void fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const handle_;
  std::vector<std::shared_ptr<OpenCall>> open_;
  Status failure_;  // the first, until somebody takes it
};

}  // namespace epl
