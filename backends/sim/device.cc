#include <atomic>
#include <deque>
#include <utility>

#include "backends/sim/sim.h"
#include "backends/sim/timeline.h"

namespace epl::sim {
namespace {

constexpr int64_t alignment = 64;
constexpr int64_t first_address = int64_t{1} << 62;  // no processor has memory there: touching it faults

// What buffers, streams, events and communicators share; it outlives the device where they do.
struct World {
  Machine machine;
  Simulation simulation;
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> next_address{first_address};
};

class SimBuffer final : public Buffer {
 public:
  SimBuffer(std::shared_ptr<World> world, int64_t address, int64_t bytes, int64_t held)
      : world_(std::move(world)), address_(address), bytes_(bytes), held_(held) {}
  ~SimBuffer() override { world_->in_use.fetch_sub(held_, std::memory_order_relaxed); }
  void* data() override { return reinterpret_cast<void*>(address_); }  // NOLINT: an address on purpose
  int64_t bytes() const override { return bytes_; }

 private:
  std::shared_ptr<World> world_;
  int64_t address_, bytes_, held_;
};

// An event is its latest record; a stream that waits, waits for the one that was latest when it was told to.
class SimEvent final : public Event {
 public:
  std::shared_ptr<Point> latest;
};

class SimStream final : public Stream {
 public:
  explicit SimStream(std::shared_ptr<World> world) : world_(std::move(world)) {}

  void launch(const KernelRow&, const KernelQuery& query, const void*, const void* const*, void* const*, void*,
              const StepContext&) override {
    advance(kernel_seconds(world_->machine, query));
  }
  void copy(void*, const void*, int64_t bytes) override { move(2 * bytes, world_->machine.memory_bandwidth); }
  void fill(void*, int64_t bytes, uint8_t) override { move(bytes, world_->machine.memory_bandwidth); }
  void upload(void*, const void*, int64_t bytes) override { move(bytes, world_->machine.host_bandwidth); }
  void download(void*, const void*, int64_t bytes) override { move(bytes, world_->machine.host_bandwidth); }
  void record(Event& event) override {
    std::lock_guard lock(world_->simulation.mutex);
    auto point = std::make_shared<Point>();
    static_cast<SimEvent&>(event).latest = point;
    world_->simulation.record(timeline_, std::move(point));
  }
  void wait(Event& event) override {
    std::lock_guard lock(world_->simulation.mutex);
    if (auto& latest = static_cast<SimEvent&>(event).latest) world_->simulation.wait(timeline_, latest);
  }
  // Does not wait for peers: they may be driven by this same thread, later.
  Status synchronize() override {
    std::lock_guard lock(world_->simulation.mutex);
    return timeline_->status;
  }
  double virtual_seconds() const override {
    std::lock_guard lock(world_->simulation.mutex);
    return timeline_->seconds;
  }
  bool settled() const override {
    std::lock_guard lock(world_->simulation.mutex);
    return timeline_->queue.empty();
  }
  const TimelinePtr& timeline() const { return timeline_; }

 private:
  void move(int64_t bytes, double bandwidth) {
    if (bytes > 0) advance(world_->machine.launch_seconds + static_cast<double>(bytes) / bandwidth);
  }
  void advance(double seconds) {
    std::lock_guard lock(world_->simulation.mutex);
    world_->simulation.advance(timeline_, seconds);
  }

  std::shared_ptr<World> world_;
  TimelinePtr timeline_ = std::make_shared<Timeline>();
};

struct Group {
  std::shared_ptr<World> world;
  int ranks = 0;
  // Calls that not all ranks have made; the first has number `first`.
  struct Call {
    std::string text;
    std::shared_ptr<Meeting> meeting;
  };
  std::deque<Call> calls;
  int64_t first = 0;
  Status status;

  // Under the lock of the simulation. Calls that all ranks have made will take place all the same.
  void abort(const Status& why) {
    if (!status.ok()) return;
    status = why.ok() ? error(Code::cancelled, "the group was aborted") : why;
    for (Call& call : calls) world->simulation.fail(*call.meeting, status);
    calls.clear();
  }
};

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~SimCommunicator() override {
    std::lock_guard lock(group_->world->simulation.mutex);
    group_->abort(error(Code::peer_failed, "rank ", rank_, " of ", group_->ranks, " left the group"));
  }
  int rank() const override { return rank_; }
  int size() const override { return group_->ranks; }

