#include <algorithm>
#include <atomic>
#include <utility>

#include "backends/sim/sim.h"
#include "backends/sim/timeline.h"
#include "core/backend/posted_group.h"

namespace epl::sim {
namespace {

constexpr int64_t alignment = 64;
constexpr int64_t first_address = int64_t{1} << 62;  // no processor has memory there: touching it faults
constexpr int64_t first_in_files = first_address + (int64_t{1} << 61);

// What buffers, streams, events and communicators share; it outlives the device where they do.
struct World {
  World(const Machine& machine, std::span<const int> represented) : cost(machine) {
    for (const int rank : represented) {
      here.resize(std::max(here.size(), static_cast<size_t>(rank) + 1), false);
      here[static_cast<size_t>(rank)] = true;
    }
  }
  std::mutex& lock() { return simulation.mutex; }
  const Machine& machine() const { return cost.machine(); }
  // Of these ranks, how many come to what they do together.
  int count_here(std::span<const int> ranks) const {
    if (here.empty()) return static_cast<int>(ranks.size());
    const auto is_here = [&](int rank) {
      return static_cast<size_t>(rank) < here.size() && here[static_cast<size_t>(rank)];
    };
    return static_cast<int>(std::ranges::count_if(ranks, is_here));
  }
  const CostModel cost;
  std::vector<bool> here;  // by rank, those that are represented; empty: all are
  Simulation simulation;
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> next_address{first_address}, next_in_files{first_in_files};
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

// An event is its latest record. A stream waits for the record that was the latest when it was told to wait.
class SimEvent final : public Event {
 public:
  std::shared_ptr<Point> latest;
};

class SimStream final : public Stream, public VirtualClock {
 public:
  // `speed`: of its kernels.
  SimStream(std::shared_ptr<World> world, int threads, double speed)
      : world_(std::move(world)), cost_(of_threads(world_->machine(), threads)), speed_(speed) {}

  void launch(const KernelRow&, const KernelQuery& query, const void*, const void* const*, void* const*, void*,
              const StepContext&) override {
    advance(cost_.kernel(work_of(query)) / speed_);
  }
  void copy(void*, const void*, int64_t bytes) override { move(2 * bytes); }
  void copy_rows(const RowCopy& rows) override { move(2 * rows.bytes * rows.rows); }
  void fetch(void*, const void* source, int64_t bytes) override { move_to_other(source, bytes); }
  void evict(void* target, const void*, int64_t bytes) override { move_to_other(target, bytes); }
  void fill(void*, int64_t bytes, uint8_t) override { move(bytes); }
  void upload(void*, const void*, int64_t bytes) override { move_to_host(bytes); }
  void download(void*, const void*, int64_t bytes) override { move_to_host(bytes); }
  void guard(const int64_t*) override {}  // each step is applied
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
  VirtualClock* clock() override { return this; }
  double seconds() const override {
    std::lock_guard lock(world_->simulation.mutex);
    return timeline_->seconds;
  }
  bool settled() const override {
    std::lock_guard lock(world_->simulation.mutex);
    return timeline_->queue.empty();
  }
  void stamp(double* seconds) override {
    std::lock_guard lock(world_->simulation.mutex);
    world_->simulation.stamp(timeline_, seconds);
  }
  const TimelinePtr& timeline() const { return timeline_; }

 private:
  void move(int64_t bytes) {
    if (bytes > 0) advance((cost_.launch() + cost_.memory(static_cast<double>(bytes))) / speed_);
  }
  void move_to_host(int64_t bytes) {
    if (bytes > 0) advance(cost_.launch() + cost_.host(static_cast<double>(bytes)));
  }
  void move_to_other(const void* there, int64_t bytes) {
    const bool in_file = reinterpret_cast<intptr_t>(there) >= first_in_files;
    const MemoryKind kind = in_file ? MemoryKind::file : MemoryKind::host;
    if (bytes > 0) advance(cost_.launch() + cost_.other(kind, static_cast<double>(bytes)));
  }
  void advance(double seconds) {
    std::lock_guard lock(world_->simulation.mutex);
    world_->simulation.advance(timeline_, seconds);
  }

  std::shared_ptr<World> world_;
  const CostModel cost_;
  const double speed_;
  TimelinePtr timeline_ = std::make_shared<Timeline>();
};

// How calls take place in virtual time.
struct SimWay {
  using Shared = World;
  using CollectiveCall = sim::CollectiveCall;
  using Group = PostedGroup<SimWay>;

