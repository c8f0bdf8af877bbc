// A device that carries out what another one does, and fails at the command that a test names: the seam through which
// each command of a call, on each stream of each rank, ends that call once. Production code knows nothing of it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/backend/device.h"

namespace epl {

// How a command fails.
enum class Fails : uint8_t {
  never,
  refuses,     // it is not carried out: an error of the call, as of a host's own op, where the command can give one
  afterwards,  // it is carried out, and says then that it was not
  later,       // it is not carried out, which the stream's next `synchronize` says
  no_memory,   // std::bad_alloc
  calls        // it is carried out behind FailingDevice::call, which may cancel the call
};
inline constexpr Fails ways_to_fail[] = {Fails::refuses, Fails::afterwards, Fails::later, Fails::no_memory,
                                         Fails::calls};
std::string_view fails_name(Fails how);

// Thread safety: armed and asked between calls, by one thread.
class FailingDevice final : public Device {
 public:
  explicit FailingDevice(std::shared_ptr<Device> inside);
  ~FailingDevice() override;

  // From now on streams count their commands, each by itself from 0 on, and this one fails, once. Streams have numbers
  // in the order in which they were made; -1: nothing fails.
  void arm(int stream = -1, int64_t command = -1, Fails how = Fails::never);
  // What `Fails::calls` calls.
  std::function<void()> call;
  // Of each stream, since it was armed: its commands, and which of them was the first all_reduce of the world (-1:
  // none), by which the ranks of a step agree.
  struct Counted {
    int64_t commands = 0, agreement = -1;
  };
  std::vector<Counted> counted() const;
  bool has_failed() const;
  // What it was: "launch", "all_reduce of world".
  std::string failed_command() const;

  std::string description() const override { return inside_->description(); }
  const KernelTable& kernels() const override { return inside_->kernels(); }
  Device& stands_for() override { return inside_->stands_for(); }
  bool shares_host_memory() const override { return inside_->shares_host_memory(); }
  int stream_kinds() const override { return inside_->stream_kinds(); }
  bool guards() const override { return inside_->guards(); }
  const Machine& machine() const override { return inside_->machine(); }
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override { return inside_->allocate(bytes); }
  bool has_memory(MemoryKind kind) const override { return inside_->has_memory(kind); }
  bool moves_beside() const override { return inside_->moves_beside(); }
  Result<std::unique_ptr<Buffer>> allocate_in(MemoryKind kind, int64_t bytes) override {
    return inside_->allocate_in(kind, bytes);
  }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override;
  std::unique_ptr<Event> create_event() override { return inside_->create_event(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override;
  Result<std::unique_ptr<Communicator>> join(const Joining& joining, Rendezvous& rendezvous) override;

  struct State;

 private:
  std::shared_ptr<Device> inside_;
  std::shared_ptr<State> state_;
};

}  // namespace epl
