// The CPU as a device: memory of the host, streams that run at once, ranks that are threads of this process.
#include "core/backend/device.h"

#include <atomic>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "backends/cpu/communicator.h"
#include "backends/cpu/cpu.h"
#include "backends/cpu/files.h"
#include "backends/cpu/kernels/rows.h"
#include "backends/cpu/shared_communicator.h"
#include "backends/cpu/socket_communicator.h"
#include "backends/cpu/stream.h"
#include "core/backend/pack.h"
#include "core/net/process_communicator.h"

namespace epl::cpu {

namespace {

constexpr int64_t alignment = 64;  // a cache line, and the widest vector

// The processor's own name for itself.
std::string cpu_model() {
#if defined(__x86_64__)
  unsigned words[12] = {};
  unsigned most = __get_cpuid_max(0x80000000, nullptr);
  if (most >= 0x80000004) {
    for (unsigned i = 0; i < 3; ++i)
      __cpuid(0x80000002 + i, words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
    char text[sizeof words + 1] = {};
    std::memcpy(text, words, sizeof words);
    std::string_view name = text;
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (!name.empty()) return std::string(name);
  }
#endif
  return "unnamed processor";
}

// What buffers need of their device; it outlives the device where a buffer does.
struct Memory {
  Host host;
  std::atomic<int64_t> in_use{0};
};

class CpuBuffer final : public Buffer {
 public:
  CpuBuffer(std::shared_ptr<Memory> memory, void* data, int64_t bytes, int64_t held)
      : memory_(std::move(memory)), data_(data), bytes_(bytes), held_(held) {}
  ~CpuBuffer() override {
    memory_->host.release(data_, static_cast<size_t>(held_), alignment);
    if (memory_->host.budget) memory_->host.budget->give_back(static_cast<uint64_t>(bytes_));
    memory_->in_use.fetch_sub(held_, std::memory_order_relaxed);
  }
  void* data() override { return data_; }
  int64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<Memory> memory_;
  void* data_;
  int64_t bytes_, held_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(const Host& host, const DeviceOptions& options)
      : memory_(std::make_shared<Memory>()), machine_(options.machine) {
    memory_->host = host;
    if (!options.folder.empty()) files_ = std::make_shared<Files>(options.folder);
    add_packs("cpu", options.any_order, host, kernels_, notes_);  // first: their rows are preferred
    kernels_.add(kernel_table());
  }

  std::string description() const override { return cat(cpu_model(), ", ", cpu_level_name(cpu_level())); }
  const KernelTable& kernels() const override { return kernels_; }
  bool shares_host_memory() const override { return true; }
  const std::vector<std::string>& notes() const override { return notes_; }
  const Machine& machine() const override { return machine_ ? *machine_ : processor_core(); }

  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
    // Whole lines, at least one: vectors may read to the end of a line, and an address is never null.
    const int64_t limit = INT64_MAX - alignment;
    const int64_t held = bytes == 0      ? alignment
                         : bytes > limit ? bytes
                                         : (bytes + alignment - 1) / alignment * alignment;
    const Host& host = memory_->host;
    const bool counted = bytes <= limit && (!host.budget || host.budget->take(static_cast<uint64_t>(bytes)));
    void* data = counted ? host.allocate(static_cast<size_t>(held), alignment) : nullptr;
    if (data == nullptr) {
      if (counted && host.budget) host.budget->give_back(static_cast<uint64_t>(bytes));
      return error(Code::out_of_memory, "the host gave no ", grouped(bytes), " bytes; this device holds ",
                   grouped(memory_->in_use.load(std::memory_order_relaxed)), " bytes");
    }
    memory_->in_use.fetch_add(held, std::memory_order_relaxed);
    return std::unique_ptr<Buffer>(new CpuBuffer(memory_, data, bytes, held));
  }
  bool has_memory(MemoryKind kind) const override {
    return kind == MemoryKind::device || (kind == MemoryKind::file && files_);
  }
  bool moves_beside() const override { return files_ != nullptr; }
  Result<std::unique_ptr<Buffer>> allocate_in(MemoryKind kind, int64_t bytes) override {
    return kind == MemoryKind::file && files_ ? files_->allocate(bytes) : Device::allocate_in(kind, bytes);
  }

  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    if (threads < 1) return invalid("a stream on ", threads, " threads; it needs at least one");
    const Host& host = memory_->host;
    try {
      return std::unique_ptr<Stream>(new CpuStream(
          host.workers ? host.workers : std::make_shared<Workers>(threads, wait_of(host)), threads, files_));
    } catch (const std::system_error& e) {
      return error(Code::exhausted, "the operating system gave no ", threads - 1, " worker threads: ", e.what());
    }
  }

  std::unique_ptr<Event> create_event() override { return std::make_unique<CpuEvent>(); }

  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    // Spinning helps only ranks that have a processor each.
    const Host& host = memory_->host;
    return create_thread_group(name, ranks,
                               ranks > host.threads    ? ThreadWait::sleeps
                               : host.spare_processors ? ThreadWait::patient
                                                       : ThreadWait::brief);
  }

  Result<std::unique_ptr<Communicator>> join(const Joining& joining, Rendezvous& rendezvous) override {
    return net::join_processes({.shared = create_shared_communicator, .sockets = create_socket_communicator}, joining,
                               rendezvous, memory_->host.seconds, memory_->host.packs);
  }

 private:
  std::shared_ptr<Memory> memory_;
  std::shared_ptr<Files> files_;            // null: no folder was named
  std::shared_ptr<const Machine> machine_;  // null: no table was named
  KernelTable kernels_;
  std::vector<std::string> notes_;
};

}  // namespace
}  // namespace epl::cpu

namespace epl {

EPL_BACKEND(cpu) {
  return {.name = "cpu",
          .doc = "x86-64 with AVX2 and FMA, or AVX-512; ranks are threads of the process",
          .open = [](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            EPL_TRY(cpu::require_cpu());
            if (!host.allocate || !host.release)
              return invalid("the host offers no memory: allocate and release must be set");
            return std::shared_ptr<Device>(std::make_shared<cpu::CpuDevice>(host, options));
          }};
}

}  // namespace epl
