#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
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
  // Calls of ranks that meet, which not all of them have made; the first has number `first`.
  struct Calls {
    struct Call {
      Collective call;
      int rank;  // that made it first
      std::shared_ptr<Meeting> meeting;
    };
    std::deque<Call> open;
    int64_t first = 0;
  };

  // Under the lock of the simulation. Calls that all ranks have made will take place all the same.
  void abort(const Status& why) {
    if (!status.ok()) return;
    status = why.ok() ? error(Code::cancelled, "the group ", name, " was aborted") : why;
    fail(together);
    for (auto& [ranks_of_pair, calls] : pairs) fail(calls);
    for (auto& [part_name, part] : children) part.group->abort(why);
  }

  std::shared_ptr<World> world;
  std::string name;
  int ranks = 0;
  Calls together;
  std::map<std::pair<int, int>, Calls> pairs;  // from a rank to another
  struct Part {
    std::vector<int> members;
    std::shared_ptr<Group> group;
  };
  std::map<std::string, Part> children;
  Status status;

 private:
  void fail(Calls& calls) {
    for (Calls::Call& call : calls.open) world->simulation.fail(*call.meeting, status);
    calls.open.clear();
  }
};

double seconds_of(const Machine& machine, int ranks, const Collective& call) {
  switch (call.kind) {
    case Collective::Kind::all_reduce:
      return all_reduce_seconds(machine, ranks, call.bytes());
    case Collective::Kind::reduce_scatter:
      return reduce_scatter_seconds(machine, ranks, call.bytes());
    case Collective::Kind::all_gather:
      return all_gather_seconds(machine, ranks, call.bytes());
    case Collective::Kind::all_to_all:
      return all_to_all_seconds(machine, ranks, call.bytes());
    case Collective::Kind::broadcast:
      return broadcast_seconds(machine, ranks, call.bytes());
    case Collective::Kind::send:
    case Collective::Kind::receive:
      return message_seconds(machine, call.bytes());
    case Collective::Kind::barrier:
      return barrier_seconds(machine, ranks);
  }
  return 0;
}

class SimCommunicator final : public Communicator {
 public:
  SimCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}
  ~SimCommunicator() override {
    std::lock_guard lock(group_->world->simulation.mutex);
    group_->abort(error(Code::peer_failed, "rank ", rank_, " of ", group_->ranks, " left the group ", group_->name));
  }
  const std::string& group() const override { return group_->name; }
  int rank() const override { return rank_; }
  int size() const override { return group_->ranks; }

  Status run(Stream& stream, const Collective& call) override {
    Simulation& simulation = group_->world->simulation;
    std::lock_guard lock(simulation.mutex);
    Group& group = *group_;
    if (!group.status.ok()) return group.status;
    if (Status status = check_collective(call, rank_, size()); !status.ok()) {
      group.abort(status);
      return status;
    }
    const bool sends = call.kind == Collective::Kind::send;
    const std::pair<int, int> pair = sends ? std::pair(rank_, call.peer) : std::pair(call.peer, rank_);
    Group::Calls& calls = call.between_two() ? group.pairs[pair] : group.together;
    int64_t& made = call.between_two() ? made_in_pairs_[pair] : made_;
    const int64_t at = made++ - calls.first;
    if (at == static_cast<int64_t>(calls.open.size())) {
      auto meeting = std::make_shared<Meeting>();
      meeting->ranks = call.between_two() ? 2 : group.ranks;
      meeting->cost = seconds_of(group.world->machine, group.ranks, call);
      calls.open.push_back({call, rank_, std::move(meeting)});
    }
    Group::Calls::Call& open = calls.open[static_cast<size_t>(at)];
    if (open.rank != rank_ && !agree(open.call, call)) {
      group.abort(error(Code::misuse, "ranks of group ", group.name, " disagree at call ", made, ": rank ", rank_,
                        " calls ", call.text(), ", rank ", open.rank, " calls ", open.call.text()));
      return group.status;
    }
    std::shared_ptr<Meeting> meeting = open.meeting;
    if (++meeting->made == meeting->ranks) {  // only the oldest call can be complete
      calls.open.pop_front();
      ++calls.first;
    }
    simulation.meet(static_cast<SimStream&>(stream).timeline(), std::move(meeting));
    return {};
  }

  Result<std::unique_ptr<Communicator>> split(const std::string& name, std::span<const int> members) override {
    EPL_TRY(check_members(*this, name, members));
    std::lock_guard lock(group_->world->simulation.mutex);
    if (!group_->status.ok()) return group_->status;
    Group::Part& part = group_->children[name];
    if (!part.group) {
      part = {{members.begin(), members.end()}, std::make_shared<Group>()};
      part.group->world = group_->world;
      part.group->name = name;
      part.group->ranks = static_cast<int>(members.size());
    }
    if (!std::ranges::equal(part.members, members))
      return error(Code::misuse, "group ", group_->name, " has a group ", name, " of other members");
    return std::unique_ptr<Communicator>(
        new SimCommunicator(part.group, static_cast<int>(std::ranges::find(members, rank_) - members.begin())));
  }

  void abort(const Status& status) override {
    std::lock_guard lock(group_->world->simulation.mutex);
    group_->abort(status);
  }

 private:
  std::shared_ptr<Group> group_;
  const int rank_;
  int64_t made_ = 0;
  std::map<std::pair<int, int>, int64_t> made_in_pairs_;
};

