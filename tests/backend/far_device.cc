#include "tests/backend/far_device.h"

#include <algorithm>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/check.h"
#include "core/ir/op.h"
#include "tests/backend/far_group.h"

namespace epl::far {

namespace {

class FarBuffer final : public Buffer {
 public:
  FarBuffer(std::shared_ptr<Memory> memory, std::unique_ptr<Buffer> real)
      : memory_(std::move(memory)), real_(std::move(real)) {
    address_ = memory_->add(static_cast<std::byte*>(real_->data()), real_->bytes());
  }
  ~FarBuffer() override { memory_->remove(address_); }
  void* data() override { return address_; }
  int64_t bytes() const override { return real_->bytes(); }

 private:
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<Buffer> real_;
  void* address_;
};

// Its records by number: those that were issued, and those that were carried out. What failed on the way is the failure
// of the stream that recorded it, until somebody takes that.
class FarEvent final : public Event {
 public:
  struct State {
    uint64_t issued = 0, reached = 0;
    std::shared_ptr<Queue> recorder;
  };
  std::shared_ptr<State> state = std::make_shared<State>();
};

class FarStream final : public Stream, public QueueOwner {
 public:
  FarStream(std::shared_ptr<Engine> engine, std::shared_ptr<Memory> memory, std::shared_ptr<Memory> beside,
            std::unique_ptr<Stream> inside)
      : engine_(std::move(engine)), memory_(std::move(memory)), beside_(std::move(beside)), inside_(std::move(inside)) {
    engine_->add(*queue_);
  }
  ~FarStream() override { engine_->remove(*queue_); }
  std::shared_ptr<Queue> queue() override { return queue_; }

  void launch(const KernelRow& row, const KernelQuery& query, const void* state, const void* const* inputs,
              void* const* outputs, void* workspace, const StepContext& context) override {
    std::vector<const void*> from(inputs, inputs + query.inputs());
    std::vector<void*> to(outputs, outputs + query.outputs());
    note([=, this, &row, &query] { launch(row, query, state, from.data(), to.data(), workspace, context); });
    const int64_t room = workspace == nullptr ? 0 : workspace_bytes(row, query);
    issue([this, &row, &query, state, from, to, workspace, room, at = context]() mutable {
      at.on_device = reinterpret_cast<const StepNumbers*>(memory_->real(at.on_device));
      // A launch that is given again must not have kept these.
      if (at.on_device) at.seed = 0, at.step = 0;
      if (room > 0) inside_->fill(memory_->real(workspace), room, soil);
      for (const void*& address : from) address = memory_->real(address);
      for (void*& address : to) address = memory_->real(address);
      inside_->launch(row, query, state, from.data(), to.data(), memory_->real(workspace), at);
    });
  }
  void copy(void* target, const void* source, int64_t bytes) override {
    if (bytes <= 0) return;
    note([=, this] { copy(target, source, bytes); });
    issue([=, this] { inside_->copy(anywhere(target), anywhere(source), bytes); });
  }
  void fetch(void* target, const void* source, int64_t bytes) override {
    if (bytes <= 0) return;
    note([=, this] { fetch(target, source, bytes); });
    issue([=, this] { inside_->copy(memory_->real(target), beside_->real(source), bytes); });
  }
  void evict(void* target, const void* source, int64_t bytes) override {
    if (bytes <= 0) return;
    note([=, this] { evict(target, source, bytes); });
    issue([=, this] { inside_->copy(beside_->real(target), memory_->real(source), bytes); });
  }
  void copy_rows(const RowCopy& rows) override {
    if (rows.bytes <= 0 || rows.rows <= 0) return;
    note([=, this] { copy_rows(rows); });
    issue([=, this] {
      RowCopy real = rows;
      real.target = memory_->real(rows.target);
      real.source = memory_->real(rows.source);
      inside_->copy_rows(real);
    });
  }
  void fill(void* target, int64_t bytes, uint8_t value) override {
    if (bytes <= 0) return;
    note([=, this] { fill(target, bytes, value); });
    issue([=, this] { inside_->fill(anywhere(target), bytes, value); });
  }
  void upload(void* target, const void* host_source, int64_t bytes) override {
    if (bytes <= 0) return;
    engine_->note([&](Recorded& recorded) { recorded.uploads.push_back({target, host_source, bytes}); });
    note([=, this] { upload(target, host_source, bytes); });
    issue([=, this] { inside_->copy(anywhere(target), host_source, bytes); });
  }
  void download(void* host_target, const void* source, int64_t bytes) override {
    if (bytes <= 0) return;
    note([=, this] { download(host_target, source, bytes); });
    issue([=, this] { inside_->copy(host_target, anywhere(source), bytes); });
  }
  void guard(const int64_t* verdict) override {
    note([=, this] { guard(verdict); });
    guard_ = verdict;
  }
  void record(Event& event) override {
    note([=, this, &event] { record(event); });
    std::lock_guard lock(engine_->mutex);
    auto state = static_cast<FarEvent&>(event).state;
    const uint64_t number = ++state->issued;
    engine_->issue_locked(*queue_, {.run =
                                        [this, state, number] {
                                          state->reached = std::max(state->reached, number);
                                          state->recorder = queue_;
                                          return Status();
                                        },
                                    .always = true});
  }
  void wait(Event& event) override {
    note([=, this, &event] { wait(event); });
    std::lock_guard lock(engine_->mutex);
    auto state = static_cast<FarEvent&>(event).state;
    const uint64_t number = state->issued;
    engine_->issue_locked(*queue_, {.ready = [state, number] { return state->reached >= number; },
                                    .run = [state] { return state->recorder ? state->recorder->failure : Status(); }});
  }
  Status synchronize() override {
    engine_->note([this](Recorded& recorded) {
      recorded.verbs.push_back({.give = [this] { return synchronize(); }, .waits = true});
    });
    return engine_->wait_for(*queue_);
  }

