// The device interface: what a backend must be. A backend is a folder under backends/, about a dozen verbs, and a table
// of kernels; tests/backend is the conformance suite that says what the verbs mean.
//
// Work is issued to a Stream in order. On the CPU a stream runs each command before the call returns, but for what it
// leaves to a peer; on others it may run later, and `synchronize` waits and reports. What a command names stays as it
// is until then: memory of the host too. Nothing here allocates between the first and last command of a step.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/communicator.h"
#include "core/backend/foreign.h"
#include "core/backend/kernel.h"
#include "core/backend/machine.h"
#include "core/backend/posts.h"
#include "core/backend/sheet.h"
#include "core/base/host.h"
#include "core/base/secret.h"
#include "core/base/stop.h"
#include "core/base/thread_pool.h"

namespace epl {

class Rendezvous;  // core/net/rendezvous.h

// Memory of a device, freed with the object.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual void* data() = 0;  // an address kernels of the device understand
  virtual int64_t bytes() const = 0;
};

using Buffers = ByMemory<std::unique_ptr<Buffer>>;

// A point in a stream's order. Thread safety: one stream records, any stream waits.
class Event {
 public:
  virtual ~Event() = default;
};

// Rows of `bytes` bytes, whose beginnings are a step apart: the same dimension of two arrays, of which each may be
// larger. No row of the target is one of the source.
struct RowCopy {
  void* target = nullptr;
  int64_t target_step = 0;
  const void* source = nullptr;
  int64_t source_step = 0;
  int64_t bytes = 0, rows = 0;
};

// What only a stream has that runs on the host's own processor.
class HostStream {
 public:
  virtual ThreadPool& threads() = 0;
  // What it has left to others. Null: whoever needs another stream waits for it within the call.
  virtual std::shared_ptr<Posts> posts() = 0;

 protected:
  ~HostStream() = default;
};

// What only a stream has that tells the time itself: in its order, not when the host comes to its commands.
class StreamClock {
 public:
  // Writes into `seconds` when the stream comes here; it is there when the stream is settled and synchronized.
  virtual void stamp(double* seconds) = 0;

 protected:
  ~StreamClock() = default;
};

// What only a simulated stream has: a time of its own. A collective of simulated ranks does not block its caller, so
// that one thread may drive all ranks, one after another.
class VirtualClock : public StreamClock {
 public:
  virtual double seconds() const = 0;  // at which what the stream has been given is done
  // Not while the stream stands before a call that some peer has not made: its time is then that at which it began to
  // wait.
  virtual bool settled() const = 0;

 protected:
  ~VirtualClock() = default;
};

// What only a stream has whose device can keep commands and carry them out again.
class StreamRecorder {
 public:
  // What streams were given. It goes before the stream that it was recorded on.
  class Recording {
   public:
    virtual ~Recording() = default;
  };

  // Memory of the host that recorded commands may name: they read and write it each time they are carried out.
  virtual Result<std::unique_ptr<Buffer>> allocate_staging(int64_t bytes) = 0;
  // What the stream is given from now on is kept and not carried out, and so is what other streams are given behind an
  // event that it has recorded since. Nobody waits for the streams until `end`.
  virtual Status begin() = 0;
  // By then the stream waits for all others that took part. Afterwards commands are carried out again, also where it
  // fails.
  virtual Result<std::unique_ptr<Recording>> end() = 0;
  // Carries out what was kept, as one command of the stream.
  virtual void replay(const Recording& recording) = 0;

 protected:
  ~StreamRecorder() = default;
};

