#include "core/backend/pack_foreign.h"

#include <utility>

namespace epl {
namespace {

const std::shared_ptr<OpenedPack>& opened_of(const ForeignDevice& theirs) {
  return static_cast<const PackForeign&>(theirs).opened();
}

}  // namespace

std::shared_ptr<ForeignDevice> pack_foreign(const std::shared_ptr<OpenedPack>& opened, std::string_view name) {
  if (opened->device != name || !opened->shares()) return nullptr;
  return std::make_shared<PackForeign>(opened);
}

std::unique_ptr<Event> PackForeign::create_event() {
  auto made = PackEvent::make(opened_);
  if (made.ok()) return std::move(*made);
  return std::make_unique<PackEvent>(opened_, nullptr, made.status());
}

Status PackForeign::record(int64_t stream, Event& event) {
  auto& point = static_cast<PackEvent&>(event);
  if (point.handle() == nullptr) return point.failure();
  const PackReason reason;
  const int32_t result = opened_->verbs->record_foreign(opened_->handle, stream, point.handle(), &reason.to);
  const Status status = result == 0 ? Status() : pack_status(*opened_, result, reason, "a stream of the host program");
  point.set(status, {});
  return status;
}

Result<PackStream*> PackForeign::own_stream() {
  if (stream_ == nullptr) {
    const PackReason reason;
    void* handle = nullptr;
    const int32_t result = opened_->verbs->create_stream(opened_->handle, &handle, &reason.to);
    if (result != 0) return pack_status(*opened_, result, reason, "a stream");
    stream_ = std::make_unique<PackStream>(opened_, handle);
  }
  return stream_.get();
}

Status PackForeign::read(void* host_target, const void* source, int64_t bytes, Event* behind) {
  EPL_ASSIGN(PackStream* const stream, own_stream());
  if (behind != nullptr) stream->wait(*behind);
  stream->download(host_target, source, bytes);
  return stream->synchronize();
}

Status PackForeign::write(void* target, const void* host_source, int64_t bytes, Event* behind) {
  EPL_ASSIGN(PackStream* const stream, own_stream());
  if (behind != nullptr) stream->wait(*behind);
  stream->upload(target, host_source, bytes);
  return stream->synchronize();
}

void PackCopies::take(void* target, ForeignDevice& theirs, const void* source, int64_t bytes) {
  const OpenedPack &to = *stream_.opened(), &from = *opened_of(theirs);
  if (&from == &to) return stream_.copy(target, source, bytes);
  if (bytes <= 0) return;
  stream_.issue("a copy from a tensor of the host program", [&](const epl_pack_reason* reason) {
    return to.verbs->copy_between(stream_.handle(), to.handle, target, from.handle, source,
                                  static_cast<uint64_t>(bytes), reason);
  });
}

void PackCopies::give(ForeignDevice& theirs, void* target, const void* source, int64_t bytes) {
  const OpenedPack &from = *stream_.opened(), &to = *opened_of(theirs);
  if (&from == &to) return stream_.copy(target, source, bytes);
  if (bytes <= 0) return;
  stream_.issue("a copy to a tensor of the host program", [&](const epl_pack_reason* reason) {
    return from.verbs->copy_between(stream_.handle(), to.handle, target, from.handle, source,
                                    static_cast<uint64_t>(bytes), reason);
  });
}

bool PackCopies::finds(const ForeignDevice& theirs) const { return opened_of(theirs) == stream_.opened(); }

Status PackCopies::make_ready() {
  stream_.issue("a recorded copy", [&](const epl_pack_reason* reason) {
    return stream_.opened()->verbs->copy_placed(stream_.handle(), nullptr, nullptr, 0, 0, 0, reason);
  });
  return stream_.take_failure();
}

void PackCopies::take_at(void* target, const void* place, int64_t offset, int64_t bytes) {
  if (bytes <= 0) return;
  stream_.issue("a recorded copy from a tensor of the host program", [&](const epl_pack_reason* reason) {
    return stream_.opened()->verbs->copy_placed(stream_.handle(), target, place, offset, static_cast<uint64_t>(bytes),
                                                0, reason);
  });
}

void PackCopies::give_at(const void* place, int64_t offset, const void* source, int64_t bytes) {
  if (bytes <= 0) return;
  stream_.issue("a recorded copy to a tensor of the host program", [&](const epl_pack_reason* reason) {
    return stream_.opened()->verbs->copy_placed(stream_.handle(), const_cast<void*>(source), place, offset,
                                                static_cast<uint64_t>(bytes), 1, reason);
  });
}

}  // namespace epl
