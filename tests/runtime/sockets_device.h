// The CPU whose ranks of other processes are reached by sockets, as between hosts.
#pragma once

#include <chrono>

#include "backends/cpu/process_communicator.h"
#include "core/backend/device.h"

namespace epl {

class SocketsDevice final : public Device {
 public:
  explicit SocketsDevice(std::shared_ptr<Device> cpu) : cpu_(std::move(cpu)) {}
  std::string description() const override { return cpu_->description(); }
  const KernelTable& kernels() const override { return cpu_->kernels(); }
  bool shares_host_memory() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override { return cpu_->create_stream(threads); }
  std::unique_ptr<Event> create_event() override { return cpu_->create_event(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return cpu_->create_group(name, ranks);
  }
  Result<std::unique_ptr<Communicator>> join(const Joining& joining, Rendezvous& rendezvous) override {
    const auto clock = [] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
    return cpu::join_processes(joining, rendezvous, clock, false);
  }

 private:
  std::shared_ptr<Device> cpu_;
};

inline constexpr std::string_view sockets_device = "cpu_over_sockets";

inline void add_sockets_device() {
  add_backend({.name = std::string(sockets_device),
               .doc = "the CPU whose processes share no memory",
               .open = [](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
                 EPL_ASSIGN(std::shared_ptr<Device> cpu, open_device("cpu", host, options));
                 return std::shared_ptr<Device>(std::make_shared<SocketsDevice>(std::move(cpu)));
               }});
}

}  // namespace epl
