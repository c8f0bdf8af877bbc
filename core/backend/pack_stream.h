// The inside of a device that a pack is: what it has opened, its streams and events. See pack_device.h.
//
// A call of a group leaves the host free: it stands in its stream's list of open calls until all ranks have made it.
// The next command of that stream waits for that, and so does what comes behind an event that was recorded in between
// (pack_group.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/device.h"
#include "core/backend/pack_copies.h"
#include "core/backend/pack_query.h"
#include "core/backend/pack_recorder.h"
#include "core/base/pack_abi.h"

namespace epl {

// An opened device of a pack, closed with the last that keeps it.
struct OpenedPack {
  OpenedPack(std::string name, const epl_pack_device* pack_verbs, void* pack_handle)
      : device(std::move(name)), verbs(pack_verbs), handle(pack_handle) {}
  ~OpenedPack() { verbs->close(handle); }
  OpenedPack(const OpenedPack&) = delete;
  OpenedPack& operator=(const OpenedPack&) = delete;

  const std::string device;  // "cuda:0"
  const epl_pack_device* const verbs;
  void* const handle;
  std::atomic<int64_t> in_use{0};

  bool records() const { return verbs->begin_recording != nullptr; }
  // With devices of other processes, which packs of an older table do not.
  bool meets() const {
    constexpr size_t behind = offsetof(epl_pack_device, circle_done) + sizeof(epl_pack_device::circle_done);
    return verbs->struct_size >= behind && verbs->circle_done != nullptr;
  }
  // What the program of the host has there, as well.
  bool shares() const {
    constexpr size_t behind = offsetof(epl_pack_device, copy_placed) + sizeof(epl_pack_device::copy_placed);
    return verbs->struct_size >= behind && verbs->copy_placed != nullptr;
  }
};

// What a verb gave: `doing` says for what.
Status pack_status(const OpenedPack& opened, int32_t result, const PackReason& reason, std::string_view doing);

class PackEvent;

// A call of a group that a stream has come to, and that others may still have to make.
class OpenCall {
 public:
  virtual ~OpenCall() = default;
  // Waits until all have made it. The event that the stream then waits for, or why it does not take place.
  virtual Result<std::shared_ptr<PackEvent>> wait() = 0;
};
struct OpenAt {
  std::shared_ptr<OpenCall> call;
  bool sends;  // it writes nothing that a later send of the stream could read
};
using OpenCalls = std::vector<OpenAt>;

class PackEvent final : public Event {
 public:
  static Result<std::unique_ptr<PackEvent>> make(std::shared_ptr<OpenedPack> opened);
  PackEvent(std::shared_ptr<OpenedPack> opened, void* handle, Status failure)
      : opened_(std::move(opened)), handle_(handle), failure_(std::move(failure)) {}
  ~PackEvent() override;
  void* handle() const { return handle_; }
  // What the stream that recorded it last had failed with, or why there is no event.
  Status failure() const;
  // Appends the calls that were open there.
  void append_open(OpenCalls& to) const;
  void set(const Status& failure, const OpenCalls& open);

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const handle_;
  mutable std::mutex mutex_;
  Status failure_;
  OpenCalls open_;
};

class PackStream final : public Stream, public StreamClock {
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
  StreamClock* stamps() override { return this; }
  StreamRecorder* recorder() override;
  void stamp(double* seconds) override;
  ForeignCopies* foreign() override { return opened_->shares() ? &copies_ : nullptr; }

  const std::shared_ptr<OpenedPack>& opened() const { return opened_; }
  void* handle() const { return handle_; }
  // Waits for the open calls; afterwards what is issued comes after them.
  void settle();
  bool only_sends_are_open() const;
  void add(std::shared_ptr<OpenCall> call, bool sends) { open_.push_back({std::move(call), sends}); }
  // f(reason) issues one command by the verbs, and gives what they give. What failed is not carried on with.
  template <class F> void issue(std::string_view doing, const F& f) {
    settle();
    issue_now(doing, f);
  }
  // The same, and as `record` and `wait`, of a call that does not wait for those that are open.
  template <class F> void issue_now(std::string_view doing, const F& f) {
    if (!failure_.ok()) return;
    const PackReason reason;
    if (const int32_t result = f(&reason.to); result != 0) fail(pack_status(*opened_, result, reason, doing));
  }
  void record_now(PackEvent& event, const OpenCalls& open = {});
  bool failed() const { return !failure_.ok(); }
  Status take_failure() { return std::exchange(failure_, {}); }
  void fail(const Status& status) {
    if (failure_.ok()) failure_ = status;
  }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const handle_;
  OpenCalls open_;
  Status failure_;  // the first, until somebody takes it
  PackRecorder recorder_{*this};
  PackCopies copies_{*this};
};

}  // namespace epl