// What every device can do. What only some can is behind `host`, `clock`, `stamps`, `recorder` and `foreign`. A fill,
// an upload and a download reach every memory that the device has.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
                      void* const* outputs, void* workspace, const StepContext& context) = 0;
  virtual void copy(void* target, const void* source, int64_t bytes) = 0;  // within a memory of the device
  virtual void copy_rows(const RowCopy& rows) = 0;                         // as one command
  // From another memory of the device to its own, and the other way.
  virtual void fetch(void* target, const void* source, int64_t bytes);
  virtual void evict(void* target, const void* source, int64_t bytes);
  virtual void fill(void* target, int64_t bytes, uint8_t value) = 0;
  virtual void upload(void* target, const void* host_source, int64_t bytes) = 0;
  virtual void download(void* host_target, const void* source, int64_t bytes) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  // What the stream is given from now on changes no memory, of the device or of the host, if the number at `verdict`,
  // in memory of the device, is not negative when the stream comes there. Collectives take place all the same: other
  // ranks wait in them. Null: everything is carried out again. Of a device that guards.
  virtual void guard(const int64_t* verdict);
  virtual Status synchronize() = 0;
  virtual HostStream* host() { return nullptr; }          // null: it runs elsewhere
  virtual VirtualClock* clock() { return nullptr; }       // null: its time is the host's
  virtual StreamClock* stamps() { return clock(); }       // null: the host says when it has issued a command
  virtual StreamRecorder* recorder() { return nullptr; }  // null: every command is given anew
  virtual ForeignCopies* foreign() { return nullptr; }    // null: no program of the host has memory there
};

// What a rank says when it joins a group whose ranks may be of several processes.
struct Joining {
  std::string group;
  int rank = 0, size = 1;
  std::string job;  // what must be the same on all ranks: whoever says something else is refused
  // What all ranks know and nobody else: whoever does not is refused. It is never sent. Empty: whoever reads the
  // rendezvous may join.
  Secret secret{};
  std::string address = "127.0.0.1";  // of this host, under which the others reach it
  // What moves operands between processes: "sockets" or a pack that carries ("gloo", "mpi"); behind "shared," for
  // groups of several hosts alone, and ranks of one host share memory.
  std::string transport = "shared,sockets";
  double join_seconds = 60;      // to wait for the others to come
  double silence_seconds = 600;  // to wait, within a call, for a peer that says nothing
  // Frames between ranks are signed by a key that follows from the secret and is another one for each connection, so
  // that one that is changed, repeated, left out or out of order is an error that names the peer. It needs a secret.
  bool signs_frames = false;
  Stop stop{};  // while it joins
  // Where it is given: a rank that is waited for at the moment, -1 for none.
  std::atomic<int>* awaited = nullptr;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string description() const = 0;
  virtual const KernelTable& kernels() const = 0;
  // Whose programs it runs: another device's where it simulates that one.
  virtual Device& stands_for() { return *this; }
  // That of one rank of the job: a machine may have several, also of several kinds. Groups of ranks are made by this
  // one, which lives as long as they do.
  virtual Device& of_rank(int rank) { return static_cast<void>(rank), *this; }
  // Its kernels read a caller's memory where it lies, and the host reads what they wrote. Where this is false, nothing
  // but `upload` and `download` touches both.
  virtual bool shares_host_memory() const = 0;
  // How many kinds of stream a rank can use, in this order: one that computes, one for each group of ranks, one that
  // copies from the host, one that copies to it. What has none of its own goes to the first. Sends have streams of
  // their own everywhere.
  virtual int stream_kinds() const { return 1; }
  // A fetch or an evict goes on beside the stream that computes, so that it has a stream of its own also where there is
  // no kind of stream for copies.
  virtual bool moves_beside() const { return false; }
  // Its streams have `guard`, so that the device decides whether a step is applied. There a stream that has failed
  // carries out nothing more, and neither does one that waits for an event behind the failure. Where this is false, the
  // host waits and decides.
  virtual bool guards() const { return false; }
  // Its streams have a `recorder`.
  virtual bool records() const { return false; }
  virtual bool executes() const { return true; }  // false: commands cost time but compute nothing
  // What opening it has decided that a user may wonder about, a sentence each: which packs it has, and why not others.
  virtual const std::vector<std::string>& notes() const {
    static const std::vector<std::string> none;
    return none;
  }
  // What its commands are compiled from that are no kernels, of a device that need not be there.
  virtual std::vector<KernelText> texts() const { return {}; }
  virtual Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) = 0;
  // Whether it has a memory of this kind. In that of its own kernels compute.
  virtual bool has_memory(MemoryKind kind) const { return kind == MemoryKind::device; }
  // In any memory that it has.
  virtual Result<std::unique_ptr<Buffer>> allocate_in(MemoryKind kind, int64_t bytes);
  virtual Result<std::unique_ptr<Stream>> create_stream(int threads) = 0;
  virtual std::unique_ptr<Event> create_event() = 0;
  // What the program of the host has on the device of this name ("cuda:1"), which is this one or one of its own; null:
  // that is neither.
  virtual std::shared_ptr<ForeignDevice> foreign(std::string_view name) { return static_cast<void>(name), nullptr; }
  // A group of `ranks` ranks that live in this process: a communicator for each.
  virtual Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) = 0;
  // One rank's end of a group of the ranks that meet at the rendezvous, each of which calls this at the same time. A
  // rank that does not come, comes twice or is of another job is an error that names it.
  virtual Result<std::unique_ptr<Communicator>> join(const Joining& joining, Rendezvous& rendezvous);
  // By whose numbers plans for it are decided: those of one thread, so that ranks with other numbers of threads decide
  // alike.
  virtual const Machine& machine() const { return processor_core(); }
  // Of its own memory, that a rank has for itself alone. 0: not known, or ranks share it.
  virtual int64_t memory_bytes() const { return 0; }
};

