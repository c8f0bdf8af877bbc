#include "core/backend/pack_device.h"

#include <utility>
#include <vector>

#include "core/backend/pack_group.h"
#include "core/backend/pack_stream.h"
#include "core/base/pack.h"

namespace epl {
namespace {

constexpr int64_t alignment = 256;  // as devices allocate

class PackBuffer final : public Buffer {
 public:
  PackBuffer(std::shared_ptr<OpenedPack> opened, void* data, int64_t bytes, int64_t held)
      : opened_(std::move(opened)), data_(data), bytes_(bytes), held_(held) {}
  ~PackBuffer() override {
    opened_->verbs->release(opened_->handle, data_);
    opened_->in_use.fetch_sub(held_, std::memory_order_relaxed);
  }
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  void* const data_;
  const int64_t bytes_, held_;
};

KernelRow row_of(const epl_pack_kernel& kernel, const std::shared_ptr<OpenedPack>& opened) {
  KernelRow row = named_row(kernel);
  row.prepare = [&kernel, opened](const KernelQuery& q) { return prepare_in_pack(kernel, q, opened->handle, opened); };
  row.launch = [&kernel](const KernelCall& call) {
    auto& stream = static_cast<PackStream&>(call.stream);
    const PackReason reason;
    epl_pack_call pack_call = pack_call_of(call, reason);
    pack_call.stream = stream.handle();
    const int32_t result = kernel.launch(call.state, &pack_call);
    if (result == 0) return;
    stream.fail(pack_status(stream.opened(), result, reason, cat("kernel ", kernel.name)).at(call.query.node));
  };
  return row;
}

class PackDevice final : public Device {
 public:
  PackDevice(std::shared_ptr<OpenedPack> opened, const epl_pack& pack, std::string description, std::string note)
      : opened_(std::move(opened)), description_(std::move(description)), notes_{std::move(note)} {
    for (uint64_t i = 0; i < pack.kernel_count; ++i) kernels_.add(row_of(*pack.kernels[i], opened_));
  }
  std::string description() const override { return description_; }
  const KernelTable& kernels() const override { return kernels_; }
  bool shares_host_memory() const override { return false; }
  const std::vector<std::string>& notes() const override { return notes_; }

  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
    const int64_t held = bytes == 0                      ? alignment
                         : bytes > INT64_MAX - alignment ? bytes
                                                         : (bytes + alignment - 1) / alignment * alignment;
    const PackReason reason;
    void* data = nullptr;
    const int32_t result = opened_->verbs->allocate(opened_->handle, static_cast<uint64_t>(held), &data, &reason.to);
    if (result == EPL_PACK_NO_MEMORY) {
      return error(Code::out_of_memory, "device ", opened_->device, " gave no ", grouped(bytes),
                   " bytes; this process holds ", grouped(opened_->in_use.load(std::memory_order_relaxed)),
                   " bytes of it; ", reason.text);
    }
    if (result != 0) return pack_status(*opened_, result, reason, "memory");
    opened_->in_use.fetch_add(held, std::memory_order_relaxed);
    return std::unique_ptr<Buffer>(new PackBuffer(opened_, data, bytes, held));
  }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    if (threads < 1) return invalid("a stream on ", threads, " threads; it needs at least one");
    const PackReason reason;
    void* handle = nullptr;
    const int32_t result = opened_->verbs->create_stream(opened_->handle, &handle, &reason.to);
    if (result != 0) return pack_status(*opened_, result, reason, "a stream");
    return std::unique_ptr<Stream>(new PackStream(opened_, handle));
  }
  std::unique_ptr<Event> create_event() override {
    auto made = PackEvent::make(opened_);
    if (made.ok()) return std::move(*made);
    return std::make_unique<PackEvent>(opened_, nullptr, made.status());
  }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return create_pack_group(opened_, name, ranks);
  }

 private:
  const std::shared_ptr<OpenedPack> opened_;
  KernelTable kernels_;
  const std::string description_;
  const std::vector<std::string> notes_;
};

std::string described(const epl_pack_device_facts& facts) {
  return cat(facts.name, ", ", grouped(static_cast<int64_t>(facts.memory_bytes)), " bytes, capability ",
             facts.capability / 10, ".", facts.capability % 10);
}

}  // namespace

Result<std::shared_ptr<Device>> open_pack_device(const std::string& name, const Host& host, int ordinal) {
  auto pack = open_pack(host.packs, name);
  if (!pack.ok()) {
    return Status(pack.status().code(), cat("device ", name, " needs the pack ", name, ": ", pack.status().message()));
  }
  const epl_pack_device* verbs = (*pack)->verbs;
  if (verbs == nullptr) return invalid(shown_path(pack_path(host.packs, name)), " gives no device");
  const epl_pack_home home = {.struct_size = sizeof home, .libraries = host.packs.c_str()};
  const PackReason reason;
  epl_pack_device_facts facts = {};
  facts.struct_size = sizeof facts;
  void* handle = nullptr;
  int32_t result = verbs->describe(&home, ordinal, &facts, &reason.to);
  if (result == 0) result = verbs->open(&home, ordinal, &handle, &reason.to);
  if (result != 0) {
    return error(result == EPL_PACK_NO_MEMORY ? Code::out_of_memory : Code::unsupported, "device ", name,
                 " cannot be opened: ", reason.text);
  }
  return std::shared_ptr<Device>(std::make_shared<PackDevice>(
      std::make_shared<OpenedPack>(name, verbs, handle), **pack, described(facts),
      cat("pack ", name, ": ", pack_version(**pack), ", from ", pack_path(host.packs, name))));
}

}  // namespace epl
