// The inside of the far device: its memory, its streams' queues and who carries them out, its groups.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "core/backend/device.h"
#include "tests/backend/far_device.h"

namespace epl::far {

// What the host calls an address of the device is one that nobody may touch; what lies there is elsewhere.
class Memory {
 public:
  void* add(std::byte* real, int64_t bytes);
  void remove(void* address);
  std::byte* real(const void* address);
  bool has(const void* address);
  int64_t bytes();  // of all buffers

 private:
  struct Region {
    std::byte* real;
    int64_t reserved, bytes;
  };
  std::mutex mutex_;
  std::map<uintptr_t, Region> regions_;  // by the address they begin at
};

struct Command {
  std::function<bool()> ready;  // absent: it is
  std::function<Status()> run;
  bool always = false;               // also where the stream has failed
  const void* collective = nullptr;  // that it is a part of
};

struct Queue {
  std::deque<Command> commands;
  Status failure;
  uint64_t haste = 0;  // of those that can go on, the one with the most mostly does
};
class QueueOwner {
 public:
  virtual ~QueueOwner() = default;
  virtual std::shared_ptr<Queue> queue() = 0;
};

// What streams were given, one verb after the other.
struct Recorded {
  struct Verb {
    std::function<Status()> give;
    bool waits = false;  // the host does, until the stream has come here
  };
  std::vector<Verb> verbs;
  std::vector<FarUpload> uploads;
};

// Carries out commands of all streams, one at a time, on the threads of those who wait.
class Engine {
 public:
  explicit Engine(uint64_t seed) : random_(static_cast<unsigned>(seed)) {}
  void add(Queue& queue);
  void remove(Queue& queue);
  void issue(Queue& queue, Command command);
  void issue_locked(Queue& queue, Command command);
  Status wait_for(Queue& queue);
  void reseed(uint64_t seed);
  // Of the commands that are carried out from now on, the one of this number fails; -1: none.
  void fail_at(int64_t number);
  // From now on all that streams are given is written down as well; null: no longer.
  void record_into(Recorded* recorded);
  template <class F> void note(const F& f) {
    std::lock_guard lock(mutex);
    if (recorded_) f(*recorded_);
  }

  std::mutex mutex;
  std::condition_variable changed;

 private:
  bool go_on();
  Queue& choose(const std::vector<Queue*>& able);
  std::vector<Queue*> queues_;
  int64_t fails_in_ = -1;  // commands
  std::mt19937 random_;
  Recorded* recorded_ = nullptr;
};

Result<std::vector<std::unique_ptr<Communicator>>> create_group(std::shared_ptr<Engine> engine,
                                                                std::shared_ptr<Memory> memory, const std::string& name,
                                                                int ranks);

}  // namespace epl::far
