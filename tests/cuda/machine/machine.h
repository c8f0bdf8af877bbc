// The state behind the driver's functions: devices, contexts, streams whose commands wait, and what was found wrong.
// A command is carried out when somebody waits for it, in any order that streams and events allow.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/machine/devices.h"
#include "tests/cuda/machine/warp.h"

namespace epl::cuda_machine {

// How many commands of each stream are certain to have come before.
using Clock = std::vector<uint32_t>;
void join(Clock& clock, const Clock& other);

struct Context;
struct Capture;
struct Graph;
struct Executable;

struct Command {
  uint32_t number = 0;
  std::vector<uint32_t> needs;  // commands of other streams
  Clock clock;
  std::function<void()> run;
  bool on_host = false;  // a function of the host: runs without the machine's lock
  bool begun = false;    // it waits for another process
};

struct Stream {
  Context* context = nullptr;
  bool blocking = true;  // waits for the context's own stream, and that for it
  int priority = 0;
  uint32_t index = 0;  // in clocks
  std::deque<Command> commands;
  uint32_t last = 0;                 // the command issued last
  Clock clock;                       // of it
  std::vector<uint32_t> needs;       // of the next command: events it was told to wait for
  bool busy = false;                 // a function of the host runs
  std::shared_ptr<Capture> capture;  // the recording that it takes part in
  std::vector<size_t> tails;         // the nodes that its next one follows
};

struct Event {
  Context* context = nullptr;
  bool timed = true;
  uint32_t command = 0;  // the record; 0: none
  Clock clock;
  uint64_t time = 0;
  std::shared_ptr<Capture> capture;  // in which it was recorded last
  std::vector<size_t> tails;         // the nodes it stands behind
};

struct Function {
  const Code* code = nullptr;
  Context* context = nullptr;
  int most_dynamic_shared = 49152;
};

struct Loaded {
  Context* context = nullptr;
  std::unique_ptr<Module> module;
  std::map<std::string, std::unique_ptr<Function>> functions;
};

struct HostRange {
  uint64_t bytes = 0;
  bool ours = false;  // allocated by the driver
};

struct Context {
  int device = 0;
  int retained = 0;
  Result sticky = kSuccess;
  std::set<int> reaches;        // devices that it has access to
  std::unique_ptr<Stream> own;  // stream 0
  std::set<Stream*> streams;
  std::set<Event*> events;
  std::set<Loaded*> modules;
};

struct Settings {
  uint64_t seed = 1;
  std::vector<std::string> devices = {"h100"};
  int64_t memory = 0;  // of each device; 0: as its row says
  int driver_version = 13000;
  bool races = true, uninitialised = true;
  uint64_t limit = uint64_t{1} << 32;  // of a launch's instructions
  bool eager = false;                  // carries out each command when it is issued
  int slow_stream = -1;                // its commands come last
  bool peers = true;                   // devices of one kind can have access to each other
  bool orders = false;                 // libraries add up in orders that follow from algorithm and shape
  // The n-th call from now on fails; 0: none.
  int64_t allocation_fails = 0, launch_fails = 0, copy_fails = 0, collective_fails = 0, device_lost = 0;
  int lost_device = -1;  // `device_lost` counts its commands alone; -1: those of all
  std::string findings_file;
};

struct Counts {
  uint64_t launches = 0, instructions = 0, steps = 0, commands = 0, allocations = 0, library_calls = 0;
  uint64_t peer_copies = 0;    // between two devices
  uint64_t staged_copies = 0;  // of them, those without access
  uint64_t carried_out = 0;    // commands
  uint64_t recorded = 0;       // nodes of graphs
  uint64_t graphs = 0;         // that were launched
};

class Machine {
 public:
  static Machine& get();

  void set(const std::string& words);  // "seed=3 devices=a100,h100 races=0"; "reset" begins anew
  const std::vector<std::string>& findings() const { return findings_; }
  void found(const std::string& what);

  // Contexts of the calling thread.
  Context& current();
  std::vector<Context*>& stack();
  bool alive(Context* context) const { return primary_.end() != find_context(context); }
  Context& primary(int device);
  bool has_primary(int device) const { return primary_.count(device) != 0; }
  void destroy(Context& context);
  const DeviceRow& row(int device) const;
  int devices() const { return static_cast<int>(settings.devices.size()); }
  int64_t memory_of(int device) const;

  // Streams.
  Stream& stream(void* handle);
  Stream& make_stream(Context& context);
  size_t streams() const { return places_.size(); }  // that were made so far
  // Issues a command; it sees the clocks of what it follows.
  Command& issue(Stream& stream, std::function<void(const Command&)> run);
  bool done(uint32_t command) const { return command == 0 || done_[command]; }
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& until);
  bool step(std::unique_lock<std::mutex>& lock);
  void wait_for(std::unique_lock<std::mutex>& lock, Stream& stream);
  void wait_for_all(std::unique_lock<std::mutex>& lock, Context& context);
  void know(const Clock& clock) { join(host_, clock); }  // the host has waited for these
  Before before(const Command& command) const;
  void drop(Stream& stream);

  // Memory of devices.
  Allocation& at(uint64_t address, int64_t bytes, int device, const char* what);
  bool pinned(const void* address, int64_t bytes) const;

  std::mutex mutex;
  Settings settings;
  Counts counts;
  DeviceMemory memory;
  Sites sites;
  std::mt19937_64 random{1};
  bool begun = false;
  std::string last_error;  // in words, of the last call that failed
  std::map<uint64_t, HostRange> host;
  std::set<Event*> all_events;
  std::set<Stream*> all_streams;
  std::set<Loaded*> all_modules;
  std::set<Function*> all_functions;
  std::set<int> lost;
  std::vector<std::shared_ptr<Capture>> captures;  // that go on
  std::map<void*, std::unique_ptr<Graph>> graphs;
  std::map<void*, std::unique_ptr<Executable>> executables;

 private:
  Machine();
  ~Machine();
  std::map<int, std::unique_ptr<Context>>::const_iterator find_context(Context* context) const;
  bool ready(const Stream& stream) const;
  // False: not yet.
  bool carry_out(std::unique_lock<std::mutex>& lock, Stream& stream);
  void reset();

  std::vector<std::string> findings_;
  std::map<int, std::unique_ptr<Context>> primary_;
  std::vector<Stream*> queues_;
  struct Issued {
    uint32_t stream = 0, place = 0;
  };
  std::vector<Issued> issued_{1};
  std::vector<bool> done_{true};
  std::vector<uint32_t> places_;  // commands issued, by a stream's index
  Clock host_;
  bool others_are_awaited_ = false;  // some command waits for another process
};

// One call of the driver: under the lock, with a fault turned into its number.
template <class F> int call(F&& f, bool needs_begin = true) {
  Machine& machine = Machine::get();
  std::unique_lock lock(machine.mutex);
  try {
    if (needs_begin && !machine.begun) throw Fault(kNotInitialized, "cuInit was not called");
    f(machine, lock);
    return kSuccess;
  } catch (const Fault& fault) {
    machine.last_error = fault.what();
    return fault.code;
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::exception& error) {
    machine.last_error = error.what();
    return kUnknown;
  }
}

inline void require(bool condition, Result code, const std::string& why) {
  if (!condition) throw Fault(code, why);
}

}  // namespace epl::cuda_machine
