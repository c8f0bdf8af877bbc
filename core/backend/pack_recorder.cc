#include "core/backend/pack_recorder.h"

#include <algorithm>
#include <utility>

#include "core/backend/pack_stream.h"

namespace epl {
namespace {

class StagingBuffer final : public Buffer {
 public:
  StagingBuffer(std::shared_ptr<OpenedPack> opened, void* data, int64_t bytes)
      : opened_(std::move(opened)), data_(data), bytes_(bytes) {}
  ~StagingBuffer() override { opened_->verbs->release_host(opened_->handle, data_); }
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const data_;
  const int64_t bytes_;
};

class PackRecording final : public StreamRecorder::Recording {
 public:
  PackRecording(std::shared_ptr<OpenedPack> opened, void* handle) : opened_(std::move(opened)), handle_(handle) {}
  ~PackRecording() override { opened_->verbs->destroy_recording(handle_); }
  PackRecording(const PackRecording&) = delete;
  PackRecording& operator=(const PackRecording&) = delete;
  void* handle() const { return handle_; }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const handle_;
};

}  // namespace

Result<std::unique_ptr<Buffer>> PackRecorder::allocate_staging(int64_t bytes) {
  const std::shared_ptr<OpenedPack>& opened = stream_.opened();
  const PackReason reason;
  void* data = nullptr;
  const auto held = static_cast<uint64_t>(std::max<int64_t>(bytes, 1));
  const int32_t result = opened->verbs->allocate_host(opened->handle, held, &data, &reason.to);
  if (result != 0) return pack_status(*opened, result, reason, "memory of the host");
  return std::unique_ptr<Buffer>(new StagingBuffer(opened, data, bytes));
}

Status PackRecorder::begin() {
  stream_.about({});
  stream_.issue("a recording", [&](const epl_pack_reason* reason) {
    return stream_.opened()->verbs->begin_recording(stream_.handle(), reason);
  });
  return stream_.take_failure();
}

// What has failed on the way is the reason, and what the device then says of the end is not.
Result<std::unique_ptr<StreamRecorder::Recording>> PackRecorder::end() {
  const std::shared_ptr<OpenedPack>& opened = stream_.opened();
  const PackReason reason;
  void* made = nullptr;
  const int32_t result = opened->verbs->end_recording(stream_.handle(), &made, &reason.to);
  stream_.about({});
  std::unique_ptr<Recording> recording;
  if (result == 0) recording = std::make_unique<PackRecording>(opened, made);
  EPL_TRY(stream_.take_failure());
  if (result != 0) return pack_status(*opened, result, reason, "the end of a recording");
  return recording;
}

void PackRecorder::replay(const Recording& recording) {
  stream_.about({});  // it is of all nodes
  stream_.issue("a recorded step", [&](const epl_pack_reason* reason) {
    return stream_.opened()->verbs->replay(stream_.handle(), static_cast<const PackRecording&>(recording).handle(),
                                           reason);
  });
}

}  // namespace epl
