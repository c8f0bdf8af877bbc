#include "core/backend/pack_stream.h"

#include <algorithm>
#include <utility>

#include "core/base/text.h"

namespace epl {

int OpenedPack::stream_kinds() const {
  constexpr int most = 4;
  if (!has(offsetof(epl_pack_device, stream_kinds)) || verbs->stream_kinds == nullptr) return 1;
  return std::clamp(static_cast<int>(verbs->stream_kinds(handle)), 1, most);
}

Status pack_status(const OpenedPack& opened, int32_t result, const PackReason& reason, std::string_view doing) {
  const Code code = result == EPL_PACK_NO_MEMORY ? Code::out_of_memory
                    : result == EPL_PACK_MISSING ? Code::unsupported
                    : result == EPL_PACK_LOST    ? Code::state_lost
                                                 : Code::exhausted;
  return error(code, "device ", opened.device, ", ", doing, ": ", reason.text);
}

Result<std::unique_ptr<PackEvent>> PackEvent::make(std::shared_ptr<OpenedPack> opened) {
  const PackReason reason;
  void* handle = nullptr;
  const int32_t result = opened->verbs->create_event(opened->handle, &handle, &reason.to);
  if (result != 0) return pack_status(*opened, result, reason, "an event");
  return std::make_unique<PackEvent>(std::move(opened), handle, Status());
}

PackEvent::~PackEvent() {
  if (handle_ != nullptr) opened_->verbs->destroy_event(handle_);
}

Status PackEvent::failure() const {
  std::lock_guard lock(mutex_);
  return failure_;
}

void PackEvent::append_open(OpenCalls& to) const {
  std::lock_guard lock(mutex_);
  to.insert(to.end(), open_.begin(), open_.end());
}

void PackEvent::set(const Status& failure, const OpenCalls& open) {
  OpenCalls before = open;  // goes without the lock
  std::lock_guard lock(mutex_);
  if (handle_ != nullptr) failure_ = failure;
  open_.swap(before);
}

PackStream::~PackStream() {
  const PackReason reason;
  opened_->verbs->synchronize(handle_, &reason.to);  // what was issued may name memory that goes next
  opened_->verbs->destroy_stream(handle_);
}

void PackStream::settle() {
  if (open_.empty()) return;
  OpenCalls open;
  open.swap(open_);
  for (const OpenAt& one : open) {
    Result<std::shared_ptr<PackEvent>> event = one.call->wait();
    if (event.ok()) {
      wait(**event);
    } else {
      fail(event.status());
    }
  }
}

bool PackStream::only_sends_are_open() const {
  return std::ranges::all_of(open_, [](const OpenAt& one) { return one.sends; });
}

void PackStream::launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
                        void* const* outputs, void* workspace, const StepContext& context) {
  settle();
  if (!failure_.ok()) return;
  row.launch({.query = query,
              .state = state,
              .inputs = inputs,
              .outputs = outputs,
              .workspace = workspace,
              .stream = *this,
              .context = context});
}

void PackStream::copy(void* target, const void* source, int64_t bytes) {
  if (bytes <= 0) return;
  issue("a copy", [&](const epl_pack_reason* reason) {
    return opened_->verbs->copy(handle_, target, source, static_cast<uint64_t>(bytes), reason);
  });
}

void PackStream::copy_rows(const RowCopy& rows) {
  if (rows.bytes <= 0 || rows.rows <= 0) return;
  const epl_pack_rows given = {.target = rows.target,
                               .target_step = rows.target_step,
                               .source = rows.source,
                               .source_step = rows.source_step,
                               .bytes = rows.bytes,
                               .rows = rows.rows};
  issue("a copy of rows",
        [&](const epl_pack_reason* reason) { return opened_->verbs->copy_rows(handle_, &given, reason); });
}

void PackStream::fill(void* target, int64_t bytes, uint8_t value) {
  if (bytes <= 0) return;
  issue("a fill", [&](const epl_pack_reason* reason) {
    return opened_->verbs->fill(handle_, target, static_cast<uint64_t>(bytes), value, reason);
  });
}

void PackStream::upload(void* target, const void* host_source, int64_t bytes) {
  if (bytes <= 0) return;
  issue("an upload", [&](const epl_pack_reason* reason) {
    return opened_->verbs->upload(handle_, target, host_source, static_cast<uint64_t>(bytes), reason);
  });
}

void PackStream::download(void* host_target, const void* source, int64_t bytes) {
  if (bytes <= 0) return;
  issue("a download", [&](const epl_pack_reason* reason) {
    return opened_->verbs->download(handle_, host_target, source, static_cast<uint64_t>(bytes), reason);
  });
}

void PackStream::record_now(PackEvent& event, const OpenCalls& open) {
  if (event.handle() == nullptr) return fail(event.failure());
  issue_now("an event",
            [&](const epl_pack_reason* reason) { return opened_->verbs->record(handle_, event.handle(), reason); });
  event.set(failure_, open);
}

void PackStream::record(Event& event) { record_now(static_cast<PackEvent&>(event), open_); }

void PackStream::wait(Event& event) {
  auto& point = static_cast<PackEvent&>(event);
  if (const Status failed = point.failure(); !failed.ok()) return fail(failed);
  issue_now("waiting for an event",
            [&](const epl_pack_reason* reason) { return opened_->verbs->wait(handle_, point.handle(), reason); });
  point.append_open(open_);
}

void PackStream::stamp(double* seconds) {
  *seconds = 0;  // of a stream that has failed
  issue("a time", [&](const epl_pack_reason* reason) { return opened_->verbs->stamp(handle_, seconds, reason); });
}

StreamRecorder* PackStream::recorder() { return opened_->records() ? &recorder_ : nullptr; }

Status PackStream::synchronize() {
  settle();
  const PackReason reason;
  const int32_t result = opened_->verbs->synchronize(handle_, &reason.to);
  const std::string_view last = std::exchange(node_, {});
  if (result != 0) {  // something has failed that was given before; the device does not say what
    fail(pack_status(*opened_, result, reason,
                     cat("waiting for a stream", last.empty() ? "" : cat(", whose last command is of node ", last))));
  }
  return take_failure();
}

}  // namespace epl