class SimDevice final : public Device {
 public:
  SimDevice(const Machine& machine, std::shared_ptr<Device> planned_for)
      : world_(std::make_shared<World>()), planned_for_(std::move(planned_for)) {
    world_->machine = machine;
  }
  std::string description() const override { return cat("simulated ", world_->machine.name, ", in virtual time"); }
  const KernelTable& kernels() const override { return planned_for_ ? planned_for_->kernels() : none_; }
  Device& stands_for() override { return planned_for_ ? planned_for_->stands_for() : *this; }
  bool shares_host_memory() const override { return !planned_for_ || planned_for_->shares_host_memory(); }
  bool executes() const override { return false; }

  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
    const int64_t limit = world_->machine.memory_bytes > 0 ? world_->machine.memory_bytes : first_address - 1;
    const int64_t held = bytes > limit ? limit
                         : bytes == 0  ? alignment
                                       : (bytes + alignment - 1) / alignment * alignment;
    const int64_t before = world_->in_use.fetch_add(held);
    if (bytes > limit || before > limit - held) {
      world_->in_use.fetch_sub(held);
      return error(Code::out_of_memory, "the simulated ", world_->machine.name, " has no ", grouped(bytes),
                   " bytes; it holds ", grouped(before), " of ", grouped(limit), " bytes");
    }
    return std::unique_ptr<Buffer>(new SimBuffer(world_, world_->next_address.fetch_add(held), bytes, held));
  }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    if (threads < 1) return invalid("a stream on ", threads, " threads; it needs at least one");
    return std::unique_ptr<Stream>(new SimStream(world_));
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<SimEvent>(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    if (ranks < 1) return invalid("a group of ", ranks, " ranks; it needs at least one");
    auto group = std::make_shared<Group>();
    group->world = world_;
    group->name = name;
    group->ranks = ranks;
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (int r = 0; r < ranks; ++r) communicators.push_back(std::make_unique<SimCommunicator>(group, r));
    return communicators;
  }

 private:
  std::shared_ptr<World> world_;
  std::shared_ptr<Device> planned_for_;  // whose kernels a program names; none of them is ever called
  KernelTable none_;
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
            EPL_ASSIGN(auto cpu, open_device("cpu", host, options));
            return sim::make_device(sim::machines()[0], std::move(cpu));
          }};
}

}  // namespace epl
