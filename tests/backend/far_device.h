// A device as a GPU is one, on the processor: memory at addresses that the host cannot touch, commands that are carried
// out when somebody waits for them and not before, and streams that take turns in any order that their events allow.
// What runs on it with the right numbers passes no pointer of the host to a kernel, reads no result before it waits,
// keeps host memory alive until then, and orders its streams by events.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/backend/device.h"

namespace epl {

// Its kernels are those of the backend `cpu`. `seed` decides which stream goes on where several can; `stream_kinds`:
// Device::stream_kinds; `guards`: Device::guards.
BackendRow far_backend(std::string name, uint64_t seed, int stream_kinds = 4, bool guards = false);
// One that has a second memory, of the kind `host`, which its kernels cannot reach. `bandwidth`: of that memory as
// plans know it; 0: as fast as the first one.
BackendRow far_backend_of_two_memories(std::string name, uint64_t seed, int stream_kinds = 4, double bandwidth = 0);
// What all buffers in a memory of such a device hold.
int64_t far_bytes(Device& far, MemoryKind kind);
// One that has no kernel of a composite, so that the parts of composites stand in every plan.
BackendRow far_backend_of_parts(std::string name, uint64_t seed);
// A machine that has two of them. Ranks of an odd number run on the second one, which has a kernel `own` of its own for
// the op `op`, before those of the first one.
BackendRow far_backend_of_two(std::string name, uint64_t seed, std::string op);
// Of such a device, whose streams take other turns from now on.
void reseed(Device& far, uint64_t seed);
// Of the commands of such a device that are carried out from now on, the one of this number fails, once; -1: none.
void fail_at(Device& far, int64_t number);

struct FarUpload {
  void* target = nullptr;
  const void* source = nullptr;
  int64_t bytes = 0;
};
// What one rank without peers gives to the streams of a device. It can be given to them again.
class FarRecording {
 public:
  virtual ~FarRecording() = default;
  virtual std::vector<FarUpload> uploads() const = 0;
  // Commands that were given when the host had waited for one that came before them.
  virtual int64_t commands_behind_waits() const = 0;
  // The host waits where it has waited. What is uploaded is what lies at the same places of the host now.
  virtual Status replay() = 0;
};
// Until `stop`; then the recording is complete.
class FarRecorder {
 public:
  explicit FarRecorder(Device& far);
  std::unique_ptr<FarRecording> stop();

 private:
  Device& far_;
  std::unique_ptr<FarRecording> recording_;
};

}  // namespace epl
