// What the program of the host has on a device itself, beside what is ours there: memory in which its tensors lie, and
// streams that write and read them. All comes from outside: the memory may be of any size and alignment, and nobody
// says when it is written but an event behind what a stream of the program was given.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/status.h"

namespace epl {

class Event;  // core/backend/device.h

// Thread safety: one caller at a time.
class ForeignDevice {
 public:
  virtual ~ForeignDevice() = default;
  // For `record` and whoever waits for it.
  virtual std::unique_ptr<Event> create_event() = 0;
  // Behind what the program has given to its stream of this number, as DLPack numbers them: 1: the legacy default
  // stream; 2: the default stream of the thread that calls; else the stream's handle.
  virtual Status record(int64_t stream, Event& event) = 0;
  // Between memory that the program has there and that of the host, behind the event. It is done when they return.
  virtual Status read(void* host_target, const void* source, int64_t bytes, Event* behind) = 0;
  virtual Status write(void* target, const void* host_source, int64_t bytes, Event* behind) = 0;
};

// What only a stream has whose device the program may use as well.
class ForeignCopies {
 public:
  // From memory that the program has on this device, or on another one of the backend, and to it.
  virtual void take(void* target, ForeignDevice& theirs, const void* source, int64_t bytes) = 0;
  virtual void give(ForeignDevice& theirs, void* target, const void* source, int64_t bytes) = 0;
  // Whether the two last verbs reach memory there.
  virtual bool finds(const ForeignDevice& theirs) const = 0;
  // Before they are recorded.
  virtual Status make_ready() = 0;
  // The same for commands that are recorded: the address is known when they are carried out. It lies at `place`, in
  // memory of the device, and the bytes begin `offset` behind it. Where it is null nothing is copied.
  virtual void take_at(void* target, const void* place, int64_t offset, int64_t bytes) = 0;
  virtual void give_at(const void* place, int64_t offset, const void* source, int64_t bytes) = 0;

 protected:
  ~ForeignCopies() = default;
};

}  // namespace epl