 private:
  template <class F> void note(F again) {
    engine_->note([&](Recorded& recorded) {
      recorded.verbs.push_back({.give = [again = std::move(again)] {
        again();
        return Status();
      }});
    });
  }
  void issue(std::function<void()> work) {
    engine_->issue(*queue_, {.run = [this, work = std::move(work), verdict = guard_] {
      if (verdict == nullptr || *reinterpret_cast<const int64_t*>(memory_->real(verdict)) < 0) work();
      return Status();
    }});
  }

  std::byte* anywhere(const void* address) {
    return beside_ && beside_->has(address) ? beside_->real(address) : memory_->real(address);
  }

  // A kernel may write all of its workspace. What a kernel leaves as it is depends on the processor, so all is soiled.
  int64_t workspace_bytes(const KernelRow& row, const KernelQuery& query) {
    const auto [known, is_new] = workspaces_.emplace(&query, 0);
    if (is_new) {
      const auto prepared = prepare(row, query);
      EPL_CHECK(prepared.ok(), row.name, " has been prepared before");
      known->second = prepared->workspace_bytes;
    }
    return known->second;
  }

  static constexpr uint8_t soil = 0x5a;  // floats of some 1e16
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Memory> memory_, beside_;
  std::unique_ptr<Stream> inside_;                    // on which its work is carried out
  std::map<const KernelQuery*, int64_t> workspaces_;  // of programs, which live longer
  const int64_t* guard_ = nullptr;                    // of what it is given now
  std::shared_ptr<Queue> queue_ = std::make_shared<Queue>();
};

class FarDevice final : public Device {
 public:
  FarDevice(std::shared_ptr<Device> cpu, uint64_t seed, int stream_kinds, bool guards = false)
      : cpu_(std::move(cpu)), stream_kinds_(stream_kinds), guards_(guards), engine_(std::make_shared<Engine>(seed)) {}
  // The second of a machine: streams of both take turns, and groups are of both.
  FarDevice(const FarDevice& first, std::string_view op)
      : cpu_(first.cpu_),
        stream_kinds_(first.stream_kinds_),
        guards_(first.guards_),
        engine_(first.engine_),
        memory_(first.memory_) {
    KernelRow own = cpu_->kernels().rows(op).front();
    own.name = "own";
    kernels_.add(std::move(own));
    kernels_.add(cpu_->kernels());
    has_own_ = true;
  }
  // Leaves it the kernels of ops that have no body.
  void leave_out_composites() {
    for (const OpDef* op : op_table().all()) {
      if (op->body) continue;
      for (const KernelRow& row : cpu_->kernels().rows(op->name)) kernels_.add(row);
    }
    has_own_ = true;
  }
  // A memory that its kernels cannot reach.
  void add_memory(double bandwidth) {
    beside_ = std::make_shared<Memory>();
    for (Machine::Memory& memory : machine_.memories) {
      if (memory.kind == MemoryKind::host && bandwidth > 0) memory.bandwidth = bandwidth;
    }
  }
  void add_second(std::string_view op) { second_ = std::make_unique<FarDevice>(*this, op); }
  Device& of_rank(int rank) override { return second_ && rank % 2 == 1 ? *second_ : *this; }
  std::string description() const override { return cat("far away on ", cpu_->description()); }
  const KernelTable& kernels() const override { return has_own_ ? kernels_ : cpu_->kernels(); }
  const std::vector<std::string>& notes() const override { return cpu_->notes(); }
  bool shares_host_memory() const override { return false; }
  int stream_kinds() const override { return stream_kinds_; }
  bool guards() const override { return guards_; }
  const Machine& machine() const override { return machine_; }
  Engine& engine() { return *engine_; }
  Result<std::unique_ptr<Buffer>> allocate(int64_t bytes) override {
    EPL_ASSIGN(auto real, cpu_->allocate(bytes));
    return std::unique_ptr<Buffer>(new FarBuffer(memory_, std::move(real)));
  }
  bool has_memory(MemoryKind kind) const override {
    return kind == MemoryKind::device || (kind == MemoryKind::host && beside_);
  }
  Result<std::unique_ptr<Buffer>> allocate_in(MemoryKind kind, int64_t bytes) override {
    if (kind == MemoryKind::device || !has_memory(kind)) return Device::allocate_in(kind, bytes);
    EPL_ASSIGN(auto real, cpu_->allocate(bytes));
    return std::unique_ptr<Buffer>(new FarBuffer(beside_, std::move(real)));
  }
  int64_t bytes(MemoryKind kind) { return kind == MemoryKind::device ? memory_->bytes() : beside_->bytes(); }
  Result<std::unique_ptr<Stream>> create_stream(int threads) override {
    EPL_ASSIGN(auto inside, cpu_->create_stream(threads));
    return std::unique_ptr<Stream>(new FarStream(engine_, memory_, beside_, std::move(inside)));
  }
  std::unique_ptr<Event> create_event() override { return std::make_unique<FarEvent>(); }
  Result<std::vector<std::unique_ptr<Communicator>>> create_group(const std::string& name, int ranks) override {
    return far::create_group(engine_, memory_, name, ranks);
  }