  static Status fits(int, const Collective&) { return {}; }
  static std::shared_ptr<CollectiveCall> begin(Group& group, const Collective& call, std::span<const int> ranks) {
    auto collective = std::make_shared<CollectiveCall>();
    collective->ranks = group.shared->count_here(ranks);
    const auto [first, last] = std::ranges::minmax(ranks);
    collective->cost = group.shared->cost.collective(call, {std::ssize(ranks), first, last});
    return collective;
  }
  static void join(const std::shared_ptr<Group>& group, std::shared_ptr<CollectiveCall> collective, int, Stream& stream,
                   const Collective&) {
    group->shared->simulation.join(static_cast<SimStream&>(stream).timeline(), std::move(collective));
  }
  static void abort(Group& group, const std::vector<std::shared_ptr<CollectiveCall>>& incomplete) {
    for (const auto& collective : incomplete) group.shared->simulation.fail(*collective, group.status);
  }
};

class SimDevice final : public Device {
 public:
  SimDevice(const Machine& machine, std::shared_ptr<Device> planned_for, std::span<const int> represented)
      : world_(std::make_shared<World>(machine, represented)), planned_for_(std::move(planned_for)) {
    for (const Machine::Ranks& kind : machine.kinds)
      kinds_.push_back(std::make_unique<SimDevice>(world_, planned_for_, kind.speed));
  }
  // Of ranks of one kind.
  SimDevice(std::shared_ptr<World> world, std::shared_ptr<Device> planned_for, double speed)
      : world_(std::move(world)), planned_for_(std::move(planned_for)), speed_(speed) {}
  Device& of_rank(int rank) override {
    const std::vector<Machine::Ranks>& kinds = machine().kinds;
    return kinds_.empty() ? *this : *kinds_[static_cast<size_t>(&machine().kind(rank) - kinds.data())];
  }
  std::string description() const override { return cat("simulated ", machine().name, ", in virtual time"); }
  const KernelTable& kernels() const override { return planned_for_ ? planned_for_->kernels() : none_; }
  Device& stands_for() override { return planned_for_ ? planned_for_->stands_for() : *this; }
  bool shares_host_memory() const override { return !planned_for_ || planned_for_->shares_host_memory(); }
  bool executes() const override { return false; }
  const Machine& machine() const override { return world_->machine(); }

  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    if (bytes < 0) return invalid("a buffer of ", bytes, " bytes");
    const int64_t limit = limit_bytes() > 0 ? limit_bytes() : first_address - 1;
    const int64_t held = bytes > limit ? limit
                         : bytes == 0  ? alignment
                                       : (bytes + alignment - 1) / alignment * alignment;
    const int64_t before = world_->in_use.fetch_add(held);
    if (bytes > limit || before > limit - held) {
      world_->in_use.fetch_sub(held);
      return error(Code::out_of_memory, "the simulated ", machine().name, " has no ", grouped(bytes),
                   " bytes; it holds ", grouped(before), " of ", grouped(limit), " bytes");
    }
    return std::unique_ptr<Buffer>(new SimBuffer(world_, world_->next_address.fetch_add(held), bytes, held));
  }
  // What the device has that it stands for, and what its data sheet names.
  bool has_memory(MemoryKind kind) const override {
    const auto& known = machine().memories;
    return kind == MemoryKind::device || (planned_for_ && planned_for_->has_memory(kind)) ||
           std::ranges::find(known, kind, &Machine::Memory::kind) != known.end();
  }
  // Other memories have no limit.
  Result<std::unique_ptr<Buffer>> allocate_in(MemoryKind kind, int64_t bytes) override {
    if (kind == MemoryKind::device || !has_memory(kind)) return Device::allocate_in(kind, bytes);
    const int64_t room = (bytes + alignment - 1) / alignment * alignment;
    auto& next = kind == MemoryKind::file ? world_->next_in_files : world_->next_address;
    return std::unique_ptr<Buffer>(new SimBuffer(world_, next.fetch_add(room), bytes, 0));
  }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    if (threads < 1) return invalid("a stream on ", threads, " threads; it needs at least one");
    return std::unique_ptr<Stream>(new SimStream(world_, threads, speed_));
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<SimEvent>(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return create_posted_group<SimWay>(world_, name, ranks);
  }

 private:
  int64_t limit_bytes() const { return machine().memory(Machine::Memory::Kind::device).bytes; }

  std::shared_ptr<World> world_;
  std::shared_ptr<Device> planned_for_;  // whose kernels a program names; none of them is ever called
  const double speed_ = 1;
  std::vector<std::unique_ptr<SimDevice>> kinds_;  // by Machine::kinds
  KernelTable none_;
};

}  // namespace

std::shared_ptr<Device> make_device(const Machine& machine, std::shared_ptr<Device> planned_for,
                                    std::span<const int> represented) {
  return std::make_shared<SimDevice>(machine, std::move(planned_for), represented);
}

}  // namespace epl::sim

namespace epl {

EPL_BACKEND(sim) {
  return {.name = "sim",
          .doc = "virtual time and no numbers: for predictions and jobs larger than the machine",
          .open = [](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            // The program is the one of the other device: its kernels, its fusion, its memory.
            if (options.stands_for)
              return sim::make_device(options.stands_for->machine(), options.stands_for, options.represented);
            EPL_ASSIGN(auto cpu, open_device("cpu", host, options));
            const Machine machine = cpu->machine();
            return sim::make_device(machine, std::move(cpu));
          },
          .simulated = true};
}

}  // namespace epl