// A buffer in the device's own memory, and in others where there are bytes.
Result<Buffers> allocate_each(Device& device, const MemoryBytes& bytes);

struct DeviceOptions {
  // Kernels may sum in whatever order is fastest, so that bits hold for one layout on one machine (`reproducible.level`
  // run): packs with such kernels are opened. Otherwise bits hold for every layout.
  bool any_order = false;
  // Where a device of the host puts memory of the kind file; empty: it has none.
  std::string folder = {};
  // Of the job. A backend with several devices opens no more of them.
  int ranks = 1;
  // Which of its devices are meant, by their numbers: rank r is on the one at place r of them, counted around. Empty:
  // all of them.
  std::vector<int> numbers = {};
  // Of several: what each keeps, besides what is planned, for operands of the others that it reduces piece by piece.
  int64_t room_bytes = int64_t{32} << 20;
  // Of a simulated device: the one that it goes through steps for, at that one's speed. Null: the processor.
  std::shared_ptr<Device> stands_for = nullptr;
  // Of a simulated device: those ranks of the job that steps are gone through for. Their groups wait for no others, and
  // take as long as with all. Empty: all.
  std::vector<int> represented = {};
  // By whose numbers plans are decided, instead of those that the backend knows.
  std::shared_ptr<const Machine> machine = nullptr;
};

struct BackendRow {
  std::string name;  // "cpu", "sim"
  std::string doc;
  std::function<Result<std::shared_ptr<Device>>(const Host& host, const DeviceOptions& options)> open;
  bool simulated = false;  // time is virtual, and there are no numbers
  bool numbered = false;   // it has several devices: "cuda:1" and "cuda:0,2" name some of them
  // Devices that it plans for without having them: "cuda:h100" is the backend cuda with the sheet h100.
  std::span<const DeviceSheet> sheets = {};
  std::function<Result<std::shared_ptr<Device>>(const Host& host, const DeviceSheet& sheet)> plan_for = nullptr;
};
using BackendTable = TableOf<BackendRow>;
const BackendTable& backend_table();  // generated: what is built in
// Adds a backend before those that are built in: one of the same name stands for it. Before devices are opened.
void add_backend(BackendRow row);
// "cpu"; of a backend whose devices have numbers also "cuda:1" and "cuda:0,2"; of one with sheets also "cuda:h100", or
// "cuda:FILE.json" for a sheet of one's own. Such a device has kernels and no memory, so that all that is made on it is
// an error. Behind any of these names "@FILE" names a table of what was measured (core/backend/sheet.h), by which plans
// are decided.
Result<std::shared_ptr<Device>> open_device(std::string_view name, const Host& host, const DeviceOptions& options = {});

#define EPL_BACKEND(row_name) EPL_ROW(EPL_BACKEND, row_name, ::epl::BackendTable, ::epl::BackendRow)

}  // namespace epl