 private:
  std::shared_ptr<Device> cpu_;
  const int stream_kinds_;
  const bool guards_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::shared_ptr<Memory> beside_;  // null: it has one memory
  Machine machine_ = processor_core();
  KernelTable kernels_;
  bool has_own_ = false;
  std::unique_ptr<FarDevice> second_;
};

Result<std::shared_ptr<FarDevice>> open(const Host& host, const DeviceOptions& options, uint64_t seed, int stream_kinds,
                                        bool guards = false) {
  EPL_ASSIGN(const BackendRow* cpu, find_named(backend_table(), "cpu", "device"));
  EPL_ASSIGN(auto device, cpu->open(host, options));
  return std::make_shared<FarDevice>(std::move(device), seed, stream_kinds, guards);
}

}  // namespace
}  // namespace epl::far

namespace epl {

namespace {

far::Engine& engine_of(Device& device) { return dynamic_cast<far::FarDevice&>(device).engine(); }

class Recording final : public FarRecording {
 public:
  std::vector<FarUpload> uploads() const override { return recorded.uploads; }
  int64_t commands_behind_waits() const override {
    const auto wait = std::ranges::find(recorded.verbs, true, &far::Recorded::Verb::waits);
    return std::ranges::count(wait, recorded.verbs.end(), false, &far::Recorded::Verb::waits);
  }
  Status replay() override {
    for (const auto& verb : recorded.verbs) EPL_TRY(verb.give());
    return {};
  }
  far::Recorded recorded;
};

}  // namespace

void reseed(Device& far, uint64_t seed) { engine_of(far).reseed(seed); }

void fail_at(Device& far, int64_t number) { engine_of(far).fail_at(number); }

FarRecorder::FarRecorder(Device& far) : far_(far) {
  auto made = std::make_unique<Recording>();
  engine_of(far_).record_into(&made->recorded);
  recording_ = std::move(made);
}

std::unique_ptr<FarRecording> FarRecorder::stop() {
  engine_of(far_).record_into(nullptr);
  return std::move(recording_);
}

BackendRow far_backend(std::string name, uint64_t seed, int stream_kinds, bool guards) {
  return {.name = std::move(name),
          .doc = "the cpu behind memory that the host cannot touch",
          .open = [=](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            EPL_ASSIGN(std::shared_ptr<Device> device, far::open(host, options, seed, stream_kinds, guards));
            return device;
          }};
}

BackendRow far_backend_of_two_memories(std::string name, uint64_t seed, int stream_kinds, double bandwidth) {
  return {.name = std::move(name),
          .doc = "the cpu behind two memories that the host cannot touch",
          .open = [=](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            EPL_ASSIGN(auto device, far::open(host, options, seed, stream_kinds));
            device->add_memory(bandwidth);
            return std::shared_ptr<Device>(std::move(device));
          }};
}

int64_t far_bytes(Device& far, MemoryKind kind) { return dynamic_cast<far::FarDevice&>(far).bytes(kind); }

BackendRow far_backend_of_parts(std::string name, uint64_t seed) {
  return {.name = std::move(name),
          .doc = "the cpu without kernels of composites, behind memory that the host cannot touch",
          .open = [=](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            EPL_ASSIGN(auto device, far::open(host, options, seed, 4));
            device->leave_out_composites();
            return std::shared_ptr<Device>(std::move(device));
          }};
}

BackendRow far_backend_of_two(std::string name, uint64_t seed, std::string op) {
  return {.name = std::move(name),
          .doc = "two devices behind memory that the host cannot touch",
          .open = [=](const Host& host, const DeviceOptions& options) -> Result<std::shared_ptr<Device>> {
            EPL_ASSIGN(auto device, far::open(host, options, seed, 4));
            device->add_second(op);
            return std::shared_ptr<Device>(std::move(device));
          }};
}

}  // namespace epl