  Status all_reduce(Stream& stream, const void*, void*, int64_t count, DType dtype, Reduction) override {
    const int64_t bytes = count * static_cast<int64_t>(dtype_bytes(dtype));
    return call(stream, cat("all_reduce(", count, " x ", dtype_name(dtype), ")"), all_reduce_seconds(machine(), size(), bytes));
  }
  Status all_gather(Stream& stream, const void*, void*, int64_t bytes_per_rank) override {
    return call(stream, cat("all_gather(", bytes_per_rank, ")"), all_gather_seconds(machine(), size(), bytes_per_rank));
  }
  Status broadcast(Stream& stream, void*, int64_t bytes, int root) override {
    if (root < 0 || root >= size()) return invalid("rank ", rank_, " of ", size(), " called broadcast from root ", root);
    return call(stream, cat("broadcast(", bytes, ", root ", root, ")"), broadcast_seconds(machine(), size(), bytes));
  }
  Status barrier(Stream& stream) override { return call(stream, "barrier()", barrier_seconds(machine(), size())); }
  void abort(const Status& status) override {
    std::lock_guard lock(group_->world->simulation.mutex);
    group_->abort(status);
  }

 private:
  const Machine& machine() const { return group_->world->machine; }

  Status call(Stream& stream, std::string text, double cost) {
    Simulation& simulation = group_->world->simulation;
    std::lock_guard lock(simulation.mutex);
    Group& group = *group_;
    if (!group.status.ok()) return group.status;
    const int64_t at = made_++ - group.first;
    if (at == static_cast<int64_t>(group.calls.size())) {
      auto meeting = std::make_shared<Meeting>();
      meeting->ranks = group.ranks;
      meeting->cost = cost;
      group.calls.push_back({text, std::move(meeting)});
    }
    Group::Call& call = group.calls[at];
    if (call.text != text) {
      group.abort(error(Code::misuse, "ranks disagree: rank ", rank_, " calls ", text, ", a peer calls ", call.text));
      return group.status;
    }
    std::shared_ptr<Meeting> meeting = call.meeting;
    if (++meeting->made == group.ranks) {  // only the oldest call can be complete
      group.calls.pop_front();
      ++group.first;
    }
    simulation.meet(static_cast<SimStream&>(stream).timeline(), std::move(meeting));
    return {};
  }

  std::shared_ptr<Group> group_;
  const int rank_;
  int64_t made_ = 0;
};

class SimDevice final : public Device {
 public:
  SimDevice(const Machine& machine, std::shared_ptr<Device> planned_for) : world_(std::make_shared<World>()), planned_for_(std::move(planned_for)) {
    world_->machine = machine;
    if (!planned_for_) kernels_.add({.op = "*", .name = "simulated"});
  }
  std::string description() const override { return cat("simulated ", world_->machine.name, ", in virtual time"); }
  const KernelTable& kernels() const override { return planned_for_ ? planned_for_->kernels() : kernels_; }
  bool executes() const override { return false; }

  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
    const int64_t limit = world_->machine.memory_bytes > 0 ? world_->machine.memory_bytes : first_address - 1;
    const int64_t held = bytes > limit ? limit : bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
    const int64_t before = world_->in_use.fetch_add(held);
    if (bytes > limit || before > limit - held) {
      world_->in_use.fetch_sub(held);
      return error(Code::out_of_memory, "the simulated ", world_->machine.name, " has no ", grouped(bytes), " bytes; it holds ",
                   grouped(before), " of ", grouped(limit), " bytes");
    }
    return std::unique_ptr<Buffer>(new SimBuffer(world_, world_->next_address.fetch_add(held), bytes, held));
  }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    if (threads < 1) return invalid("a stream on ", threads, " threads; it needs at least one");
    return std::unique_ptr<Stream>(new SimStream(world_));
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<SimEvent>(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_communicators(int ranks) override {
    if (ranks < 1) return invalid("a group of ", ranks, " ranks; it needs at least one");
    auto group = std::make_shared<Group>();
    group->world = world_;
    group->ranks = ranks;
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<SimCommunicator>(group, r));
    return communicators;
  }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Device> planned_for_;  // whose kernels a program names; none of them is ever called
  KernelTable kernels_;
};

}  // namespace

std::shared_ptr<Device> make_device(const Machine& machine, std::shared_ptr<Device> planned_for) {
  return std::make_shared<SimDevice>(machine, std::move(planned_for));
}

}  // namespace epl::sim

namespace epl {

EPL_BACKEND(sim) {
  return {.name = "sim",
          .doc = "virtual time and no numbers: for cost models and jobs larger than the machine",
          .open = [](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            // The program is the one that the processor at hand would run: its kernels, its fusion, its memory.
            auto cpu = open_device("cpu", host, options);
            return sim::make_device(sim::machines()[0], cpu.ok() ? *cpu : nullptr);
          }};
}

}  // namespace epl
